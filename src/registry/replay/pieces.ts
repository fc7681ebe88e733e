/** Splits the offsets of a topic into pieces that threads read one after another.
 *  Invariants: (1) each offset of the ranges is in exactly one piece; (2) a piece has offsets of
 *  several partitions only if each partition's part is smaller than a piece. */
import type { TopicPartition } from '../../io/kafka/port.ts';

/** Offsets `from` to `to` (exclusive) of a partition. */
export interface OffsetRange extends TopicPartition {
  readonly from: bigint;
  readonly to: bigint;
}

export type Piece = readonly OffsetRange[];

/** Pieces for each thread. A piece costs a seek and what the client had fetched beyond its end;
 *  more pieces balance threads of unequal speed. */
const PIECES_A_THREAD = 4;
/** Least number of offsets of a piece. */
const PIECE_OFFSETS_MIN = 10_000n;

const sizeOf = ({ from, to }: OffsetRange): bigint => to - from;

/** @param ranges offsets to read; empty ranges are left out */
export function piecesOf(ranges: readonly OffsetRange[], threads: number): readonly Piece[] {
  const total = ranges.reduce((sum, range) => sum + (sizeOf(range) > 0n ? sizeOf(range) : 0n), 0n);
  const wanted = BigInt(threads * PIECES_A_THREAD);
  const even = (total + wanted - 1n) / wanted;
  const size = even < PIECE_OFFSETS_MIN ? PIECE_OFFSETS_MIN : even;
  const pieces: OffsetRange[][] = [];
  let open: OffsetRange[] = [];
  let room = size;
  const close = (): void => {
    if (open.length > 0) pieces.push(open);
    open = [];
    room = size;
  };
  for (const range of ranges) {
    for (let from = range.from; from < range.to; ) {
      const rest = range.to - from;
      const to = from + (rest < room ? rest : room);
      open.push({ topic: range.topic, partition: range.partition, from, to });
      room -= to - from;
      from = to;
      if (room === 0n) close();
    }
  }
  close();
  return pieces;
}
