/** Order-independent digest of a whole result: equal results have equal digests.
 *
 *  128 bits: the sum modulo 2^128 of the first 16 bytes of the SHA-256 of each item. Items are rows
 *  (tag 0) and the counters of a partition (tag 1), as little-endian 64-bit cells after the tag. A
 *  sum instead of an exclusive or, so that duplicate rows do not cancel out. */
import { hash } from 'node:crypto';
import type { PartitionCounters } from './rules.ts';

/** A row of any result type: times are numbers or BigInts. */
export interface DigestRow {
  readonly accountId: bigint;
  readonly windowStart: bigint | number;
  readonly windowEnd: bigint | number;
  readonly count: bigint;
  readonly sum: bigint;
  readonly min: bigint;
  readonly max: bigint;
  readonly lastUpdateTs: bigint;
  readonly overflow: boolean;
}

const TAG_ROW = 0;
const TAG_COUNTERS = 1;
const CELLS_MAX = 9;
const DIGEST_BITS = 128;

export class ResultDigest {
  private readonly bytes = Buffer.alloc(1 + 8 * CELLS_MAX);
  private sum = 0n;

  row(row: DigestRow): this {
    return this.item(TAG_ROW, [
      row.accountId,
      BigInt(row.windowStart),
      BigInt(row.windowEnd),
      row.count,
      row.sum,
      row.min,
      row.max,
      row.lastUpdateTs,
      row.overflow ? 1n : 0n,
    ]);
  }

  counters(partition: number, counters: PartitionCounters): this {
    return this.item(TAG_COUNTERS, [
      BigInt(partition),
      counters.consumed,
      counters.accepted,
      counters.droppedLate,
      counters.droppedAfterIdle,
      counters.invalid,
      counters.futureClamped,
    ]);
  }

  /** 32 hexadecimal digits. */
  text(): string {
    return this.sum.toString(16).padStart(DIGEST_BITS / 4, '0');
  }

  private item(tag: number, cells: readonly bigint[]): this {
    this.bytes[0] = tag;
    cells.forEach((cell, i) => {
      this.bytes.writeBigUInt64LE(BigInt.asUintN(64, cell), 1 + 8 * i);
    });
    const digest = hash('sha256', this.bytes.subarray(0, 1 + 8 * cells.length), 'buffer');
    const item = (digest.readBigUInt64LE(8) << 64n) | digest.readBigUInt64LE(0);
    this.sum = BigInt.asUintN(DIGEST_BITS, this.sum + item);
    return this;
  }
}

export function digestOf(rows: Iterable<DigestRow>, counters: readonly PartitionCounters[]): string {
  const digest = new ResultDigest();
  for (const row of rows) digest.row(row);
  counters.forEach((counts, partition) => {
    digest.counters(partition, counts);
  });
  return digest.text();
}
