/** JSON line of a record:
 *  `{"topic":"orders","partition":0,"offset":17,"timestamp":1769860800000,"key":"o-1","schemaId":3,
 *  "value":{…}}`. Integers have all their digits. A framed key is decoded, and `keySchemaId` has
 *  its id; any other key is a text, or `{"base64":"…"}` where it is not UTF-8. */
import { isUtf8 } from 'node:buffer';
import type { FilterField } from '../../core/filter/compile.ts';
import { TIMESTAMP_TYPE } from '../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { KEY_ID_HEADER, type RecordId } from '../../serde/frame.ts';
import { headersOf } from './any.ts';
import type { DecodedRow } from './decoder.ts';
import type { ValueForm } from './form.ts';
import { idOfValue, looksFramed, type WantedSchemas, type WriterSchemas, want } from './writers.ts';

/** Form of the keys in lines. auto: framed keys are decoded. text: every key is a text.
 *  base64: every key is bytes. */
export const KEY_FORMS = ['auto', 'text', 'base64'] as const;
export type KeyForm = (typeof KEY_FORMS)[number];

/** Content of a line. record: the record with its place. value: the value alone. */
export const LINE_FORMS = ['record', 'value'] as const;
export type LineForm = (typeof LINE_FORMS)[number];

interface DecodedKey {
  readonly text: string;
  /** Value for filters. */
  readonly value: unknown;
  readonly form: ValueForm | undefined;
  readonly schemaId: number | string | undefined;
}

const NO_KEY: DecodedKey = { text: 'null', value: null, form: undefined, schemaId: undefined };

/** Keys of records. Call `prepare` for each batch first. */
export class RecordKeys {
  private readonly form: KeyForm;
  private readonly writers: WriterSchemas;

  constructor(form: KeyForm, writers: WriterSchemas) {
    this.form = form;
    this.writers = writers;
  }

  /** Loads the schemas of framed keys. @throws registry_unavailable, registry_protocol */
  async prepare(records: RecordBatch): Promise<void> {
    if (this.form !== 'auto') return;
    const wanted: WantedSchemas = new Map();
    for (let row = 0; row < records.rowCount; row++) {
      const key = records.key(row);
      const frame = key === null ? undefined : this.frame(records, row, key);
      if (frame !== undefined) want(wanted, frame.id);
    }
    if (wanted.size > 0) await this.writers.load(wanted);
  }

  private frame(records: RecordBatch, row: number, key: Uint8Array): RecordId | undefined {
    try {
      const headers = headersOf(records, row);
      const hasHeader = headers.some(([name]) => name === KEY_ID_HEADER);
      return hasHeader || looksFramed(key) ? idOfValue(key, headers, KEY_ID_HEADER) : undefined;
    } catch {
      return undefined;
    }
  }

  of(records: RecordBatch, row: number): DecodedKey {
    const key = records.key(row);
    if (key === null) return NO_KEY;
    const bytes = Buffer.from(key.buffer, key.byteOffset, key.byteLength);
    const frame = this.form === 'auto' ? this.frame(records, row, key) : undefined;
    if (frame !== undefined) {
      try {
        const { value, form } = this.writers.decode(bytes, frame);
        return { text: form.print(value), value, form, schemaId: frame.id };
      } catch {
        // Bytes that only look like a frame, such as those of a number, are shown as they are.
      }
    }
    if (this.form !== 'base64' && isUtf8(bytes)) {
      const value = bytes.toString('utf8');
      return { text: JSON.stringify(value), value, form: undefined, schemaId: undefined };
    }
    const value = bytes.toString('base64');
    return { text: `{"base64":"${value}"}`, value, form: undefined, schemaId: undefined };
  }
}

export interface LineOptions {
  readonly form: LineForm;
  readonly keys: RecordKeys;
  /** Topic of the records. */
  readonly topic: string;
}

/** Milliseconds; null for a record without a timestamp. */
const timestampOf = ({ columns }: RecordBatch, row: number): bigint | null =>
  columns.timestampType[row] === TIMESTAMP_TYPE.NONE ? null : (columns.timestamp[row] as bigint);

/** Prints a decoded row without a line end. */
export function recordLine(records: RecordBatch, decoded: DecodedRow, options: LineOptions): string {
  const { row, schemaId, value, form } = decoded;
  const text = form.print(value);
  if (options.form === 'value') return text;
  const { partition, offset } = records.columns;
  const key = options.keys.of(records, row);
  const place = `"topic":${JSON.stringify(options.topic)},"partition":${partition[row]},"offset":${offset[row]}`;
  const time = `"timestamp":${timestampOf(records, row)}`;
  const ofKey =
    key.schemaId === undefined
      ? `"key":${key.text}`
      : `"key":${key.text},"keySchemaId":${JSON.stringify(key.schemaId)}`;
  const id = schemaId === 0 ? 'null' : JSON.stringify(schemaId);
  return `{${place},${time},${ofKey},"schemaId":${id},"value":${text}}`;
}

/** Reads a property of a record, such as `@offset`, for a filter. */
export function metaOf(
  records: RecordBatch,
  { row, schemaId }: DecodedRow,
  { steps }: FilterField,
  { keys, topic }: LineOptions,
): unknown {
  const { partition, offset } = records.columns;
  switch (steps[0]) {
    case 'topic':
      return topic;
    case 'partition':
      return partition[row];
    case 'offset':
      return offset[row];
    case 'timestamp':
      return timestampOf(records, row);
    case 'schemaId':
      return schemaId === 0 ? null : schemaId;
    default: {
      const { value, form } = keys.of(records, row);
      const rest = steps.slice(1);
      if (rest.length === 0) return form === undefined ? value : form.field(value, []);
      return form?.field(value, rest);
    }
  }
}

/** Names of the properties of a record that a filter may use. */
export const META_FIELDS: readonly string[] = [
  'topic',
  'partition',
  'offset',
  'timestamp',
  'schemaId',
  'key',
];
