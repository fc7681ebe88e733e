/** Auditor of the simulated system: checks the invariants of the requirements at each step, from
 *  the tables and the log alone.
 *
 *  Safety, after each step: one order for each key and one charge for each order; all answers to a
 *  key are equal and name a committed order; no record without its outbox row; no row is marked
 *  before its record is in the log; no offset is committed before the effects of the records below
 *  it. Liveness, at the end: every request is answered, every order is published, marked and
 *  charged.
 */
import type { StoredRecord } from '../../../src/sim/broker-log.ts';
import type { OutboxDatabase } from '../relay-world/database.ts';
import type { StoredCharge, StoredOrder, Tables } from './tables.ts';

export interface Reply {
  readonly code: number;
  readonly orderId: string;
  readonly body: string;
}

const text = new TextDecoder();

/** Returns the message id of a record, from its headers. */
function messageIdOf({ headers }: StoredRecord): string {
  const found = headers.find(([name]) => name === 'ce_id');
  return text.decode(found?.[1] ?? new Uint8Array());
}

export class Auditor {
  readonly violations: string[] = [];
  private readonly orderOfKey = new Map<string, string>();
  private readonly replies = new Map<string, Reply>();
  /** Records of each message. */
  private readonly recordsOf = new Map<string, StoredRecord[]>();
  /** Records of each partition, in log order. */
  private readonly logs = new Map<number, StoredRecord[]>();
  private readonly committed = new Map<number, bigint>();
  private outbox: OutboxDatabase | undefined;
  private tables: Tables | undefined;

  watch(outbox: OutboxDatabase, tables: Tables): void {
    this.outbox = outbox;
    this.tables = tables;
  }

  onOrder = (orderId: string, order: StoredOrder): void => {
    this.check(!this.orderOfKey.has(order.key), () => `the key ${order.key} has a second order ${orderId}`);
    this.orderOfKey.set(order.key, orderId);
  };

  onCharge = ({ orderId, amountCents }: StoredCharge): void => {
    const order = this.tables?.orders.get(orderId);
    this.check(order !== undefined, () => `the charge of ${orderId} has no order`);
    this.check(order?.amountCents === amountCents, () => `the charge of ${orderId} has another amount`);
    this.check((this.tables?.chargesOf.get(orderId) ?? 0) <= 1, () => `the order ${orderId} is charged twice`);
  };

  onRecord(partition: number, record: StoredRecord): void {
    this.logOf(partition).push(record);
    if (record.isMark === true) return;
    const msgId = messageIdOf(record);
    this.check(this.isInOutbox(record), () => `the record ${msgId} has no outbox row`);
    const records = this.recordsOf.get(msgId);
    if (records === undefined) this.recordsOf.set(msgId, [record]);
    else records.push(record);
  }

  onMark({ msgId, id }: { readonly msgId: string; readonly id: bigint }): void {
    this.check(this.isReadable(msgId), () => `row ${id} was marked before its record was in the log`);
  }

  /** Checks an offset commit: each record below it has its effect, or is parked. */
  onCommit(partition: number, next: bigint): void {
    const log = this.logOf(partition);
    const from = this.committed.get(partition) ?? 0n;
    for (let offset = from; offset < next; offset++) {
      const record = log[Number(offset)] as StoredRecord;
      if (record.isMark === true || record.transaction?.state === 'aborted') continue;
      const orderId = text.decode(record.key ?? undefined);
      this.check(
        this.tables?.chargesOf.has(orderId) === true || this.isParked(partition, offset),
        () => `offset ${next} of partition ${partition} was committed before the charge of ${orderId}`,
      );
    }
    if (next > from) this.committed.set(partition, next);
  }

  onReply(key: string, reply: Reply): void {
    const before = this.replies.get(key);
    this.check(this.orderOfKey.get(key) === reply.orderId, () => `the answer to ${key} names no committed order`);
    this.check(
      before === undefined || (before.code === reply.code && before.body === reply.body),
      () => `the key ${key} got two answers: ${before?.body} and ${reply.body}`,
    );
    this.replies.set(key, reply);
  }

  /** Checks what holds between any two steps. */
  afterStep(): void {
    const { tables } = this;
    if (tables === undefined) return;
    this.check(
      tables.keys.size === tables.orders.size,
      () => `${tables.keys.size} keys and ${tables.orders.size} orders are committed`,
    );
    this.check(
      tables.charges.size <= tables.inbox.size + this.dropped,
      () => `${tables.charges.size} charges and ${tables.inbox.size} inbox rows are committed`,
    );
  }

  /** Inbox rows that an expiry dropped. */
  dropped = 0;

  /** Checks that the system is complete. @param keys keys of the requests that were answered */
  atEnd(keys: Iterable<string>): void {
    const { tables, outbox } = this;
    if (tables === undefined || outbox === undefined) return;
    for (const key of keys)
      this.check(this.orderOfKey.has(key), () => `the key ${key} was answered and has no order`);
    this.check(outbox.pending().length === 0, () => 'rows are pending');
    for (const [orderId, { msgId }] of tables.orders) {
      this.check(this.isReadable(msgId), () => `the order ${orderId} was never published`);
      this.check(tables.chargesOf.get(orderId) === 1, () => `the order ${orderId} is not charged once`);
    }
  }

  /** @param what text of the violation; a function, because nearly all checks hold */
  private check(holds: boolean, what: () => string): void {
    if (!holds && this.violations.length < VIOLATIONS_MAX) this.violations.push(what());
  }

  private isInOutbox({ headers }: StoredRecord): boolean {
    const sequence = headers.find(([name]) => name === 'ce_sequence');
    return this.outbox?.rows.has(BigInt(text.decode(sequence?.[1] ?? undefined))) === true;
  }

  private isParked(partition: number, offset: bigint): boolean {
    return (
      this.tables?.parked.some((row) => row['partition'] === partition && row['offset'] === offset) === true
    );
  }

  /** True if readers of committed records get the message. */
  private isReadable(msgId: string): boolean {
    const records = this.recordsOf.get(msgId) ?? [];
    return records.some(({ transaction }) => (transaction?.state ?? 'committed') === 'committed');
  }

  private logOf(partition: number): StoredRecord[] {
    let found = this.logs.get(partition);
    if (found === undefined) {
      found = [];
      this.logs.set(partition, found);
    }
    return found;
  }
}

/** A broken system reports the same again and again. */
const VIOLATIONS_MAX = 20;
