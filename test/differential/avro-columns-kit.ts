/** Payloads decoded to columns, compared with the resolving decoder of single payloads. */
import { expect } from 'vitest';
import { loadColumnKernels } from '../../src/addon/codec.ts';
import { ColumnBatch } from '../../src/core/columns/batch.ts';
import { type ColumnKernels, decodeColumns, type PayloadSpans } from '../../src/core/columns/kernel.ts';
import { findMillraceError } from '../../src/core/errors.ts';
import { COLUMN_SLOT, COLUMN_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { avroDecoder } from '../../src/formats/avro/codec/decoder.ts';
import { encodeAvro } from '../../src/formats/avro/codec/encoder.ts';
import { type CompiledColumns, compileColumns } from '../../src/formats/avro/columns/compile.ts';
import { AvroRows } from '../../src/formats/avro/columns/rows.ts';
import type { AvroNode } from '../../src/formats/avro/syntax/tree.ts';
import { type AvroSchema, parseSchema } from '../../src/formats/schema.ts';
import { datumOf, type Next } from '../property/registry-avro-decoder-kit.ts';

/** Kernels that every test runs. */
export const columnKernels: readonly ColumnKernels[] = [
  loadColumnKernels('reference'),
  loadColumnKernels('native'),
];

export const parse = (json: unknown): AvroSchema =>
  parseSchema('AVRO', JSON.stringify(json), { lenient: true, unvalidated: true }) as AvroSchema;

/** Payloads one after the other, with foreign bytes around each. */
export function spansOf(payloads: ReadonlyArray<Uint8Array | null>): PayloadSpans {
  const parts: Uint8Array[] = [];
  const start = new Uint32Array(payloads.length);
  const length = new Int32Array(payloads.length);
  let at = 0;
  payloads.forEach((payload, i) => {
    parts.push(Buffer.of(0x02, 0x80), payload ?? Buffer.alloc(0), Buffer.of(0x02));
    start[i] = at + 2;
    length[i] = payload?.length ?? -1;
    at += 3 + (payload?.length ?? 0);
  });
  return { bytes: Buffer.concat(parts), start, length };
}

interface Verdict {
  readonly status: number;
  /** Byte of the payload where reading failed; 0 for a readable payload. */
  readonly at: number;
  readonly value?: unknown;
}

const STATUS: Readonly<Record<string, number>> = {
  malformed_payload: COLUMN_STATUS.MALFORMED,
  incompatible_schema: COLUMN_STATUS.INCOMPATIBLE,
};

export function oracle(
  reader: AvroNode,
  writer: AvroNode,
): (bytes: Uint8Array, start: number, length: number) => Verdict {
  const decode = avroDecoder(reader, writer);
  return (bytes, start, length) => {
    if (length < 0) return { status: COLUMN_STATUS.NULL_VALUE, at: 0 };
    try {
      return { status: COLUMN_STATUS.OK, at: 0, value: decode(bytes as Buffer, start, start + length) };
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (error === undefined) throw thrown;
      return { status: STATUS[error.code] as number, at: error.details['at'] as number };
    }
  };
}

/** Decodes all payloads into a batch that starts small, so that it grows on the way. */
function columnsOf(kernels: ColumnKernels, { program }: CompiledColumns, spans: PayloadSpans): ColumnBatch {
  const decoder = kernels.openAvro(program);
  const batch = ColumnBatch.create(program.schema, Math.max(1, spans.start.length));
  expect(decodeColumns(decoder, spans, 0, spans.start.length, batch)).toBe(spans.start.length);
  decoder.close();
  return batch;
}

/** Every used byte of a batch, by column and slot. */
export function bytesOf(batch: ColumnBatch): string[] {
  const all = batch.schema.all.flatMap((column, index) =>
    Object.values(COLUMN_SLOT)
      .slice(0, 3)
      .map(
        (slot) =>
          `${index} ${column.kind} ${slot} ${Buffer.from(batch.bytesOf(index, slot)).toString('hex')}`,
      ),
  );
  const rows = batch.rowCount;
  return [
    `${rows} rows: ${batch.status.subarray(0, rows).join()} at ${batch.errorAt.subarray(0, rows).join()}`,
    ...all,
  ];
}

/** Number of rows by verdict. */
export interface Counts {
  ok: number;
  malformed: number;
  incompatible: number;
}
export const noCounts = (): Counts => ({ ok: 0, malformed: 0, incompatible: 0 });

/** Checks that columns of the payloads have the verdicts, positions and values of the oracle. */
export function compare(
  kernels: readonly ColumnKernels[],
  reader: AvroNode,
  writer: AvroNode,
  payloads: ReadonlyArray<Uint8Array | null>,
  counts: Counts,
): void {
  const compiled = compileColumns(reader, writer, new Map());
  const spans = spansOf(payloads);
  const judge = oracle(reader, writer);
  const verdicts = payloads.map((_, i) =>
    judge(spans.bytes, spans.start[i] as number, spans.length[i] as number),
  );
  let first: string[] | undefined;
  for (const one of kernels) {
    const batch = columnsOf(one, compiled, spans);
    const { status, errorAt } = batch;
    const rows = new AvroRows(compiled);
    rows.attach(batch);
    verdicts.forEach((verdict, row) => {
      expect({ status: status[row], at: errorAt[row] }).toEqual({ status: verdict.status, at: verdict.at });
      if (verdict.status === COLUMN_STATUS.OK) expect(rows.value(row)).toStrictEqual(verdict.value);
    });
    for (const index of compiled.program.schema.topIndex) expect(batch.lengthOf(index)).toBe(payloads.length);
    first ??= bytesOf(batch);
    expect(bytesOf(batch)).toEqual(first);
  }
  for (const { status } of verdicts) {
    if (status === COLUMN_STATUS.OK) counts.ok++;
    else if (status === COLUMN_STATUS.MALFORMED) counts.malformed++;
    else if (status === COLUMN_STATUS.INCOMPATIBLE) counts.incompatible++;
  }
}

/** Random events of a schema; none of a record that contains itself without end. */
export function eventsOf(writer: AvroNode, next: Next, count: number): Buffer[] {
  try {
    return Array.from({ length: count }, () => encodeAvro(writer, datumOf(writer, next)));
  } catch (thrown) {
    if (thrown instanceof RangeError) return [];
    throw thrown;
  }
}

const HOSTILE = [0x00, 0x01, 0x02, 0x7f, 0x80, 0xff];

/** Changes a few bytes of a payload, cuts it, or makes it longer. */
export function mutated(payload: Buffer, next: Next): Buffer {
  const bytes = Buffer.from(payload);
  const kind = next(5);
  if (kind === 0) return bytes.subarray(0, next(bytes.length + 1));
  if (kind === 1) return Buffer.concat([bytes, Buffer.of(next(256))]);
  for (let changes = 1 + next(3); changes > 0 && bytes.length > 0; changes--)
    bytes[next(bytes.length)] = next(2) === 0 ? (HOSTILE[next(HOSTILE.length)] as number) : next(256);
  return bytes;
}
