/** Deliveries, and copies of them made on purpose: a copy is the same record again and takes the
 *  same way as any other.
 *
 *  Whether a record is copied, and whether the copy comes in the same batch or in a later one, is a
 *  function of the seed and the record's place in the topic, so a run repeats at any batch size. A
 *  copy that waits for a later batch is in memory only: it is not delivered when the process ends
 *  before.
 */
import { threefry4x32 } from '../../core/random/threefry.ts';
import type { PaymentEvent } from './event.ts';

export interface Delivery {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
  /** Borrowed from the batch, but owned in a copy for a later one. */
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly event: PaymentEvent;
  /** A copy made here. */
  readonly injected: boolean;
  /** Of a record that is taken out of the parked ones: what it is parked under. */
  readonly digest?: Uint8Array;
}

export type CopyPlan = 'none' | 'same_batch' | 'later_batch';

const TWO_32 = 4_294_967_296;
/** The key's last word, so that these draws are no other part's draws from the same seed. */
const STREAM = 0x6475706c;

/** Words of the generator that decide for one record; reused. */
const words = new Uint32Array(4);

/** @param rate share of the records that are copied, 0 to 1 */
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

/** The same record again, without its batch where `owned`. */
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

  /** Copies that wait for a later batch. */
  get waitingCount(): number {
    return this.waiting.length;
  }

  /** The batch with its copies: each behind its record, and behind all of them those that waited.
   */
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

  /** The copies that still wait, as a batch of their own. */
  rest(): readonly Delivery[] {
    const { waiting } = this;
    this.waiting = [];
    return waiting;
  }

  /** Copies of these partitions are no longer ours to deliver. */
  forget(partitions: ReadonlySet<number>): void {
    this.waiting = this.waiting.filter((copy) => !partitions.has(copy.partition));
  }
}
