/** `millrace bench columns`: decodes events of random schema pairs, and mutations of them, to
 *  columns with both kernels, and compares every row with the decoder of single payloads.
 *
 *  Both kernels must write the same bytes. Verdict, failing byte and value of each row must be
 *  those of the decoder. Every disagreement is reported with the seed of its pair. */
import { isDeepStrictEqual } from 'node:util';
import { loadColumnKernels } from '../src/addon/codec.ts';
import { ColumnBatch } from '../src/core/columns/batch.ts';
import { type ColumnKernels, decodeColumns, type PayloadSpans } from '../src/core/columns/kernel.ts';
import { findMillraceError } from '../src/core/errors.ts';
import { COLUMN_SLOT, COLUMN_STATUS } from '../src/core/layout/layouts.gen.ts';
import { avroDecoder } from '../src/formats/avro/codec/decoder.ts';
import { encodeAvro } from '../src/formats/avro/codec/encoder.ts';
import { type CompiledColumns, compileColumns } from '../src/formats/avro/columns/compile.ts';
import { AvroRows } from '../src/formats/avro/columns/rows.ts';
import type { Decode } from '../src/formats/decode.ts';
import { type AvroSchema, parseSchema } from '../src/formats/schema.ts';
import { avroWitnesses } from '../src/registry/proof/avro/witness.ts';
import { Chance } from './compatibility/avro-model.ts';
import { avroPair } from './compatibility/avro-pairs.ts';
import { type Bench, type BenchContext, type BenchResult, result, seriesOf } from './harness.ts';

const FRAMES = 1_000_000;
const FRAMES_SMOKE = 4_000;
const SEED = 1;
/** Events of one pair, and mutations of each event. */
const EVENTS_A_PAIR = 10;
const MUTATIONS_AN_EVENT = 3;
/** Number of disagreements that are reported individually. */
const REPORTED_MAX = 20;
const PROGRESS_PAIRS = 5_000;
/** Least share of the frames with each verdict. */
const SHARE_MIN = { OK: 0.25, MALFORMED: 0.1, INCOMPATIBLE: 0.02 } as const;

/** Some changes make a default that does not fit; registries hold such texts. */
const LENIENT = { lenient: true, unvalidated: true };

const HOSTILE = [0x00, 0x01, 0x02, 0x7f, 0x80, 0xff];

/** Changes a few bytes of a payload, cuts it, or makes it longer. */
function mutated(payload: Buffer, chance: Chance): Buffer {
  const kind = chance.below(5);
  if (kind === 0) return payload.subarray(0, chance.below(payload.length + 1));
  if (kind === 1) return Buffer.concat([payload, Buffer.of(chance.below(256))]);
  const bytes = Buffer.from(payload);
  for (let changes = 1 + chance.below(3); changes > 0 && bytes.length > 0; changes--)
    bytes[chance.below(bytes.length)] = chance.maybe(0.5) ? chance.pick(HOSTILE) : chance.below(256);
  return bytes;
}

function spansOf(payloads: readonly Buffer[]): PayloadSpans {
  const start = new Uint32Array(payloads.length);
  const length = new Int32Array(payloads.length);
  let at = 0;
  payloads.forEach((payload, i) => {
    start[i] = at;
    length[i] = payload.length;
    at += payload.length;
  });
  return { bytes: Buffer.concat(payloads), start, length };
}

function framesOf(writer: AvroSchema, chance: Chance): Buffer[] {
  const random = (): number => chance.next();
  const events: Buffer[] = [];
  for (const datum of avroWitnesses(writer.tree, { limit: EVENTS_A_PAIR, random })) {
    events.push(encodeAvro(writer.tree, datum));
    if (events.length >= EVENTS_A_PAIR) break;
  }
  return events.flatMap((event) => [
    event,
    ...Array.from({ length: MUTATIONS_AN_EVENT }, () => mutated(event, chance)),
  ]);
}

/** Every byte of the columns that is in use, and the verdicts. */
function usedBytes(batch: ColumnBatch): Buffer {
  const slots = [COLUMN_SLOT.VALIDITY, COLUMN_SLOT.OFFSETS, COLUMN_SLOT.VALUES];
  const rows = batch.rowCount;
  return Buffer.concat([
    batch.status.subarray(0, rows),
    new Uint8Array(batch.buffer, 0, rows * Uint32Array.BYTES_PER_ELEMENT),
    ...batch.schema.all.flatMap((_, index) => slots.map((slot) => batch.bytesOf(index, slot))),
  ]);
}

function decoded(kernels: ColumnKernels, { program }: CompiledColumns, spans: PayloadSpans): ColumnBatch {
  const decoder = kernels.openAvro(program);
  const batch = ColumnBatch.create(program.schema, spans.start.length);
  decodeColumns(decoder, spans, 0, spans.start.length, batch);
  decoder.close();
  return batch;
}

interface Verdict {
  readonly status: number;
  readonly at: number;
  readonly value?: unknown;
}

function verdictOf(decode: Decode, payload: Buffer): Verdict {
  try {
    return { status: COLUMN_STATUS.OK, at: 0, value: decode(payload, 0, payload.length) };
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    const status = error.code === 'malformed_payload' ? COLUMN_STATUS.MALFORMED : COLUMN_STATUS.INCOMPATIBLE;
    return { status, at: Number(error.details['at']) };
  }
}

/** Number of frames with each COLUMN_STATUS. */
type Counts = Record<number, number>;

/** Describes the first disagreement of a pair; undefined if there is none. */
function judge(
  kernels: readonly [ColumnKernels, ColumnKernels],
  reader: AvroSchema,
  writer: AvroSchema,
  frames: readonly Buffer[],
  counts: Counts,
): string | undefined {
  const compiled = compileColumns(reader.tree, writer.tree, new Map());
  const spans = spansOf(frames);
  const [batch, other] = kernels.map((one) => decoded(one, compiled, spans)) as [ColumnBatch, ColumnBatch];
  if (!usedBytes(batch).equals(usedBytes(other))) return 'the kernels write different bytes';
  const rows = new AvroRows(compiled);
  rows.attach(batch);
  const { status, errorAt } = batch;
  const decode = avroDecoder(reader.tree, writer.tree);
  for (const [row, frame] of frames.entries()) {
    const verdict = verdictOf(decode, frame);
    counts[verdict.status] = (counts[verdict.status] ?? 0) + 1;
    const shown = frame.toString('hex');
    if (status[row] !== verdict.status || errorAt[row] !== verdict.at)
      return `${shown} has status ${status[row]} at ${errorAt[row]}; the decoder: ${verdict.status} at ${verdict.at}`;
    if (verdict.status === COLUMN_STATUS.OK && !isDeepStrictEqual(rows.value(row), verdict.value))
      return `${shown} has another value than the decoder reads`;
  }
  return undefined;
}

type Goal = { readonly valueAtLeast: number } | { readonly valueAtMost: number };

function count(metric: string, unit: string, value: number, goal?: Goal): BenchResult {
  const ours = seriesOf([value]);
  return result({ metric, unit, ours, better: 'more', ...(goal === undefined ? {} : { goal }) });
}

function measure(context: BenchContext): BenchResult[] {
  const wanted = context.cases ?? (context.smoke ? FRAMES_SMOKE : FRAMES);
  const seed = context.seed ?? SEED;
  const kernels = [loadColumnKernels('native'), loadColumnKernels('reference')] as const;
  const counts: Counts = {};
  let frames = 0;
  let pairs = 0;
  let disagreements = 0;
  for (; frames < wanted && !context.drain.aborted; pairs++) {
    const pair = avroPair(seed + pairs);
    const [reader, writer] = [pair.reader, pair.writer].map((text) => parseSchema('AVRO', text, LENIENT)) as [
      AvroSchema,
      AvroSchema,
    ];
    const all = framesOf(writer, new Chance(seed + pairs));
    // A record that contains itself without end has no event.
    if (all.length === 0) continue;
    frames += all.length;
    const disagreement = judge(kernels, reader, writer, all, counts);
    if (disagreement !== undefined && disagreements++ < REPORTED_MAX)
      context.say(`pair ${seed + pairs}: ${disagreement}`);
    if ((pairs + 1) % PROGRESS_PAIRS === 0)
      context.say(`${pairs + 1} pairs, ${frames} frames, ${disagreements} disagree`);
  }
  const share = (name: keyof typeof SHARE_MIN): BenchResult =>
    count(
      `share of frames with status ${name}`,
      'of 1',
      (counts[COLUMN_STATUS[name]] ?? 0) / Math.max(1, frames),
      { valueAtLeast: SHARE_MIN[name] },
    );
  return [
    count('pairs on which kernels and decoder disagree', 'pairs', disagreements, { valueAtMost: 0 }),
    count('frames decoded and compared', 'frames', frames),
    count(`pairs, seeds from ${seed}`, 'pairs', pairs),
    share('OK'),
    share('MALFORMED'),
    share('INCOMPATIBLE'),
  ];
}

export const bench: Bench = {
  name: 'columns',
  summary:
    'columns of mutated events against the decoder of single payloads; they must agree (-cases, -seed)',
  run(context) {
    // Many frames are refused; their stack traces are not needed.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    try {
      return Promise.resolve(measure(context));
    } finally {
      Error.stackTraceLimit = stackTraceLimit;
    }
  },
};
