/** Event generator in TypeScript, written for clarity; the addon's kernel writes the same bytes.
 *  Definition: docs/reference/generator.md.
 *
 *  All numbers are doubles and 32-bit words: event numbers and times stay below 2^53, and 64-bit
 *  fields are written as two words. The order of every floating-point operation is part of the
 *  definition. */

import { coreError } from '../../core/errors.ts';
import type { ArrivalQueue } from '../../core/layout/arrival-queue.ts';
import {
  ARRIVAL_STATE,
  ARRIVAL_WHEEL,
  EVENT,
  EVENT_STATUS,
  GEN,
  GEN_PARAMS,
  GEN_STREAM,
  SPAN,
  TIMESTAMP_TYPE,
  XXH32,
} from '../../core/layout/layouts.gen.ts';
import { threefry4x32 } from '../../core/random/threefry.ts';
import type { ZipfTable } from '../../core/random/zipf.ts';
import type { GenKernels } from '../gen-surface.ts';
import { demandHeader, demandRows, rowsOf } from './check.ts';
import { XXH32_KEPT_WORD, XXH32_STRIPE_BYTES, xxh32Update } from './xxh32.ts';

const TWO_21 = 2_097_152;
const TWO_32 = 4_294_967_296;
const TWO_53 = 9_007_199_254_740_992;
const PAD_BYTES = EVENT.BYTES - EVENT.PAD;

const P = {
  seedLow: GEN_PARAMS.SEED_LOW / 8,
  seedHigh: GEN_PARAMS.SEED_HIGH / 8,
  accountBaseLow: GEN_PARAMS.ACCOUNT_BASE_LOW / 8,
  accountBaseHigh: GEN_PARAMS.ACCOUNT_BASE_HIGH / 8,
  powerWhole: GEN_PARAMS.POWER_WHOLE / 8,
  powerFraction: GEN_PARAMS.POWER_FRACTION / 8,
  valueMin: GEN_PARAMS.VALUE_MIN / 8,
  valueSpan: GEN_PARAMS.VALUE_SPAN / 8,
  baseTs: GEN_PARAMS.BASE_TS / 8,
  perMs: GEN_PARAMS.PER_MS / 8,
  typicalBelow: GEN_PARAMS.TYPICAL_BELOW / 8,
  tailBelow: GEN_PARAMS.TAIL_BELOW / 8,
  typicalMaxMs: GEN_PARAMS.TYPICAL_MAX_MS / 8,
  tailMaxMs: GEN_PARAMS.TAIL_MAX_MS / 8,
  stragglerMaxMs: GEN_PARAMS.STRAGGLER_MAX_MS / 8,
  count: GEN_PARAMS.COUNT / 8,
} as const;

const S = {
  clock: ARRIVAL_STATE.CLOCK / 8,
  nextSeq: ARRIVAL_STATE.NEXT_SEQ / 8,
  pending: ARRIVAL_STATE.PENDING / 8,
  freeHead: ARRIVAL_STATE.FREE_HEAD / 8,
  emitted: ARRIVAL_STATE.EMITTED / 8,
  poolFull: ARRIVAL_STATE.POOL_FULL / 8,
} as const;

const { SLOTS, SLOT_BITS } = ARRIVAL_WHEEL;
const SLOT_MASK = SLOTS - 1;
/** Milliseconds of one slot of level 2. */
const LEVEL_2_MS = 2 ** (2 * SLOT_BITS);

const DELAY_MAX_MS = 2 ** 40;
const PER_MS_MIN = 1e-9;

/** Cells of the parameters with the range of each; valueSpan is at least 1. */
const RANGES: ReadonlyArray<readonly [cell: number, least: number, most: number]> = [
  [P.seedLow, 0, TWO_32 - 1],
  [P.seedHigh, 0, TWO_32 - 1],
  [P.accountBaseLow, 0, TWO_32 - 1],
  [P.accountBaseHigh, 0, TWO_32 - 1],
  [P.powerWhole, 0, 16],
  [P.powerFraction, 0, TWO_32 - 1],
  [P.valueMin, -TWO_53, TWO_53],
  [P.valueSpan, 1, TWO_53],
  [P.baseTs, 0, TWO_53],
  [P.perMs, PER_MS_MIN, TWO_53],
  [P.typicalBelow, 0, TWO_32],
  [P.tailBelow, 0, TWO_32],
  [P.typicalMaxMs, 0, DELAY_MAX_MS],
  [P.tailMaxMs, 0, DELAY_MAX_MS],
  [P.stragglerMaxMs, 0, DELAY_MAX_MS],
  [P.count, 0, TWO_53],
];

function demand(holds: boolean, name: string): void {
  if (!holds) throw coreError('out_of_range', `${name}: a number outside its range`);
}

function demandParams(params: Float64Array): void {
  demand(params.length === GEN_PARAMS.BYTES / 8, 'params');
  for (const [cell, least, most] of RANGES) {
    const value = params[cell] as number;
    demand(value >= least && value <= most, 'params');
  }
}

function demandSeqs(seqs: Float64Array, count: number): void {
  demand(count <= seqs.length, 'into');
  for (let i = 0; i < count; i++) {
    const seq = seqs[i] as number;
    demand(seq >= 0 && seq < TWO_53, 'into');
  }
}

/** Words of the last draw. */
const words = new Uint32Array(4);

function draw(params: Float64Array, stream: number, seq: number, attempt: number): void {
  const low = params[P.seedLow] as number;
  const high = params[P.seedHigh] as number;
  threefry4x32(low, high, stream, GEN.KEY, seq >>> 0, Math.floor(seq / TWO_32), attempt, 0, words);
}

/** Rank of the account of an event, from 1. */
function rankOf(params: Float64Array, zipf: ZipfTable, seq: number): number {
  for (let attempt = 0; ; attempt++) {
    draw(params, GEN_STREAM.ACCOUNT, seq, attempt);
    const rank = zipf.rankOf(words);
    if (rank !== 0) return rank;
  }
}

/** Event time in ms after the first event. */
function sinceBase(params: Float64Array, seq: number): number {
  return Math.floor(seq / (params[P.perMs] as number));
}

function delayOf(params: Float64Array, seq: number): number {
  draw(params, GEN_STREAM.DELAY, seq, 0);
  const kind = words[0] as number;
  const u = (words[1] as number) / TWO_32;
  const typicalMax = params[P.typicalMaxMs] as number;
  const tailMax = params[P.tailMaxMs] as number;
  if (kind < (params[P.typicalBelow] as number)) return Math.floor(u * u * (typicalMax + 1));
  if (kind < (params[P.tailBelow] as number))
    return typicalMax + Math.floor(u * u * u * (tailMax - typicalMax + 1));
  return tailMax + Math.floor(u * ((params[P.stragglerMaxMs] as number) - tailMax + 1));
}

/** Fields of one event as 32-bit halves; reused for every event. */
const fields = {
  accountLow: 0,
  accountHigh: 0,
  valueLow: 0,
  valueHigh: 0,
  tsLow: 0,
  tsHigh: 0,
  seqLow: 0,
  seqHigh: 0,
  noiseAt: 0,
};

function computeFields(params: Float64Array, zipf: ZipfTable, seq: number): void {
  const low = (params[P.accountBaseLow] as number) + (rankOf(params, zipf, seq) - 1);
  fields.accountLow = low >>> 0;
  fields.accountHigh = ((params[P.accountBaseHigh] as number) + Math.floor(low / TWO_32)) >>> 0;
  draw(params, GEN_STREAM.EVENT, seq, 0);
  const u = ((words[0] as number) * TWO_21 + ((words[1] as number) >>> 11)) / TWO_53;
  const value = (params[P.valueMin] as number) + Math.floor(u * (params[P.valueSpan] as number));
  fields.valueLow = value >>> 0;
  fields.valueHigh = Math.floor(value / TWO_32) >>> 0;
  const eventTs = (params[P.baseTs] as number) + sinceBase(params, seq);
  fields.tsLow = eventTs >>> 0;
  fields.tsHigh = Math.floor(eventTs / TWO_32) >>> 0;
  fields.seqLow = seq >>> 0;
  fields.seqHigh = Math.floor(seq / TWO_32) >>> 0;
  fields.noiseAt = (words[2] as number) >>> 16;
}

/** Appends a pool row to the list of the timing wheel that holds its arrival, seen from `clock`. */
function link(queue: ArrivalQueue, row: number, arrival: number, clock: number): void {
  let list: number;
  if (Math.floor(arrival / SLOTS) === Math.floor(clock / SLOTS)) list = arrival % SLOTS;
  else if (Math.floor(arrival / LEVEL_2_MS) === Math.floor(clock / LEVEL_2_MS)) {
    list = SLOTS + (Math.floor(arrival / SLOTS) & SLOT_MASK);
  } else list = 2 * SLOTS + (Math.floor(arrival / LEVEL_2_MS) & SLOT_MASK);
  const { head, tail } = queue.wheel;
  queue.pool.next[row] = -1;
  if (head[list] === -1) head[list] = row;
  else queue.pool.next[tail[list] as number] = row;
  tail[list] = row;
}

/** Cascades the rows of one slot to the level below, in their order. */
function cascade(queue: ArrivalQueue, list: number, clock: number): void {
  let row = queue.wheel.head[list] as number;
  queue.wheel.head[list] = -1;
  while (row !== -1) {
    const next = queue.pool.next[row] as number;
    link(queue, row, queue.pool.arrival[row] as number, clock);
    row = next;
  }
}

function advance(queue: ArrivalQueue, clock: number): void {
  if (clock % LEVEL_2_MS === 0)
    cascade(queue, 2 * SLOTS + (Math.floor(clock / LEVEL_2_MS) & SLOT_MASK), clock);
  if (clock % SLOTS === 0) cascade(queue, SLOTS + (Math.floor(clock / SLOTS) & SLOT_MASK), clock);
}

/** Next millisecond after `clock` at which something happens: an arrival, a slot to cascade, or the
 *  event due at `dueMs`. */
function nextStop(queue: ArrivalQueue, clock: number, dueMs: number): number {
  const { head } = queue.wheel;
  let at = clock + 1;
  while (at % SLOTS !== 0 && at < dueMs && head[at % SLOTS] === -1) at++;
  if (at % SLOTS !== 0) return at;
  while (
    at % LEVEL_2_MS !== 0 &&
    at + SLOTS <= dueMs &&
    head[SLOTS + (Math.floor(at / SLOTS) & SLOT_MASK)] === -1
  ) {
    at += SLOTS;
  }
  return at;
}

export const referenceGenKernels: GenKernels = {
  name: 'reference',

  genArrivals(params, queue, seqs) {
    demandParams(params);
    const { state } = queue;
    const count = params[P.count] as number;
    const { head } = queue.wheel;
    let clock = state[S.clock] as number;
    let nextSeq = state[S.nextSeq] as number;
    let pending = state[S.pending] as number;
    let freeHead = state[S.freeHead] as number;
    let poolFull = 0;
    let out = 0;
    while (out < seqs.length) {
      if (pending === 0) {
        if (nextSeq >= count) break;
        // The queue is empty, so no list needs a cascade and the clock may jump.
        clock = sinceBase(params, nextSeq);
      }
      while (nextSeq < count && sinceBase(params, nextSeq) <= clock) {
        if (freeHead === -1) {
          poolFull = 1;
          break;
        }
        const row = freeHead;
        freeHead = queue.pool.next[row] as number;
        const arrival = sinceBase(params, nextSeq) + delayOf(params, nextSeq);
        queue.pool.seq[row] = nextSeq;
        queue.pool.arrival[row] = arrival;
        link(queue, row, arrival, clock);
        nextSeq++;
        pending++;
      }
      if (poolFull === 1) break;
      const list = clock % SLOTS;
      let row = head[list] as number;
      while (row !== -1 && out < seqs.length) {
        const next = queue.pool.next[row] as number;
        seqs[out++] = queue.pool.seq[row] as number;
        queue.pool.next[row] = freeHead;
        freeHead = row;
        row = next;
        pending--;
      }
      head[list] = row;
      if (row === -1) {
        clock = nextStop(
          queue,
          clock,
          nextSeq < count ? sinceBase(params, nextSeq) : Number.POSITIVE_INFINITY,
        );
        advance(queue, clock);
      }
    }
    state[S.clock] = clock;
    state[S.nextSeq] = nextSeq;
    state[S.pending] = pending;
    state[S.freeHead] = freeHead;
    state[S.emitted] = (state[S.emitted] as number) + out;
    state[S.poolFull] = poolFull;
    return out;
  },

  genRecords(params, zipf, noise, seqs, count, into) {
    demandParams(params);
    demand(noise.length === GEN.NOISE_BYTES, 'noise');
    demandSeqs(seqs, count);
    demandHeader(into, 'into');
    demandRows(Math.min(into.rowCapacity, Math.floor(into.arenaCapacity / EVENT.BYTES)), count, 'into');
    const c = into.columns;
    const { arena } = c;
    const view = new DataView(into.buffer, arena.byteOffset, count * EVENT.BYTES);
    for (let row = 0, at = 0; row < count; row++, at += EVENT.BYTES) {
      computeFields(params, zipf, seqs[row] as number);
      view.setUint32(at + EVENT.ACCOUNT_ID, fields.accountLow, true);
      view.setUint32(at + EVENT.ACCOUNT_ID + 4, fields.accountHigh, true);
      view.setUint32(at + EVENT.VALUE, fields.valueLow, true);
      view.setUint32(at + EVENT.VALUE + 4, fields.valueHigh, true);
      view.setUint32(at + EVENT.EVENT_TS, fields.tsLow, true);
      view.setUint32(at + EVENT.EVENT_TS + 4, fields.tsHigh, true);
      view.setUint32(at + EVENT.SEQ, fields.seqLow, true);
      view.setUint32(at + EVENT.SEQ + 4, fields.seqHigh, true);
      arena.set(noise.subarray(fields.noiseAt, fields.noiseAt + PAD_BYTES), at + EVENT.PAD);
      c.keyStart[row] = at + EVENT.ACCOUNT_ID;
      c.valueStart[row] = at;
      c.headersStart[row] = at + EVENT.BYTES;
    }
    c.offset.fill(BigInt(SPAN.NO_OFFSET), 0, count);
    c.timestamp.fill(0n, 0, count);
    c.topicIndex.fill(0, 0, count);
    c.partition.fill(-1, 0, count);
    c.keyLength.fill(8, 0, count);
    c.valueLength.fill(EVENT.BYTES, 0, count);
    c.headersLength.fill(0, 0, count);
    c.timestampType.fill(TIMESTAMP_TYPE.NONE, 0, count);
    c.flags.fill(0, 0, count);
    into.rowCount = count;
    into.arenaUsed = count * EVENT.BYTES;
  },

  genEvents(params, zipf, seqs, count, into) {
    demandParams(params);
    demandSeqs(seqs, count);
    demandHeader(into, 'into');
    demandRows(into.rowCapacity, count, 'into');
    const halves = (column: BigUint64Array | BigInt64Array): Uint32Array =>
      new Uint32Array(into.buffer, column.byteOffset, count * 2);
    const account = halves(into.columns.accountId);
    const value = halves(into.columns.value);
    const eventTs = halves(into.columns.eventTs);
    const seq = halves(into.columns.seq);
    for (let row = 0; row < count; row++) {
      computeFields(params, zipf, seqs[row] as number);
      account[2 * row] = fields.accountLow;
      account[2 * row + 1] = fields.accountHigh;
      value[2 * row] = fields.valueLow;
      value[2 * row + 1] = fields.valueHigh;
      eventTs[2 * row] = fields.tsLow;
      eventTs[2 * row + 1] = fields.tsHigh;
      seq[2 * row] = fields.seqLow;
      seq[2 * row + 1] = fields.seqHigh;
    }
    into.columns.status.fill(EVENT_STATUS.OK, 0, count);
    into.rowCount = count;
  },

  genDigest(state, records) {
    const rows = rowsOf(records, 'records');
    demand(state.length === XXH32.WORDS && (state[XXH32_KEPT_WORD] as number) < XXH32_STRIPE_BYTES, 'state');
    const { valueStart, valueLength, arena } = records.columns;
    for (let row = 0; row < rows; row++) {
      const start = valueStart[row] as number;
      const length = valueLength[row] as number;
      if (length <= 0) continue;
      if (start + length > arena.length) throw coreError('out_of_range', 'records: a span leaves its buffer');
      xxh32Update(state, arena, start, length);
    }
  },
};
