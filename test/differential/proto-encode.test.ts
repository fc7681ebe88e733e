/** Columns to Protobuf frames: both kernels against each other, the encoder of values and the
 *  decoder. */
import { describe, expect, it } from 'vitest';
import { ColumnBatch } from '../../src/core/columns/batch.ts';
import { decodeColumns, type PayloadSpans } from '../../src/core/columns/kernel.ts';
import { COLUMN_STATUS, ENCODE_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { Payloads } from '../../src/formats/payloads.ts';
import { encodeProto } from '../../src/formats/protobuf/codec/encoder.ts';
import { protoEncoder } from '../../src/formats/protobuf/codec/value-encoder.ts';
import { type CompiledProto, compileProto } from '../../src/formats/protobuf/columns/compile.ts';
import { compileProtoEncode } from '../../src/formats/protobuf/columns/encode.ts';
import type { MessagePlan } from '../../src/formats/protobuf/columns/plan.ts';
import { ProtoRows } from '../../src/formats/protobuf/columns/rows.ts';
import type { ProtoMessage } from '../../src/formats/protobuf/tree.ts';
import {
  messageOf,
  randomDatum,
  randomOf,
  randomText,
  SYNTAXES,
} from '../property/registry-proto-decoder-kit.ts';
import { runs } from '../tier.ts';
import { bytesOf, columnKernels, mutated, spansOf } from './avro-columns-kit.ts';
import {
  checkStatuses,
  corrupt,
  encodedBy,
  type OpenEncoder,
  payloadOf,
  spansOfFrames,
} from './encode-kit.ts';

const open: OpenEncoder = (kernels, program) => kernels.openProtobufEncoder(program);

function batchOf({ program }: CompiledProto, spans: PayloadSpans): ColumnBatch {
  const decoder = (columnKernels[1] as (typeof columnKernels)[number]).openProtobuf(program);
  const batch = ColumnBatch.create(program.schema, Math.max(1, spans.start.length));
  expect(decodeColumns(decoder, spans, 0, spans.start.length, batch)).toBe(spans.start.length);
  decoder.close();
  return batch;
}

/** True where values keep everything that columns have: objects lose the order and the repetition
 *  of map keys, and decoded messages the encoding of a binary column. */
const isExact = ({ fields }: MessagePlan): boolean =>
  fields.every(
    ({ field, isRaw, inner }) =>
      field.mapKey === undefined && !isRaw && (inner === undefined || isExact(inner)),
  );

function encodedValue(message: ProtoMessage, value: unknown): Buffer {
  const payloads = new Payloads(1, 1024);
  protoEncoder(message)(value, payloads);
  return Buffer.from(payloads.bytes.subarray(0, payloads.used));
}

/** Events, and parts of several events one after the other, which merge. */
function payloadsOf(message: ProtoMessage, next: (below: number) => number): Buffer[] {
  const events = Array.from({ length: 4 }, () => encodeProto(message, randomDatum(next, message)));
  return [...events, ...events.map((event) => Buffer.concat([event, ...events.slice(0, 1 + next(3))]))];
}

/** Runs a check on random schemas, and reports the schema of a failure. */
function onSchemas(
  syntax: (typeof SYNTAXES)[number],
  count: number,
  check: (message: ProtoMessage, next: (below: number) => number) => void,
): void {
  for (let seed = 1; seed <= count; seed++) {
    const text = randomText(seed * 6007, syntax, { required: seed % 2 === 0 });
    try {
      check(messageOf(text), randomOf(seed));
    } catch (thrown) {
      throw new Error(`${(thrown as Error).message}\n${text}`, { cause: thrown });
    }
  }
}

describe.each(SYNTAXES)('Protobuf frames of columns of random %s schemas', (syntax) => {
  it('columns are written as the encoder of values writes their rows, and read back unchanged', () => {
    const counts = { exact: 0, read: 0 };
    onSchemas(syntax, runs(150), (message, next) => {
      const compiled = compileProto(message, undefined);
      const payloads = payloadsOf(message, next);
      const all = [...payloads, null, ...payloads.map((payload) => mutated(payload, next))];
      const batch = batchOf(compiled, spansOf(all));
      const { plan, program } = compileProtoEncode(message);
      const encoded = encodedBy(open, program, batch);
      checkStatuses(batch, encoded);
      const rows = new ProtoRows(compiled, true);
      rows.attach(batch);
      for (let row = 0; row < batch.rowCount && isExact(plan); row++) {
        if (batch.status[row] !== COLUMN_STATUS.OK) continue;
        expect(payloadOf(encoded, row)).toEqual(encodedValue(message, rows.value(row)));
        counts.exact++;
      }
      const read = batchOf(compiled, spansOfFrames(encoded));
      expect(bytesOf(read).slice(1)).toEqual(bytesOf(batch).slice(1));
      counts.read += batch.rowCount;
    });
    expect(counts.exact).toBeGreaterThan(runs(50));
    expect(counts.read).toBeGreaterThan(runs(1000));
  });

  it('both kernels give hostile columns the same verdicts, and frames that can be read', () => {
    const seen = new Set<number>();
    onSchemas(syntax, runs(300), (message, next) => {
      const compiled = compileProto(message, undefined);
      const batch = batchOf(compiled, spansOf(payloadsOf(message, next)));
      if (batch.schema.all.length === 0) return;
      corrupt(batch, next);
      const encoded = encodedBy(open, compileProtoEncode(message).program, batch);
      for (const status of encoded.status) seen.add(status);
      const read = batchOf(compiled, spansOfFrames(encoded));
      for (let row = 0; row < encoded.rowCount; row++)
        if (encoded.status[row] === ENCODE_STATUS.OK) expect(read.status[row]).toBe(COLUMN_STATUS.OK);
    });
    expect([...seen].sort()).toEqual(
      expect.arrayContaining([ENCODE_STATUS.OK, ENCODE_STATUS.REFUSED, ENCODE_STATUS.BROKEN]),
    );
  });
});
