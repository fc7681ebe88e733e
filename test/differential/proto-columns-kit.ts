/** Protobuf payloads decoded to columns, compared with the decoder of single payloads. */
import { expect } from 'vitest';
import { ColumnBatch } from '../../src/core/columns/batch.ts';
import { type ColumnKernels, decodeColumns, type PayloadSpans } from '../../src/core/columns/kernel.ts';
import { findMillraceError } from '../../src/core/errors.ts';
import { COLUMN_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { protoDecoder } from '../../src/formats/protobuf/codec/decoder.ts';
import { type CompiledProto, compileProto } from '../../src/formats/protobuf/columns/compile.ts';
import { requestedFields } from '../../src/formats/protobuf/columns/plan.ts';
import { ProtoRows } from '../../src/formats/protobuf/columns/rows.ts';
import type { ProtoMessage } from '../../src/formats/protobuf/tree.ts';
import { bytesOf, spansOf } from './avro-columns-kit.ts';

interface Verdict {
  readonly status: number;
  /** Byte of the payload where reading failed; 0 for a readable payload. */
  readonly at: number;
  readonly value?: unknown;
}

function oracle(message: ProtoMessage): (payload: Uint8Array | null) => Verdict {
  const decode = protoDecoder(message);
  return (payload) => {
    if (payload === null) return { status: COLUMN_STATUS.NULL_VALUE, at: 0 };
    try {
      return { status: COLUMN_STATUS.OK, at: 0, value: decode(Buffer.from(payload), 0, payload.length) };
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (error?.code !== 'malformed_payload') throw thrown;
      return { status: COLUMN_STATUS.MALFORMED, at: error.details['at'] as number };
    }
  };
}

/** Decodes all payloads into a batch that starts small, so that it grows on the way.
 *  @param step payloads of one call */
function columnsOf(
  kernels: ColumnKernels,
  { program }: CompiledProto,
  spans: PayloadSpans,
  step = Math.max(1, spans.start.length),
): ColumnBatch {
  const decoder = kernels.openProtobuf(program);
  const count = spans.start.length;
  const batch = ColumnBatch.create(program.schema, Math.max(1, count));
  for (let at = 0; at < count; at += step) {
    const to = Math.min(count, at + step);
    expect(decodeColumns(decoder, spans, at, to, batch)).toBe(to - at);
  }
  decoder.close();
  return batch;
}

/** Requested parts of a value. */
function reduced(value: unknown, paths: readonly string[]): unknown {
  const whole = value as Readonly<Record<string, unknown>>;
  return Object.fromEntries(Object.entries(whole).filter(([name]) => paths.includes(name)));
}

/** Number of rows by verdict. */
export interface ProtoCounts {
  ok: number;
  malformed: number;
}

/** Checks that columns of the payloads have the verdicts, positions and values of the oracle.
 *  @param fields requested fields of the message; absent: all */
export function compareProto(
  kernels: readonly ColumnKernels[],
  message: ProtoMessage,
  payloads: ReadonlyArray<Uint8Array | null>,
  counts: ProtoCounts,
  fields?: readonly string[],
): void {
  const compiled = compileProto(message, fields && requestedFields(message, fields));
  const spans = spansOf(payloads);
  const verdicts = payloads.map(oracle(message));
  let first: string[] | undefined;
  for (const one of kernels) {
    const batch = columnsOf(one, compiled, spans);
    const { status, errorAt } = batch;
    const rows = new ProtoRows(compiled, fields === undefined);
    rows.attach(batch);
    verdicts.forEach((verdict, row) => {
      expect({ status: status[row], at: errorAt[row] }).toEqual({ status: verdict.status, at: verdict.at });
      if (verdict.status !== COLUMN_STATUS.OK) return;
      const expected = fields === undefined ? verdict.value : reduced(verdict.value, fields);
      expect(rows.value(row)).toStrictEqual(expected);
    });
    for (const index of compiled.program.schema.topIndex) expect(batch.lengthOf(index)).toBe(payloads.length);
    first ??= bytesOf(batch);
    expect(bytesOf(batch)).toEqual(first);
    // After payloads in another order, the addon's kernel tries others of the call in another way.
    if (one.name === 'native') expect(bytesOf(columnsOf(one, compiled, spans, 1))).toEqual(first);
  }
  for (const { status } of verdicts) {
    if (status === COLUMN_STATUS.OK) counts.ok++;
    else if (status === COLUMN_STATUS.MALFORMED) counts.malformed++;
  }
}
