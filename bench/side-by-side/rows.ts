/** Results of any engine as rows of ten words, collected once each, with a digest that does not
 *  depend on their order. Equal sets of rows have equal digests; different ones have with a
 *  probability of about 2^-64.
 *
 *  A row has account, start, end, count and sum as 64-bit integers, low word first. Engines that
 *  read a part of a topic again after a kill write some rows twice; equal repeats are one row, and
 *  a repeat with another count or sum is a conflict. */
import { readdirSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';

export const ROW_WORDS = 10;
const ROW_BYTES = 4 * ROW_WORDS;
/** Words of account, start and end, which identify a row. */
const KEY_WORDS = 6;
const COUNT_AT = 6;
const SUM_AT = 8;
const ROWS_A_READ = 65_536;
const LANES: readonly (readonly [seed: number, factor: number])[] = [
  [0x9e3779b1, 0x85ebca77],
  [0xc2b2ae3d, 0x27d4eb2f],
];
const TWO_32 = 4_294_967_296;

/** Totals of a set of rows. */
export interface Results {
  readonly rows: number;
  /** Sum of the counts. */
  readonly count: number;
  /** Sum of the sums, modulo 2^64. */
  readonly sum: string;
  readonly digest: string;
}

function hashOf(words: Uint32Array, at: number, length: number, seed: number, factor: number): number {
  let hash = seed;
  for (let word = at; word < at + length; word++) {
    hash = Math.imul((hash ^ (words[word] as number)) | 0, factor);
    hash ^= hash >>> 15;
  }
  return hash >>> 0;
}

export class RowsDigest {
  private rows = 0;
  private count = 0;
  private sumLow = 0;
  private sumHigh = 0;
  private readonly lanes = new Uint32Array(LANES.length);

  add(words: Uint32Array, at: number): void {
    this.rows++;
    this.count += (words[at + COUNT_AT] as number) + (words[at + COUNT_AT + 1] as number) * TWO_32;
    const low = this.sumLow + (words[at + SUM_AT] as number);
    this.sumLow = low % TWO_32;
    this.sumHigh = (this.sumHigh + (words[at + SUM_AT + 1] as number) + (low >= TWO_32 ? 1 : 0)) % TWO_32;
    for (const [lane, [seed, factor]] of LANES.entries())
      this.lanes[lane] = (this.lanes[lane] as number) + hashOf(words, at, ROW_WORDS, seed, factor);
  }

  results(): Results {
    const sum = (BigInt(this.sumHigh) << 32n) | BigInt(this.sumLow);
    const digest = [...this.lanes].map((lane) => lane.toString(16).padStart(8, '0')).join('');
    return { rows: this.rows, count: this.count, sum: `${BigInt.asIntN(64, sum)}`, digest };
  }
}

/** Set of rows by account, start and end. */
export class RowSet {
  /** Repeated rows with the same count and sum. */
  repeats = 0;
  /** Repeated rows with another count or sum. */
  conflicts = 0;
  private readonly digest = new RowsDigest();
  private size = 0;
  private words: Uint32Array;
  /** Number of the row plus one; 0: free. */
  private slots: Uint32Array;

  /** @param rows expected number; more are possible */
  constructor(rows: number) {
    const capacity = 2 ** Math.ceil(Math.log2(Math.max(16, rows)));
    this.words = new Uint32Array(capacity * ROW_WORDS);
    this.slots = new Uint32Array(capacity * 2);
  }

  get rows(): number {
    return this.size;
  }

  results(): Results {
    return this.digest.results();
  }

  add(words: Uint32Array, at: number): void {
    const slot = this.slotOf(words, at);
    const known = this.slots[slot] as number;
    if (known > 0) {
      const own = (known - 1) * ROW_WORDS;
      let isEqual = true;
      for (let word = KEY_WORDS; word < ROW_WORDS; word++)
        isEqual &&= this.words[own + word] === words[at + word];
      if (isEqual) this.repeats++;
      else this.conflicts++;
      return;
    }
    if ((this.size + 1) * ROW_WORDS > this.words.length) {
      this.grow();
      this.add(words, at);
      return;
    }
    this.words.set(words.subarray(at, at + ROW_WORDS), this.size * ROW_WORDS);
    this.slots[slot] = ++this.size;
    this.digest.add(words, at);
  }

  /** Slot of the row, or the free slot where it belongs. */
  private slotOf(words: Uint32Array, at: number): number {
    const mask = this.slots.length - 1;
    let slot = hashOf(words, at, KEY_WORDS, 0x9e3779b1, 0x85ebca77) & mask;
    for (;;) {
      const known = this.slots[slot] as number;
      if (known === 0) return slot;
      const own = (known - 1) * ROW_WORDS;
      let word = 0;
      while (word < KEY_WORDS && this.words[own + word] === words[at + word]) word++;
      if (word === KEY_WORDS) return slot;
      slot = (slot + 1) & mask;
    }
  }

  private grow(): void {
    const old = this.words;
    this.words = new Uint32Array(old.length * 2);
    this.words.set(old);
    this.slots = new Uint32Array(this.slots.length * 2);
    for (let row = 0; row < this.size; row++) this.slots[this.slotOf(this.words, row * ROW_WORDS)] = row + 1;
  }
}

/** Reads the files of rows in a folder (bench/peers/jvm/Rows.java). A row with count 0 is unused
 *  space. */
export async function readRows(folder: string, into: RowSet): Promise<void> {
  const buffer = new Uint32Array(ROWS_A_READ * ROW_WORDS);
  for (const name of readdirSync(folder).filter((one) => /^rows-.*\.bin$/.test(one))) {
    const file = await open(join(folder, name));
    try {
      for (let place = 0; ; ) {
        const { bytesRead } = await file.read(new Uint8Array(buffer.buffer), 0, buffer.byteLength, place);
        const rows = Math.floor(bytesRead / ROW_BYTES);
        if (rows === 0) break;
        for (let row = 0; row < rows; row++) {
          const at = row * ROW_WORDS;
          if (buffer[at + COUNT_AT] !== 0 || buffer[at + COUNT_AT + 1] !== 0) into.add(buffer, at);
        }
        place += rows * ROW_BYTES;
      }
    } finally {
      await file.close();
    }
  }
}

/** Differences between the results of an engine and the expected ones; empty if they are equal. */
export function differencesOf(expected: Results, set: RowSet): readonly string[] {
  const found = set.results();
  const names = ['rows', 'count', 'sum', 'digest'] as const;
  return [
    ...names.flatMap((name) =>
      found[name] === expected[name] ? [] : [`${name}: ${found[name]}, expected ${expected[name]}`],
    ),
    ...(set.conflicts === 0 ? [] : [`${set.conflicts} results were written again with another value`]),
  ];
}
