/** Transaction coordinator of the simulated cluster.
 *  Invariants: (1) Only the last initialised producer of a transactional id can write or commit.
 *  (2) The rows of a transaction become visible to read-committed readers all together, when its
 *  end marks are stored, or never. (3) A transaction is decided once. */
import type { Timers } from '../core/clock.ts';
import type { TopicPartition } from '../io/kafka/port.ts';
import { keyOf, type SimTransaction, type StoredRecord } from './broker-log.ts';

/** Part of the cluster that the coordinator uses. */
interface CoordinatorCluster {
  readonly options: { readonly clock: Timers };
  append(at: TopicPartition, record: StoredRecord): void;
  /** Wakes the waiting readers. */
  changed(): void;
  /** Draws the delay until the end marks are stored, in ms. */
  slowness(): number;
}

interface Owner {
  epoch: number;
  current: SimTransaction | undefined;
}

/** Initialised producer of a transactional id. */
export interface Session {
  readonly id: string;
  readonly epoch: number;
  readonly timeoutMs: number;
}

export class Coordinator {
  private readonly cluster: CoordinatorCluster;
  private readonly owners = new Map<string, Owner>();
  /** Transactions without stored end marks; they block read-committed readers. */
  private readonly unstable = new Set<SimTransaction>();

  constructor(cluster: CoordinatorCluster) {
    this.cluster = cluster;
  }

  /** Fences older producers of the id and ends their transaction. */
  async init(id: string, timeoutMs: number): Promise<Session> {
    const owner = this.owners.get(id) ?? { epoch: -1, current: undefined };
    this.owners.set(id, owner);
    const epoch = ++owner.epoch;
    const { current } = owner;
    if (current?.state === 'open') this.decide(current, 'aborted');
    await current?.ended;
    return { id, epoch, timeoutMs };
  }

  isFenced({ id, epoch }: Session): boolean {
    return this.owners.get(id)?.epoch !== epoch;
  }

  /** Returns the transaction of a new row; begins one if none is open. */
  join(session: Session, at: TopicPartition, offset: bigint): SimTransaction {
    const owner = this.owners.get(session.id) as Owner;
    if (owner.current?.state !== 'open') owner.current = this.begin(session);
    const { current } = owner;
    if (!current.unmarked.has(keyOf(at))) current.unmarked.set(keyOf(at), { at, first: offset });
    return current;
  }

  /** Decides the open transaction.
   *  @returns `fenced`, or undefined once the transaction is decided; its end marks may be stored
   *  later */
  end(session: Session, how: 'committed' | 'aborted'): 'fenced' | undefined {
    if (this.isFenced(session)) return 'fenced';
    const current = this.owners.get(session.id)?.current;
    if (current?.state === 'open') this.decide(current, how);
    return undefined;
  }

  /** Returns the last stable offset: the least first offset of an undecided or unmarked transaction
   *  in this partition. */
  firstUnstable(at: TopicPartition): bigint | undefined {
    let least: bigint | undefined;
    for (const { unmarked } of this.unstable) {
      const first = unmarked.get(keyOf(at))?.first;
      if (first !== undefined && (least === undefined || first < least)) least = first;
    }
    return least;
  }

  private begin(session: Session): SimTransaction {
    const transaction: SimTransaction = { state: 'open', unmarked: new Map(), ended: Promise.resolve() };
    this.unstable.add(transaction);
    this.cluster.options.clock.after(
      session.timeoutMs,
      () => {
        if (transaction.state !== 'open') return;
        const owner = this.owners.get(session.id) as Owner;
        if (owner.epoch === session.epoch) owner.epoch++;
        this.decide(transaction, 'aborted');
      },
      'background',
    );
    return transaction;
  }

  private decide(transaction: SimTransaction, how: 'committed' | 'aborted'): void {
    transaction.state = how;
    const delayMs = this.cluster.slowness();
    if (delayMs === 0) this.mark(transaction);
    else
      transaction.ended = new Promise((resolve) => {
        this.cluster.options.clock.after(delayMs, () => {
          this.mark(transaction);
          resolve();
        });
      });
  }

  private mark(transaction: SimTransaction): void {
    this.unstable.delete(transaction);
    for (const { at } of transaction.unmarked.values())
      this.cluster.append(at, {
        timestamp: BigInt(Math.trunc(this.cluster.options.clock.wallNowMs())),
        ...{ key: null, value: null, headers: [], isMark: true },
      });
    transaction.unmarked.clear();
    this.cluster.changed();
  }
}
