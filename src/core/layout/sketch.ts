/** Sketches of the values of a field in the cells of a row; the addon's implementation is
 *  native/kernel/rows/sketch.cc, whose header describes the cells. */
import { AGGREGATE } from './layouts.gen.ts';
import { isSoundTop, mergeTops, TOP_CELLS, usedOfTopHeader } from './top.ts';

/** Greatest number of cells of a sketch, without its header. */
const SKETCH_CELLS_MAX = 512;
/** Cells of a sketch of buckets or distinct values in a row, with its header. */
export const SKETCH_CELLS = 1 + SKETCH_CELLS_MAX;

/** Cells of a sketch of a kind in a row, with its header. */
export const sketchCells = (kind: number): number => (kind === AGGREGATE.TOP ? TOP_CELLS : SKETCH_CELLS);

const USED_MASK = 0xffffn;
const LEVEL_SHIFT = 16n;
const HEADER_MAX = 0xffffffn;
const COUNT_BITS = 46n;
const COUNT_MAX = (1n << COUNT_BITS) - 1n;
const MANTISSA_BITS = 6;
/** Bits of a double below those that name its bucket. */
const BELOW_BITS = BigInt(52 - MANTISSA_BITS);
const LEVEL_MAX = 18;
const EXPONENT = 0x7ffn << 52n;
const BUCKET_MOST = (EXPONENT | (EXPONENT >> 1n)) >> BELOW_BITS;
const REGISTERS = 1;
const REGISTER_BITS = 12n;
const REGISTER_COUNT = 1 << Number(REGISTER_BITS);
const RANK_MAX = 64 - Number(REGISTER_BITS) + 1;

const bits = new BigInt64Array(1);
const double = new Float64Array(bits.buffer);

export const isOfBuckets = (kind: number): boolean =>
  kind === AGGREGATE.BUCKETS || kind === AGGREGATE.BUCKETS_DOUBLE;

export const isSketch = (kind: number): boolean =>
  isOfBuckets(kind) ||
  kind === AGGREGATE.DISTINCT ||
  kind === AGGREGATE.DISTINCT_DOUBLE ||
  kind === AGGREGATE.TOP;

/** A sketch in the cells of a row. */
export type SketchCells = BigInt64Array;

/** Number of cells in use. */
export const usedOf = (cells: SketchCells): number =>
  Math.min(Number((cells[0] as bigint) & USED_MASK), cells.length - 1);
const levelOf = (cells: SketchCells): number => Number(((cells[0] as bigint) >> LEVEL_SHIFT) & 0xffn);

const bucketOf = (cell: bigint): bigint => cell >> COUNT_BITS;
const countOf = (cell: bigint): bigint => cell & COUNT_MAX;
const cellOf = (bucket: bigint, count: bigint): bigint =>
  BigInt.asIntN(64, bucket << COUNT_BITS) | (count < COUNT_MAX ? count : COUNT_MAX);

/** Cell of buckets as the changelog has it: the distance from the bucket before it, and its number
 *  of values less one. */
export function stepOf(cells: SketchCells, i: number): { readonly step: bigint; readonly number: bigint } {
  const [bucket, number] = [bucketOf(cells[i] as bigint), countOf(cells[i] as bigint) - 1n];
  if (i > 1) return { step: bucket - bucketOf(cells[i - 1] as bigint) - 1n, number };
  return { step: BigInt.asUintN(64, (bucket << 1n) ^ (bucket >> 63n)), number };
}

/** The reverse of stepOf. A cell that cannot be one has no values, so that it is not sound. */
export function cellOfStep(cells: SketchCells, i: number, step: bigint, number: bigint): bigint {
  const isFirst = i === 1;
  const before = isFirst ? 0n : bucketOf(cells[i - 1] as bigint);
  const bucket = before + (isFirst ? (step >> 1n) ^ -(step & 1n) : BigInt.asIntN(64, step) + 1n);
  const limit = 1n << (63n - COUNT_BITS);
  const values = BigInt.asUintN(64, number + 1n);
  return bucket < -limit || bucket >= limit || values > COUNT_MAX ? 0n : cellOf(bucket, values);
}

/** Header of a sketch in the changelog. Returns undefined for one that no sketch of the kind has.
 */
export function usedOfHeader(kind: number, header: bigint): number | undefined {
  if (kind === AGGREGATE.TOP) return usedOfTopHeader(header);
  const used = Number(header & USED_MASK);
  return header > HEADER_MAX || used > SKETCH_CELLS_MAX ? undefined : used;
}

function assign(cells: SketchCells, list: readonly bigint[], level: number): void {
  cells.fill(0n);
  cells.set(list, 1);
  cells[0] = BigInt(list.length) | (BigInt(level) << LEVEL_SHIFT);
}

const listOf = (cells: SketchCells): bigint[] => [...cells.subarray(1, 1 + usedOf(cells))];

/** Bits of a double without the differences that a user does not mean: one zero, and one NaN. */
function plainBits(value: number): bigint {
  double[0] = value === 0 ? 0 : value;
  return Number.isNaN(value) ? 0x7ff8n << 48n : (bits[0] as bigint);
}

/** Bucket of a value at level 0. Values below the least normal double are zero. */
function bucketOfValue(value: number): bigint {
  const plain = plainBits(value);
  const magnitude = plain & (2n ** 63n - 1n);
  if ((magnitude & EXPONENT) === 0n) return 0n;
  const bucket = magnitude >> BELOW_BITS;
  return plain < 0n ? ~bucket : bucket;
}

/** Joins cells of one level, and raises the level until they fit. */
function joinBuckets(cells: SketchCells, lists: readonly (readonly bigint[])[], level: number): void {
  const counts = new Map<bigint, bigint>();
  for (const cell of lists.flat())
    counts.set(bucketOf(cell), (counts.get(bucketOf(cell)) ?? 0n) + countOf(cell));
  let list = [...counts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([bucket, count]) => cellOf(bucket, count));
  if (list.length > SKETCH_CELLS_MAX && level < LEVEL_MAX) {
    joinBuckets(cells, [coarser(list, 1)], level + 1);
    return;
  }
  list = list.slice(0, SKETCH_CELLS_MAX);
  assign(cells, list, level);
}

const coarser = (list: readonly bigint[], by: number): readonly bigint[] =>
  list.map((cell) => cellOf(bucketOf(cell) >> BigInt(Math.min(by, LEVEL_MAX)), countOf(cell)));

/** Number of cells in use below a cell. */
function countBelow(cells: SketchCells, cell: bigint): number {
  let [from, to] = [0, usedOf(cells)];
  while (from < to) {
    const middle = (from + to) >>> 1;
    if ((cells[1 + middle] as bigint) < cell) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** Inserts a cell behind `place` others. REQUIRES: there is room */
function insert(cells: SketchCells, place: number, cell: bigint): void {
  cells.copyWithin(2 + place, 1 + place, 1 + usedOf(cells));
  cells[1 + place] = cell;
  cells[0] = (cells[0] as bigint) + 1n;
}

/** True if adding the cells one by one costs less than a merge of both lists. */
const isFew = (from: SketchCells, into: SketchCells): boolean => usedOf(from) * 8 <= usedOf(into) + 8;

function mergeBuckets(from: SketchCells, into: SketchCells): void {
  if (isFew(from, into) && levelOf(from) <= levelOf(into)) {
    for (const cell of listOf(from)) addBucket(bucketOf(cell), levelOf(from), countOf(cell), into);
    return;
  }
  const level = Math.max(levelOf(from), levelOf(into));
  const lists = [into, from].map((cells) => coarser(listOf(cells), level - levelOf(cells)));
  joinBuckets(into, lists, level);
}

/** Adds values of a bucket of some level, at most that of the sketch. */
function addBucket(bucket: bigint, level: number, count: bigint, into: SketchCells): void {
  const [cell] = coarser([cellOf(bucket, count)], levelOf(into) - level) as [bigint];
  const place = countBelow(into, cellOf(bucketOf(cell), 0n));
  const found = into[1 + place] as bigint;
  if (place < usedOf(into) && bucketOf(found) === bucketOf(cell))
    into[1 + place] = cellOf(bucketOf(cell), countOf(found) + count);
  else if (usedOf(into) < SKETCH_CELLS_MAX) insert(into, place, cell);
  else joinBuckets(into, [listOf(into), [cell]], levelOf(into));
}

/** A bijection, so that two integers have two hashes: the finalizer of MurmurHash3. */
function mix(value: bigint): bigint {
  let x = BigInt.asUintN(64, value);
  x = BigInt.asUintN(64, (x ^ (x >> 33n)) * 0xff51afd7ed558ccdn);
  x = BigInt.asUintN(64, (x ^ (x >> 33n)) * 0xc4ceb9fe1a85ec53n);
  return BigInt.asIntN(64, x ^ (x >> 33n));
}

const registersOf = (cells: SketchCells): Uint8Array =>
  new Uint8Array(cells.buffer, cells.byteOffset + 8, SKETCH_CELLS_MAX * 8);

function register(hash: bigint, registers: Uint8Array): void {
  const plain = BigInt.asUintN(64, hash);
  const rest = BigInt.asUintN(64, plain << REGISTER_BITS);
  const rank = rest === 0n ? RANK_MAX : 64 - rest.toString(2).length + 1;
  const at = Number(plain >> (64n - REGISTER_BITS));
  registers[at] = Math.max(registers[at] as number, rank);
}

/** Adds hashes: as they are if they fit, else as registers. */
function addHashes(hashes: readonly bigint[], into: SketchCells): void {
  if (levelOf(into) === 0 && hashes.length <= SKETCH_CELLS_MAX - usedOf(into)) {
    for (const hash of hashes) {
      const place = countBelow(into, hash);
      if (place === usedOf(into) || into[1 + place] !== hash) insert(into, place, hash);
    }
    return;
  }
  if (levelOf(into) === 0) {
    const all = new Set([...listOf(into), ...hashes]);
    const isExact = all.size <= SKETCH_CELLS_MAX;
    assign(into, isExact ? [...all].sort((a, b) => (a < b ? -1 : 1)) : [], 0);
    if (isExact) return;
    into[0] = BigInt(SKETCH_CELLS_MAX) | (BigInt(REGISTERS) << LEVEL_SHIFT);
    for (const hash of all) register(hash, registersOf(into));
    return;
  }
  for (const hash of hashes) register(hash, registersOf(into));
}

function mergeHashes(from: SketchCells, into: SketchCells): void {
  if (levelOf(from) === 0) {
    addHashes(listOf(from), into);
    return;
  }
  const hashes = levelOf(into) === 0 ? listOf(into) : [];
  if (levelOf(into) === 0) assign(into, [], 0);
  into[0] = from[0] as bigint;
  const [registers, others] = [registersOf(into), registersOf(from)];
  for (let i = 0; i < registers.length; i++)
    registers[i] = Math.max(registers[i] as number, others[i] as number);
  for (const hash of hashes) register(hash, registers);
}

/** Adds a value: the bits of a cell, and the same as a double. REQUIRES: the kind is not TOP */
export function addToSketch(kind: number, cells: SketchCells, value: bigint, asDouble: number): void {
  if (kind === AGGREGATE.BUCKETS) addBucket(bucketOfValue(Number(value)), 0, 1n, cells);
  else if (kind === AGGREGATE.BUCKETS_DOUBLE) addBucket(bucketOfValue(asDouble), 0, 1n, cells);
  else if (kind === AGGREGATE.DISTINCT) addHashes([mix(value)], cells);
  else addHashes([mix(plainBits(asDouble))], cells);
}

export function mergeSketches(kind: number, from: SketchCells, into: SketchCells): void {
  if (kind === AGGREGATE.TOP) mergeTops(from, into);
  else if (isOfBuckets(kind)) mergeBuckets(from, into);
  else mergeHashes(from, into);
}

/** True if values can produce these cells. */
export function isSoundSketch(kind: number, cells: SketchCells): boolean {
  if (kind === AGGREGATE.TOP) return isSoundTop(cells);
  const header = cells[0] as bigint;
  if (header < 0n || usedOfHeader(kind, header) === undefined) return false;
  const [list, level] = [listOf(cells), levelOf(cells)];
  if (cells.subarray(1 + list.length).some((cell) => cell !== 0n)) return false;
  if (isOfBuckets(kind)) {
    const [most, least] = [BUCKET_MOST >> BigInt(level), ~BUCKET_MOST >> BigInt(level)];
    return (
      level <= LEVEL_MAX &&
      list.every((cell, i) => {
        const bucket = bucketOf(cell);
        const isNext = i === 0 || bucketOf(list[i - 1] as bigint) < bucket;
        return isNext && countOf(cell) > 0n && bucket <= most && bucket >= least;
      })
    );
  }
  if (level === 0) return list.every((cell, i) => i === 0 || (list[i - 1] as bigint) < cell);
  return (
    level === REGISTERS &&
    list.length === SKETCH_CELLS_MAX &&
    registersOf(cells).every((rank) => rank <= RANK_MAX)
  );
}

/** Relative error of a value that buckets of a level give: half of the width of a bucket. */
function errorOfLevel(level: number): number {
  const ratio =
    level <= MANTISSA_BITS ? 1 + 2 ** (level - MANTISSA_BITS) : 2 ** (2 ** (level - MANTISSA_BITS));
  return Number.isFinite(ratio) ? (ratio - 1) / (ratio + 1) : 1;
}

/** The value of a bucket with the least relative error to all of its values. */
function valueOfBucket(bucket: bigint, level: number): number {
  const index = bucket < 0n ? ~bucket : bucket;
  bits[0] = index << (BELOW_BITS + BigInt(level));
  const least = double[0] as number;
  const sign = bucket < 0n ? -1 : 1;
  if (least === 0 || !Number.isFinite(least)) return sign * least;
  // The width of the bucket relative to its least value: from the mantissa alone, or whole powers
  // of two.
  bits[0] = ((bits[0] as bigint) & ((1n << 52n) - 1n)) | (1023n << 52n);
  const mantissa = double[0] as number;
  const ratio =
    level <= MANTISSA_BITS
      ? 1 + 2 ** (level - MANTISSA_BITS) / mantissa
      : 2 ** (2 ** (level - MANTISSA_BITS));
  const factor = Number.isFinite(ratio) ? (2 * ratio) / (1 + ratio) : 2;
  return sign * Math.min(least * factor, Number.MAX_VALUE);
}

export interface Quantile {
  readonly value: number;
  /** Bound of the relative error. */
  readonly error: number;
}

/** Value of rank ceil(share * number of values), at least 1: a share of the values lie at or below
 *  it. The share is `numerator / denominator`. REQUIRES: the sketch has values */
export function quantileOf(cells: SketchCells, numerator: bigint, denominator: bigint): Quantile {
  const [list, level] = [listOf(cells), levelOf(cells)];
  const all = list.reduce((sum, cell) => sum + countOf(cell), 0n);
  const rank = (all * numerator + denominator - 1n) / denominator;
  let seen = 0n;
  for (const cell of list) {
    seen += countOf(cell);
    if (seen >= rank) return { value: valueOfBucket(bucketOf(cell), level), error: errorOfLevel(level) };
  }
  return { value: Number.NaN, error: errorOfLevel(level) };
}

/** Standard error of a number of distinct values that registers estimate. */
const REGISTERS_ERROR = 1.04 / Math.sqrt(REGISTER_COUNT);

/** sigma and tau of Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches"
 *  (arXiv:1702.01284): the parts of the estimate for registers without a value, and full ones. */
function sigma(share: number): number {
  if (share === 1) return Number.POSITIVE_INFINITY;
  let [x, y, z] = [share, 1, share];
  for (let before = -1; before !== z; ) {
    x *= x;
    before = z;
    z += x * y;
    y += y;
  }
  return z;
}

function tau(share: number): number {
  if (share === 0 || share === 1) return 0;
  let [x, y, z] = [share, 1, 1 - share];
  for (let before = -1; before !== z; ) {
    x = Math.sqrt(x);
    before = z;
    y *= 0.5;
    z -= (1 - x) * (1 - x) * y;
  }
  return z / 3;
}

function estimate(registers: Uint8Array): number {
  const m = REGISTER_COUNT;
  const ranks = new Array<number>(RANK_MAX + 1).fill(0);
  for (const rank of registers)
    ranks[Math.min(rank, RANK_MAX)] = (ranks[Math.min(rank, RANK_MAX)] as number) + 1;
  let z = m * tau(1 - (ranks[RANK_MAX] as number) / m);
  for (let rank = RANK_MAX - 1; rank >= 1; rank--) z = 0.5 * (z + (ranks[rank] as number));
  z += m * sigma((ranks[0] as number) / m);
  return ((m / (2 * Math.LN2)) * m) / z;
}

export interface Distinct {
  readonly value: bigint;
  /** 0: exact; else the standard error, relative to the value. */
  readonly error: number;
}

/** Number of distinct values. */
export function distinctOf(cells: SketchCells): Distinct {
  if (levelOf(cells) === 0) return { value: BigInt(usedOf(cells)), error: 0 };
  return { value: BigInt(Math.round(estimate(registersOf(cells)))), error: REGISTERS_ERROR };
}
