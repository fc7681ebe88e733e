/** Numbers of events of each value of a field, for the most frequent ones; the addon's
 *  implementation is native/kernel/rows/top.cc, whose header describes the cells. */

/** Greatest number of cells, without the header. */
const TOP_CELLS_MAX = 2000;
/** Cells of these sketches in a row, with the header. */
export const TOP_CELLS = 1 + TOP_CELLS_MAX;
/** Greatest number of bytes of a text: its length is a byte. */
export const TOP_TEXT_BYTES_MAX = 255;

const HEAD_CELLS = 2;
const TEXT_CELLS_MAX = 32;
const APPROXIMATE = 64;
const ROWS = 4;
const WIDTH = 256;
const COUNTERS = ROWS * WIDTH;
const COUNT_BITS = 48n;
const COUNT_MAX = (1n << COUNT_BITS) - 1n;
const MANTISSA_BITS = 10;
const USED_MASK = 0xffffn;
const LEVEL_SHIFT = 16n;

type Cells = BigInt64Array;

/** A value with its number of events and the least priority of these. */
interface Entry {
  readonly hash: bigint;
  readonly priority: number;
  readonly count: bigint;
  /** Without the zeros behind it. */
  readonly text: readonly bigint[];
}

/** Content of a sketch. */
interface Content {
  /** Cells of the longest text that was added; 0: the sketch is empty. */
  readonly textCells: number;
  /** Undefined: the entries are exact. */
  readonly counters: readonly bigint[] | undefined;
  readonly entries: readonly Entry[];
}

const usedOf = (cells: Cells): number => Math.min(Number((cells[0] as bigint) & USED_MASK), TOP_CELLS_MAX);
const levelOf = (cells: Cells): number => Number(((cells[0] as bigint) >> LEVEL_SHIFT) & 0xffn);
const strideOf = (textCells: number): number => HEAD_CELLS + textCells;
const sampledOf = (textCells: number): number => Math.floor((TOP_CELLS_MAX - COUNTERS) / strideOf(textCells));
const exactMax = (textCells: number): number => Math.floor(TOP_CELLS_MAX / strideOf(textCells));
function addCounts(a: bigint, b: bigint): bigint {
  const sum = (a & COUNT_MAX) + (b & COUNT_MAX);
  return sum > COUNT_MAX ? COUNT_MAX : sum;
}

function mix(value: bigint): bigint {
  let x = BigInt.asUintN(64, value);
  x = BigInt.asUintN(64, (x ^ (x >> 33n)) * 0xff51afd7ed558ccdn);
  x = BigInt.asUintN(64, (x ^ (x >> 33n)) * 0xc4ceb9fe1a85ec53n);
  return x ^ (x >> 33n);
}

/** Priority of an event by its place: 6 bits of exponent and 10 of mantissa of a hash. */
function priorityOf(partition: bigint, offset: bigint): number {
  const hash = mix(BigInt.asUintN(64, offset) ^ mix(partition + 1n));
  if (hash === 0n) return 0;
  const digits = hash.toString(2);
  const below = digits.slice(1, 1 + MANTISSA_BITS).padEnd(MANTISSA_BITS, '0');
  return ((digits.length - 1) << MANTISSA_BITS) | Number.parseInt(below, 2);
}

function compareTexts(a: readonly bigint[], b: readonly bigint[]): number {
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    const [x, y] = [a[i] ?? 0n, b[i] ?? 0n];
    if (x !== y) return x < y ? -1 : 1;
  }
  return 0;
}
const byValue = (a: Entry, b: Entry): number =>
  a.hash === b.hash ? compareTexts(a.text, b.text) : a.hash < b.hash ? -1 : 1;
const byPriority = (a: Entry, b: Entry): number => a.priority - b.priority || byValue(a, b);

function readEntry(cells: Cells, at: number, textCells: number): Entry {
  const marks = BigInt.asUintN(64, cells[at + 1] as bigint);
  const text = [...cells.subarray(at + HEAD_CELLS, at + HEAD_CELLS + textCells)];
  while (text.at(-1) === 0n) text.pop();
  return {
    hash: cells[at] as bigint,
    priority: Number(marks >> COUNT_BITS),
    count: marks & COUNT_MAX,
    text,
  };
}

function contentOf(cells: Cells): Content {
  const level = levelOf(cells);
  const textCells = level & (APPROXIMATE - 1);
  const isApproximate = (level & APPROXIMATE) !== 0;
  const first = 1 + (isApproximate ? COUNTERS : 0);
  const entries: Entry[] = [];
  for (let at = first; at <= usedOf(cells); at += strideOf(textCells))
    entries.push(readEntry(cells, at, textCells));
  return { textCells, counters: isApproximate ? [...cells.subarray(1, first)] : undefined, entries };
}

/** Writes a content, which may have more than fits. */
function assign(cells: Cells, { textCells, counters, entries }: Content): void {
  const isExact = counters === undefined && entries.length <= exactMax(textCells);
  const counted = isExact ? [] : (counters ?? count(entries, new Array<bigint>(COUNTERS).fill(0n)));
  const kept = isExact
    ? [...entries].sort(byValue)
    : [...entries].sort(byPriority).slice(0, sampledOf(textCells));
  cells.fill(0n);
  cells.set(counted, 1);
  let at = 1 + counted.length;
  for (const { hash, priority, count: number, text } of kept) {
    const marks = (BigInt(priority) << COUNT_BITS) | (isExact ? number : 0n);
    cells.set([hash, BigInt.asIntN(64, marks), ...text], at);
    at += strideOf(textCells);
  }
  cells[0] = BigInt(at - 1) | (BigInt(textCells | (isExact ? 0 : APPROXIMATE)) << LEVEL_SHIFT);
}

const counterOf = (hash: bigint, row: number): number =>
  row * WIDTH + Number((BigInt.asUintN(64, hash) >> BigInt(8 * row)) & BigInt(WIDTH - 1));

function count(entries: readonly Entry[], counters: readonly bigint[]): readonly bigint[] {
  const counted = [...counters];
  for (const entry of entries)
    for (let row = 0; row < ROWS; row++) {
      const at = counterOf(entry.hash, row);
      counted[at] = addCounts(counted[at] as bigint, entry.count);
    }
  return counted;
}

function join(a: Content, b: Content): Content {
  const entries = new Map<string, Entry>();
  for (const entry of [...a.entries, ...b.entries]) {
    const key = `${entry.hash} ${entry.text.join()}`;
    const known = entries.get(key);
    entries.set(
      key,
      known === undefined
        ? entry
        : {
            ...entry,
            priority: Math.min(entry.priority, known.priority),
            count: addCounts(entry.count, known.count),
          },
    );
  }
  const both = {
    textCells: Math.max(a.textCells, b.textCells),
    counters: undefined,
    entries: [...entries.values()],
  };
  if (a.counters === undefined && b.counters === undefined) return both;
  const zeros = new Array<bigint>(COUNTERS).fill(0n);
  const [x, y] = [a, b].map((one) => one.counters ?? count(one.entries, zeros)) as [bigint[], bigint[]];
  return { ...both, counters: x.map((one, i) => addCounts(one, y[i] as bigint)) };
}

/** Adds one event without rewriting the sketch. False if that is not possible. REQUIRES: texts of
 *  the sketch are as long */
function addInPlace(into: Cells, entry: Entry): boolean {
  const level = levelOf(into);
  const textCells = level & (APPROXIMATE - 1);
  const stride = strideOf(textCells);
  if ((level & APPROXIMATE) !== 0) {
    // Most events only count: their priority is above that of all entries.
    const last = readEntry(into, 1 + usedOf(into) - stride, textCells);
    if (byPriority(entry, last) < 0) return false;
    for (let row = 0; row < ROWS; row++) {
      const at = 1 + counterOf(entry.hash, row);
      into[at] = addCounts(into[at] as bigint, 1n);
    }
    return true;
  }
  let [from, to] = [0, usedOf(into) / stride];
  while (from < to) {
    const middle = (from + to) >>> 1;
    const at = 1 + middle * stride;
    const known = readEntry(into, at, textCells);
    const order = byValue(known, entry);
    if (order === 0) {
      const priority = BigInt(Math.min(known.priority, entry.priority));
      into[at + 1] = BigInt.asIntN(64, (priority << COUNT_BITS) | addCounts(known.count, 1n));
      return true;
    }
    if (order < 0) from = middle + 1;
    else to = middle;
  }
  return false;
}

/** Adds an event: a value, a hash and a text in `texts` from a cell on, and its place in the log.
 *  Cells that are no value are ignored. */
export function addToTop(into: Cells, texts: Cells, at: bigint, partition: bigint, offset: bigint): void {
  if (at < 0n || at > BigInt(texts.length - 2)) return;
  const first = Number(at) + 1;
  const textCells = Math.floor((Number((texts[first] as bigint) & 0xffn) + 8) / 8);
  if (textCells > texts.length - first) return;
  const text = [...texts.subarray(first, first + textCells)];
  while (text.at(-1) === 0n) text.pop();
  const priority = priorityOf(partition, offset);
  const entry = { hash: texts[first - 1] as bigint, priority, count: 1n, text };
  if (textCells <= (levelOf(into) & (APPROXIMATE - 1)) && addInPlace(into, entry)) return;
  assign(into, join(contentOf(into), { textCells, counters: undefined, entries: [entry] }));
}

/** True if the cells are whole entries, whatever they contain. Rows of a damaged page may be
 *  others. */
function isWhole(cells: Cells): boolean {
  const [used, level] = [usedOf(cells), levelOf(cells)];
  const textCells = level & (APPROXIMATE - 1);
  if (used === 0) return level === 0;
  if (level > (APPROXIMATE | TEXT_CELLS_MAX) || textCells === 0 || textCells > TEXT_CELLS_MAX) return false;
  const first = (level & APPROXIMATE) !== 0 ? COUNTERS : 0;
  const number = (used - first) / strideOf(textCells);
  if (used < first || !Number.isInteger(number)) return false;
  return first > 0 ? number === sampledOf(textCells) : number <= exactMax(textCells);
}

export function mergeTops(from: Cells, into: Cells): void {
  if (usedOf(from) === 0 || !isWhole(from)) return;
  if (!isWhole(into)) into.fill(0n);
  assign(into, join(contentOf(into), contentOf(from)));
}

/** Header of a sketch in the changelog. Returns undefined for one that no sketch has. */
export function usedOfTopHeader(header: bigint): number | undefined {
  const used = Number(header & USED_MASK);
  return header > 0xffffffn || used > TOP_CELLS_MAX ? undefined : used;
}

/** Least number of cells of the text at a cell; undefined if it is none. */
function plainTextCells(cells: Cells, at: number, textCells: number): number | undefined {
  const bytes = new Uint8Array(cells.buffer, cells.byteOffset + at * 8, textCells * 8);
  const length = bytes[0] as number;
  const own = Math.floor((length + 8) / 8);
  const isPlain = length > 0 && own <= textCells && bytes.subarray(1 + length).every((byte) => byte === 0);
  return isPlain ? own : undefined;
}

/** True if events can produce these cells. */
export function isSoundTop(cells: Cells): boolean {
  const header = cells[0] as bigint;
  if (header < 0n || usedOfTopHeader(header) === undefined) return false;
  const [used, level] = [usedOf(cells), levelOf(cells)];
  if (cells.subarray(1 + used).some((cell) => cell !== 0n) || !isWhole(cells)) return false;
  if (used === 0) return true;
  const textCells = level & (APPROXIMATE - 1);
  const isApproximate = (level & APPROXIMATE) !== 0;
  const first = isApproximate ? COUNTERS : 0;
  const stride = strideOf(textCells);
  const { counters = [], entries } = contentOf(cells);
  if (counters.some((one) => one < 0n || one > COUNT_MAX)) return false;
  const lengths = entries.map((_, i) =>
    plainTextCells(cells, 1 + first + i * stride + HEAD_CELLS, textCells),
  );
  if (lengths.includes(undefined)) return false;
  if (entries.some((entry) => (entry.count === 0n) !== isApproximate)) return false;
  const order = isApproximate ? byPriority : byValue;
  if (entries.some((entry, i) => i > 0 && order(entries[i - 1] as Entry, entry) >= 0)) return false;
  return isApproximate || Math.max(...(lengths as number[])) === textCells;
}

export interface TopValue {
  /** Bytes of the value. */
  readonly bytes: Uint8Array;
  readonly count: bigint;
}

export interface Top {
  /** Values with the most events, in descending order; of equal numbers the lesser bytes first. */
  readonly values: readonly TopValue[];
  /** 0: exact; else no number is too low, and with a probability of 98 % a number is at most this
   *  many events too high. */
  readonly error: number;
}

/** Share of all events by which a number of a Count-Min sketch is too high with a probability of at
 *  most e^-ROWS, about 1.8 %. Source: Cormode and Muthukrishnan, "An improved data stream summary:
 *  the count-min sketch and its applications". */
const ERROR_SHARE = Math.E / WIDTH;

/** The `limit` values with the most events. */
export function topOf(cells: Cells, limit: number): Top {
  const { counters, entries } = contentOf(cells);
  const numberOf = ({ hash, count: exact }: Entry): bigint => {
    if (counters === undefined) return exact;
    const found = Array.from({ length: ROWS }, (_, row) => counters[counterOf(hash, row)] as bigint);
    return found.reduce((a, b) => (a < b ? a : b));
  };
  const values = entries
    .map((entry) => {
      const text = new BigInt64Array(TEXT_CELLS_MAX);
      text.set(entry.text);
      const bytes = new Uint8Array(text.buffer);
      return { bytes: bytes.subarray(1, 1 + (bytes[0] as number)), count: numberOf(entry) };
    })
    .sort((a, b) => (a.count === b.count ? Buffer.compare(a.bytes, b.bytes) : a.count > b.count ? -1 : 1))
    .slice(0, limit);
  const all = (counters ?? []).slice(0, WIDTH).reduce((sum, one) => sum + one, 0n);
  return { values, error: Math.ceil(Number(all) * ERROR_SHARE) };
}
