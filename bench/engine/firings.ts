/** Synthetic firings in memory, with rows like those of a minute of events. */
import type { FiredBounds, Firing } from '../../src/engine/window/firing.ts';

export const ROW_BYTES = 64;
const ROW_WORDS = ROW_BYTES / 4;
export const MINUTE_MS = 60_000;
const FIRST_MS = 1_750_000_000_000 - (1_750_000_000_000 % MINUTE_MS);
const HIGH = Math.floor(FIRST_MS / 2 ** 32);

/** Creates rows with keys 8 apart, so that lookups of absent keys are possible. */
export function makeRows(count: number, offset: number): Uint8Array {
  const words = new Uint32Array(count * ROW_WORDS);
  let noise = 0x9e37_79b9;
  const next = (): number => {
    noise ^= noise << 13;
    noise ^= noise >>> 17;
    noise ^= noise << 5;
    return noise >>> 0;
  };
  for (let row = 0; row < count; row++) {
    const at = row * ROW_WORDS;
    const least = next() >>> 12;
    const events = 1 + (next() & 15);
    words[at] = row * 8 + offset;
    words[at + 2] = events;
    words[at + 4] = least * events + (next() >>> 12);
    words[at + 8] = least;
    words[at + 10] = least + (next() >>> 12);
    words[at + 12] = (FIRST_MS % 2 ** 32) + (next() % MINUTE_MS);
    words[at + 13] = HIGH;
    words[at + 14] = (FIRST_MS % 2 ** 32) - (next() % MINUTE_MS);
    words[at + 15] = HIGH;
  }
  return new Uint8Array(words.buffer);
}

export class BenchFiring implements Firing {
  readonly bounds: FiredBounds;
  readonly rowsMax: number;
  readonly firedAtMs = performance.now();
  private readonly rows: Uint8Array;
  private at = 0;

  constructor(bounds: FiredBounds, rows: Uint8Array) {
    this.bounds = bounds;
    this.rows = rows;
    this.rowsMax = rows.length / ROW_BYTES;
  }
  async read(into: Uint8Array): Promise<number> {
    const bytes = Math.min(into.length - (into.length % ROW_BYTES), this.rows.length - this.at);
    into.set(this.rows.subarray(this.at, this.at + bytes));
    this.at += bytes;
    return bytes / ROW_BYTES;
  }
  close(): void {}
}

export const minute = (index: number): FiredBounds => ({
  kind: 'window',
  start: FIRST_MS + index * MINUTE_MS,
  end: FIRST_MS + (index + 1) * MINUTE_MS,
});
