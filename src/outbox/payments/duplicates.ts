/** Deliveries, and injected duplicates of them for tests. A duplicate passes through the same code
 *  as any delivery.
 *
 *  If a record is duplicated, and if in the same batch or a later one, is a function of the seed
 *  and the record's offset. A run is therefore reproducible at any batch size. A duplicate for a
 *  later batch is only in memory: it is lost when the process ends.
 */
import { threefry4x32 } from '../../core/random/threefry.ts';
import type { PaymentEvent } from './event.ts';

export interface Delivery {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
  /** Bytes of the batch; a duplicate for a later batch has its own copy. */
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly event: PaymentEvent;
  /** True for an injected duplicate. */
  readonly injected: boolean;
  /** Digest under which the record is parked; only in a redrive. */
  readonly digest?: Uint8Array;
}

export type CopyPlan = 'none' | 'same_batch' | 'later_batch';

const TWO_32 = 4_294_967_296;
/** Last word of the key, so that these draws are independent of other draws from the same seed. */
const STREAM = 0x6475706c;

/** Reused output of the generator for one record. */
const words = new Uint32Array(4);

/** Decides if a record is duplicated.
 *  @param rate share of the records that are duplicated, 0 to 1 */
export function copyPlan(seed: number, rate: number, partition: number, offset: bigint): CopyPlan {
  if (rate <= 0) return 'none';
  threefry4x32(
    seed >>> 0,
    Math.floor(seed / TWO_32) >>> 0,
    0,
    STREAM,
    Number(offset & 0xffff_ffffn),
    Number((offset >> 32n) & 0xffff_ffffn),
    partition,
    0,
    words,
  );
  if ((words[0] as number) >= rate * TWO_32) return 'none';
  return ((words[1] as number) & 1) === 0 ? 'same_batch' : 'later_batch';
}

/** Duplicates a delivery; `owned` copies its bytes out of the batch. */
function copyOf({ topic, partition, offset, key, value, event }: Delivery, owned: boolean): Delivery {
  const bytes = (from: Uint8Array | null): Uint8Array | null =>
    from === null || !owned ? from : from.slice();
  return { topic, partition, offset, key: bytes(key), value: bytes(value), event, injected: true };
}

export class DuplicateInjector {
  private readonly seed: number;
  private readonly rate: number;
  private waiting: Delivery[] = [];

  constructor(seed: number, rate: number) {
    this.seed = seed;
    this.rate = rate;
  }

  /** Number of duplicates for a later batch. */
  get waitingCount(): number {
    return this.waiting.length;
  }

  /** Returns the batch with its duplicates: each after its record, and last those scheduled by
   *  earlier batches. */
  inject(deliveries: readonly Delivery[]): readonly Delivery[] {
    if (this.rate <= 0) return deliveries;
    const out: Delivery[] = [];
    const later: Delivery[] = [];
    for (const delivery of deliveries) {
      out.push(delivery);
      const plan = copyPlan(this.seed, this.rate, delivery.partition, delivery.offset);
      if (plan === 'same_batch') out.push(copyOf(delivery, false));
      else if (plan === 'later_batch') later.push(copyOf(delivery, true));
    }
    for (const copy of this.waiting) out.push(copy);
    this.waiting = later;
    return out;
  }

  /** Returns the scheduled duplicates as a batch of their own. */
  rest(): readonly Delivery[] {
    const { waiting } = this;
    this.waiting = [];
    return waiting;
  }

  /** Drops the duplicates of revoked partitions. */
  forget(partitions: ReadonlySet<number>): void {
    this.waiting = this.waiting.filter((copy) => !partitions.has(copy.partition));
  }
}
