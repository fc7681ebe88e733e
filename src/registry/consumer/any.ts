/** Decodes records of any schema with their writers' schemas: framed Avro, Protobuf and JSON by the
 *  id in the prefix or in the header, and JSON without a frame. */
import { RECORD_FLAG } from '../../core/layout/layouts.gen.ts';
import type { RecordBatch, RecordHeader } from '../../core/layout/record-batch.ts';
import { VALUE_ID_HEADER } from '../../serde/frame.ts';
import { registryError } from '../errors.ts';
import {
  type DecodedBatch,
  type DecodedRow,
  type FailedRow,
  failedRow,
  type RecordDecoder,
} from './decoder.ts';
import { NULL_FORM } from './form.ts';
import { JSON_FORM, jsonText } from './json-text.ts';
import { idOfValue, type WantedSchemas, type WriterSchemas, want } from './writers.ts';

const NO_HEADERS: readonly RecordHeader[] = [];

/** Headers of a row; most records have none. */
export const headersOf = (records: RecordBatch, row: number): readonly RecordHeader[] =>
  ((records.columns.flags[row] as number) & RECORD_FLAG.HAS_HEADERS) === 0
    ? NO_HEADERS
    : records.headers(row);

export class AnyDecoder implements RecordDecoder {
  private readonly writers: WriterSchemas;

  constructor(writers: WriterSchemas) {
    this.writers = writers;
  }

  async prepare(records: RecordBatch): Promise<void> {
    const wanted: WantedSchemas = new Map();
    for (let row = 0; row < records.rowCount; row++) {
      const value = records.value(row);
      if (value === null) continue;
      try {
        const frame = idOfValue(value, headersOf(records, row), VALUE_ID_HEADER);
        if (frame !== undefined) want(wanted, frame.id);
      } catch {
        // `decode` reports the error.
      }
    }
    await this.writers.load(wanted);
  }

  decode(records: RecordBatch): DecodedBatch {
    const decoded: DecodedRow[] = [];
    const failed: FailedRow[] = [];
    for (let row = 0; row < records.rowCount; row++) {
      let schemaId: number | string = 0;
      try {
        const bytes = records.value(row);
        if (bytes === null) {
          decoded.push({ row, schemaId, value: null, form: NULL_FORM });
          continue;
        }
        const frame = idOfValue(bytes, headersOf(records, row), VALUE_ID_HEADER);
        if (frame === undefined) {
          decoded.push({ row, schemaId, value: plainJson(bytes), form: JSON_FORM });
          continue;
        }
        schemaId = frame.id;
        decoded.push({ row, schemaId, ...this.writers.decode(bytes, frame) });
      } catch (thrown) {
        failed.push(failedRow(row, schemaId, thrown));
      }
    }
    return { decoded, failed };
  }
}

/** @throws bad_magic for bytes that are neither framed nor JSON */
function plainJson(bytes: Uint8Array): unknown {
  try {
    return jsonText(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  } catch (cause) {
    throw registryError('bad_magic', 'the value neither begins with the magic byte 0x00 nor is JSON', {
      cause,
    });
  }
}
