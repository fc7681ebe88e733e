/** Kafka sink: a compacted topic with the newest value of each key, in the binary form below or in
 *  the form of `records`.
 *
 *  Numbers are big-endian. Key, 24 bytes: account_id u64, window_start i64, window_end i64. Value,
 *  42 bytes: form u8 (1), flags u8 (bit 0: overflow), count u64, sum i64, min i64, max i64,
 *  last_update_ts i64. The partitioner is that of the Java client. Writing a result again appends
 *  an equal record, which compaction removes.
 *
 *  A key that is no integer: number of parts u8, kind of each part u8 (its place in KEY_KINDS),
 *  canonical bytes (keys/type.ts), window_start i64, window_end i64. The form of its value is 2. */

import { createHash } from 'node:crypto';
import { invariant } from '../../../core/errors.ts';
import { RecordBatch } from '../../../core/layout/record-batch.ts';
import type { Logger } from '../../../core/log.ts';
import { getOrdered } from '../../../core/ordered.ts';
import { type FixedRows, KEY_BYTES_MAX as ROW_KEY_BYTES_MAX } from '../../../core/rows.ts';
import { warnOfThinTopic } from '../../../core/topics.ts';
import {
  type BatchConsumer,
  type BatchProducer,
  type BrokerAdmin,
  type BrokerDriver,
  type BrokerEvent,
  type DeliveryReport,
  OFFSET_BEGINNING,
} from '../../../io/kafka/port.ts';
import type { KvStore } from '../../../io/rocksdb/port.ts';
import { engineError } from '../../errors.ts';
import { isKeyType, isSameType, KEY_BYTES_MAX, KEY_KINDS, type KeyType, keyValues } from '../../keys/type.ts';
import { TURN_ROWS, turn } from '../../turn.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import type { FiredPage } from '../../window/firing.ts';
import type { ResultShape } from '../columns.ts';
import type { ResultRecords } from './kafka-records.ts';
import type { SinkLease, WindowSink } from './port.ts';
import { ResultRows } from './rows.ts';

export const SINK_TOPIC_NAME = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/;
const FORM = 1;
/** Form of a value whose key is no integer. */
const KEYED_FORM = 2;
const OVERFLOW = 1;
const KEY_BYTES = 24;
const VALUE_BYTES = 42;
const RECORD_BYTES = KEY_BYTES + VALUE_BYTES;
const WRITE_ROWS_MAX = 65_536;
const BOUNDS_BYTES = 16;
/** Rows of a batch whose keys are no integers. */
const KEYED_WRITE_ROWS = 8_192;
const SCAN_ROWS = 4_096;
/** Page of a scan of the scratch store. */
const SCAN_BYTES = 1024 * 1024;
/** Rows of a batch in a form of the registry. */
const REGISTERED_WRITE_ROWS = 2_048;
/** Such rows that are encoded in one turn of the event loop. */
const REGISTERED_TURN_ROWS = 256;
/** Most bytes of such a record, key and value: the default limit of a producer, less than a page of
 *  a scan, so what is written can be read. A list of frequent values has up to 16 KiB of values,
 *  in JSON up to six characters a byte, and a job may have several lists of a field. */
const REGISTERED_BYTES_MAX = 1_000_000;
const REGISTERED_ARENA_BYTES = 4 * SCAN_BYTES;
/** Delivery timeout: a row without acknowledgement after this time counts as not written. */
const DELIVERY_MS = 15_000;
const OFFSETS_MS = 10_000;
const READ_WAIT_MS = 1_000;
/** A read fails when no record arrives for this time although some are left. */
const READ_SILENCE_MS = 30_000;
const READ_ARENA_BYTES = 8 * 1024 * 1024;
/** Errors that a retry cannot resolve. */
export const PERMANENT_ERRORS = new Set([
  'MSG_SIZE_TOO_LARGE',
  '_MSG_SIZE_TOO_LARGE',
  'TOPIC_AUTHORIZATION_FAILED',
  'CLUSTER_AUTHORIZATION_FAILED',
  'INVALID_TOPIC_EXCEPTION',
  'INVALID_RECORD',
  '_UNKNOWN_TOPIC',
  '_UNKNOWN_PARTITION',
]);

/** Scratch store of a read: the newest value of each key, on disk. */
export const SCRATCH_FAMILIES = { newest: 'rows' } as const;

export interface KafkaSinkParts {
  readonly driver: BrokerDriver;
  readonly brokers: string;
  readonly topic: string;
  /** Partitions of a topic that `migrate` creates. */
  readonly partitions: number;
  /** 0: three, or the number of brokers if there are fewer. */
  readonly replicationFactor: number;
  /** Form of the records; absent: binary. */
  readonly records?: ResultRecords;
  /** Receives the warning about a topic that can lose acknowledged results. */
  readonly log?: Logger;
  /** Awaited before each batch; absent: no other engine writes the topic. */
  readonly lease?: SinkLease | undefined;
  /** Opens an empty store with SCRATCH_FAMILIES, for a read; `done` removes it. */
  readonly scratch: () => Promise<{ readonly store: KvStore; readonly done: () => Promise<void> }>;
}

/** Sink of results in a compacted Kafka topic, one key for each account and window. A result that
 *  is written again after a crash appends an equal record, which compaction removes.
 */
export class KafkaSink implements WindowSink {
  readonly name = 'kafka';
  readonly writeRowsMax = WRITE_ROWS_MAX;
  private readonly parts: KafkaSinkParts;
  private batch = RecordBatch.create(WRITE_ROWS_MAX, WRITE_ROWS_MAX * RECORD_BYTES);
  private writeRows = WRITE_ROWS_MAX;
  /** Type of keys that are no integers. */
  private type: KeyType | undefined;
  private shape: ResultShape | undefined;
  private producer: BatchProducer | undefined;

  constructor(parts: KafkaSinkParts) {
    this.parts = parts;
    const { columns } = this.batch;
    // Fields that are the same in every record of an integer key.
    columns.partition.fill(-1);
    columns.keyLength.fill(KEY_BYTES);
    columns.valueLength.fill(VALUE_BYTES);
    for (let row = 0; row < WRITE_ROWS_MAX; row++) {
      columns.keyStart[row] = row * RECORD_BYTES;
      columns.valueStart[row] = row * RECORD_BYTES + KEY_BYTES;
      columns.headersStart[row] = (row + 1) * RECORD_BYTES;
    }
  }

  get keyType(): KeyType | undefined {
    return this.parts.records === undefined ? this.type : this.parts.records.readShape?.parts;
  }

  async bind(type: KeyType | undefined, shape?: ResultShape): Promise<void> {
    this.shape = shape;
    if (this.parts.records !== undefined) {
      this.batch = RecordBatch.create(REGISTERED_WRITE_ROWS, REGISTERED_ARENA_BYTES);
      return;
    }
    if (type === undefined) return;
    this.type = type;
    const longest = type.length + 1 + KEY_BYTES_MAX + BOUNDS_BYTES + VALUE_BYTES;
    this.writeRows = KEYED_WRITE_ROWS;
    this.batch = RecordBatch.create(KEYED_WRITE_ROWS, KEYED_WRITE_ROWS * longest);
  }

  async migrate(): Promise<void> {
    const { topic, partitions, replicationFactor, records } = this.parts;
    if (records !== undefined) {
      // A refused schema leaves no topic behind.
      if (this.shape === undefined) return;
      await records.register(this.shape);
    }
    await this.withAdmin((admin) =>
      admin.createTopics([{ topic, partitions, replicationFactor, config: { 'cleanup.policy': 'compact' } }]),
    );
  }

  async check(): Promise<void> {
    const { topic } = this.parts;
    const found = await this.withAdmin((admin) => admin.describeTopic(topic));
    if (found === undefined) {
      throw engineError('sink_missing', `the sink has no topic ${topic}`, {
        next: 'run the engine with -migrate once',
      });
    }
    if (this.parts.log !== undefined) warnOfThinTopic(this.parts.log, topic, found);
    // A driver that cannot read the configuration returns none; the check then passes.
    const policy = found.config?.get('cleanup.policy') ?? 'compact';
    if (policy === 'compact' && this.shape !== undefined) await this.parts.records?.find(this.shape);
    if (policy !== 'compact') {
      throw engineError('sink_missing', `topic ${topic} is not a sink: its cleanup.policy is ${policy}`, {
        next: 'set cleanup.policy=compact on it, so that results are not deleted by age, or name another topic',
      });
    }
  }

  async write(pages: readonly FiredPage[]): Promise<void> {
    this.batch.clear();
    const { records } = this.parts;
    if (records !== undefined) return this.writeRegistered(pages, records);
    for (const page of pages) {
      const rows = new ResultRows(page);
      for (let from = 0; from < rows.rowCount; ) {
        const count = Math.min(rows.rowCount - from, this.writeRows - this.batch.rowCount, TURN_ROWS);
        if (this.type === undefined) this.append(rows, from, from + count);
        else this.appendKeyed(rows, from, from + count, this.type);
        from += count;
        if (this.batch.rowCount === this.writeRows) await this.send();
        else if (from < rows.rowCount) await turn();
      }
    }
    await this.send();
  }

  /** Reads the topic up to its current end; the newest value of each key wins. Ascending by
   *  (unsigned account_id, window_start, window_end). @throws sink_foreign for a record that is not
   *  a result */
  async *read(): AsyncIterable<readonly WindowResult[]> {
    const { store, done } = await this.parts.scratch();
    try {
      await this.readNewest(store);
      const { records } = this.parts;
      if (records !== undefined) yield* this.scanRegistered(store, records);
      else yield* this.type === undefined ? scanInOrder(store) : scanKeyed(store, this.type);
    } finally {
      await done();
    }
  }

  async close(): Promise<void> {
    const { producer } = this;
    this.producer = undefined;
    await producer?.close(0);
  }

  private append(rows: ResultRows, from: number, to: number): void {
    const { arena } = this.batch.columns;
    const view = new DataView(arena.buffer, arena.byteOffset, arena.byteLength);
    let row = this.batch.rowCount;
    for (let i = from; i < to; i++, row++) {
      const at = row * RECORD_BYTES;
      view.setBigUint64(at, rows.accountId(i));
      putBounds(view, at + 8, rows, i);
      putValue(view, at + KEY_BYTES, FORM, rows, i);
    }
    this.batch.rowCount = row;
    this.batch.arenaUsed = row * RECORD_BYTES;
  }

  private appendKeyed(rows: ResultRows, from: number, to: number, type: KeyType): void {
    for (let i = from; i < to; i++) {
      const key = rows.key(i);
      const head = [type.length, ...type.map(({ kind }) => KEY_KINDS.indexOf(kind))];
      const bytes = new Uint8Array(head.length + key.length + BOUNDS_BYTES);
      bytes.set(head);
      bytes.set(key, head.length);
      putBounds(new DataView(bytes.buffer), head.length + key.length, rows, i);
      const value = new Uint8Array(VALUE_BYTES);
      putValue(new DataView(value.buffer), 0, KEYED_FORM, rows, i);
      this.batch.append({ partition: -1, key: bytes, value });
    }
  }

  private async writeRegistered(pages: readonly FiredPage[], records: ResultRecords): Promise<void> {
    for (const page of pages) {
      const rows = new ResultRows(page);
      for (let row = 0; row < rows.rowCount; row++) {
        if (row % REGISTERED_TURN_ROWS === REGISTERED_TURN_ROWS - 1) await turn();
        const { key, value } = records.encode(rows.result(row));
        if (key.length + value.length > REGISTERED_BYTES_MAX) throw this.tooWide(key, value);
        const record = { partition: -1, key, value };
        if (this.batch.append(record)) continue;
        await this.send();
        invariant(this.batch.append(record), 'an empty batch has room for a result');
      }
    }
    await this.send();
  }

  private tooWide(key: Uint8Array, value: Uint8Array): Error {
    return engineError(
      'sink_refused',
      `a result for topic ${this.parts.topic} has ${key.length + value.length} bytes, more than a record of ${REGISTERED_BYTES_MAX} holds`,
      {
        next: 'write the results into another sink, or start a job with fewer or shorter lists: topk(FIELD,N)',
      },
    );
  }

  /** @throws sink_missing, sink_failed, store_fenced, and errors of the client */
  private async send(): Promise<void> {
    if (this.batch.rowCount === 0) return;
    const { driver, brokers, topic, lease } = this.parts;
    this.producer ??= await driver.producer({
      brokers,
      clientId: 'millrace-engine-sink',
      acks: -1,
      idempotence: true,
      compression: 'lz4',
      properties: { 'message.timeout.ms': DELIVERY_MS, 'linger.ms': 5 },
    });
    const { producer } = this;
    // A stale early result behind the final one of the next owner would stay the newest value.
    await lease?.held();
    let report: DeliveryReport;
    try {
      report = await producer.produce(this.batch, [topic]);
    } catch (thrown) {
      await this.close();
      throw thrown;
    }
    this.batch.clear();
    if (report.failed === 0) return;
    // A producer that has dropped rows may refuse all later ones, so the next write opens a new
    // one.
    await this.close();
    throw this.deliveryError(report);
  }

  private deliveryError({ failed, events }: DeliveryReport): Error {
    const { topic } = this.parts;
    const permanent = events.find((event) => PERMANENT_ERRORS.has(event.name));
    const event = permanent ?? (events[0] as BrokerEvent);
    const line = `${failed} results were not written to topic ${topic}: ${event.message}`;
    if (permanent === undefined) return engineError('sink_failed', line, { details: { event } });
    return engineError('sink_missing', line, {
      next: 'fix the cause that the broker reports; -migrate creates a missing topic',
      details: { event },
    });
  }

  private async withAdmin<T>(work: (admin: BrokerAdmin) => Promise<T>): Promise<T> {
    const { driver, brokers } = this.parts;
    const admin = await driver.admin({ brokers, clientId: 'millrace-engine-sink' });
    try {
      return await work(admin);
    } finally {
      await admin.close();
    }
  }

  private async readNewest(into: KvStore): Promise<void> {
    const { driver, brokers, topic } = this.parts;
    const partitions = await this.withAdmin(
      async (admin) => (await admin.describeTopic(topic))?.partitions ?? 0,
    );
    const consumer = await driver.consumer({
      brokers,
      clientId: 'millrace-engine-export',
      partitionEof: true,
    });
    try {
      const ends = new Map<number, bigint>();
      for (let partition = 0; partition < partitions; partition++) {
        const { low, high } = await consumer.watermarkOffsets({ topic, partition }, OFFSETS_MS);
        if (high > low) ends.set(partition, high);
      }
      const starts = [...ends.keys()].map((partition) => ({ topic, partition, offset: OFFSET_BEGINNING }));
      if (starts.length === 0) return;
      await consumer.assign(starts);
      await this.drain(consumer, ends, into);
    } finally {
      await consumer.close();
    }
  }

  /** Reads every partition to its end. Compaction may have removed the last records before the end,
   *  so an end reported by the broker counts too. */
  private async drain(consumer: BatchConsumer, open: Map<number, bigint>, into: KvStore): Promise<void> {
    const batch = RecordBatch.create(WRITE_ROWS_MAX, READ_ARENA_BYTES);
    let silentMs = 0;
    while (open.size > 0) {
      const { rowCount, ends, events } = await consumer.consume(batch, READ_WAIT_MS);
      silentMs = rowCount > 0 || ends.length > 0 ? 0 : silentMs + READ_WAIT_MS;
      const fatal = events.find((event) => event.fatal || event.name === 'MILLRACE_OVERSIZE');
      if (fatal !== undefined || silentMs >= READ_SILENCE_MS) {
        const why = fatal?.message ?? events[0]?.message ?? `no record arrived for ${READ_SILENCE_MS} ms`;
        throw engineError('sink_failed', `topic ${this.parts.topic} cannot be read to its end: ${why}`);
      }
      await this.store(batch, into);
      const { partition, offset } = batch.columns;
      for (let row = 0; row < rowCount; row++) {
        const end = open.get(partition[row] as number);
        if (end !== undefined && (offset[row] as bigint) + 1n >= end) open.delete(partition[row] as number);
      }
      for (const end of ends) open.delete(end.partition);
    }
  }

  /** Stores the records of a batch; a null value deletes its key. */
  private async store(batch: RecordBatch, into: KvStore): Promise<void> {
    if (this.parts.records !== undefined) return this.storeRegistered(batch, into);
    if (this.isKeyed(batch)) return this.storeKeyed(batch, into);
    const bytes = new Uint8Array(batch.rowCount * RECORD_BYTES);
    let count = 0;
    const put = async (): Promise<void> => {
      const rows: FixedRows = { shape: 'fixed', count, bytes, keyBytes: KEY_BYTES, valueBytes: VALUE_BYTES };
      if (count > 0) await into.put('newest', rows, 'off');
      count = 0;
    };
    for (let row = 0; row < batch.rowCount; row++) {
      const key = batch.key(row);
      const value = batch.value(row);
      const whole = value === null || (value.length === VALUE_BYTES && value[0] === FORM);
      if (key?.length !== KEY_BYTES || !whole) throw this.foreignRecord(batch, row);
      const at = count * RECORD_BYTES;
      bytes.set(key, at);
      // Signed numbers sort like their bytes once the sign bit is flipped.
      for (const cell of [8, 16]) bytes[at + cell] = (bytes[at + cell] as number) ^ 0x80;
      if (value === null) {
        const deletedKey = bytes.slice(at, at + KEY_BYTES);
        await put();
        const to = new Uint8Array(KEY_BYTES + 1);
        to.set(deletedKey);
        await into.deleteRange('newest', { from: deletedKey, to }, 'off');
        continue;
      }
      bytes.set(value, at + KEY_BYTES);
      count++;
    }
    await put();
  }

  /** True if the first value of the topic has a key that is no integer. */
  private isKeyed(batch: RecordBatch): boolean {
    for (let row = 0; row < batch.rowCount && this.type === undefined; row++) {
      if (batch.value(row)?.[0] !== KEYED_FORM) continue;
      this.type = typeOf(batch.key(row));
      if (this.type === undefined) throw this.foreignRecord(batch, row);
    }
    return this.type !== undefined;
  }

  private async storeKeyed(batch: RecordBatch, into: KvStore): Promise<void> {
    const type = this.type as KeyType;
    const spans = new SpanPuts(into);
    for (let row = 0; row < batch.rowCount; row++) {
      const key = batch.key(row)?.slice();
      const value = batch.value(row);
      const whole = value === null || (value.length === VALUE_BYTES && value[0] === KEYED_FORM);
      const own = typeOf(key);
      if (key === undefined || own === undefined || !isSameType(own, type) || !whole)
        throw this.foreignRecord(batch, row);
      // Signed numbers sort like their bytes once the sign bit is flipped.
      for (const cell of [key.length - 16, key.length - 8]) key[cell] = (key[cell] as number) ^ 0x80;
      if (value === null) await spans.delete(key);
      else spans.add(key, value);
    }
    await spans.put();
  }

  private async storeRegistered(batch: RecordBatch, into: KvStore): Promise<void> {
    const spans = new SpanPuts(into);
    for (let row = 0; row < batch.rowCount; row++) {
      const key = batch.key(row)?.slice();
      const value = batch.value(row);
      if (key === undefined || key.length + (value?.length ?? 0) > REGISTERED_BYTES_MAX)
        throw this.foreignRecord(batch, row);
      const stored = scratchKey(key);
      if (value === null) await spans.delete(stored);
      else spans.add(stored, value);
    }
    await spans.put();
  }

  /** Yields results in the order of their record keys' bytes. @throws sink_foreign */
  private async *scanRegistered(
    store: KvStore,
    records: ResultRecords,
  ): AsyncIterable<readonly WindowResult[]> {
    const scan = await store.scan('newest', { from: null, to: null }, { shape: 'spans' });
    try {
      const page = { bytes: new Uint8Array(SCAN_BYTES), ends: new Uint32Array(2 * SCAN_ROWS) };
      for (let count = await scan.next(page); count > 0; count = await scan.next(page)) {
        const found: WindowResult[] = [];
        for (let row = 0; row < count; row++) {
          const result = await records.decode(page.bytes.slice(page.ends[row * 2], page.ends[row * 2 + 1]));
          if (result !== undefined) found.push(result);
          else
            throw engineError(
              'sink_foreign',
              `topic ${this.parts.topic} holds a value that is not a window result in this form`,
              { next: 'give -sink-format as the results were written, or the sink a topic of its own' },
            );
        }
        yield found;
      }
    } finally {
      scan.close();
    }
  }

  private foreignRecord(batch: RecordBatch, row: number): Error {
    const { partition, offset } = batch.columns;
    const { topic } = this.parts;
    return engineError(
      'sink_foreign',
      `topic ${topic} holds a record that is not a window result, at offset ${offset[row]} of partition ${partition[row]}`,
      { next: 'give the sink a topic of its own' },
    );
  }
}

/** Rows of any length on their way into the scratch store, in the order of their records. */
class SpanPuts {
  private readonly store: KvStore;
  private parts: Uint8Array[] = [];
  private ends: number[] = [];
  private end = 0;

  constructor(store: KvStore) {
    this.store = store;
  }

  /** Borrows the bytes until `put` settles. */
  add(key: Uint8Array, value: Uint8Array): void {
    this.parts.push(key, value);
    this.ends.push(this.end + key.length, this.end + key.length + value.length);
    this.end += key.length + value.length;
  }

  async put(): Promise<void> {
    const { parts, ends } = this;
    const bytes = new Uint8Array(Buffer.concat(parts));
    [this.parts, this.ends, this.end] = [[], [], 0];
    const rows = { shape: 'spans', count: ends.length / 2, bytes, ends: Uint32Array.from(ends) } as const;
    if (rows.count > 0) await this.store.put('newest', rows, 'off');
  }

  async delete(key: Uint8Array): Promise<void> {
    await this.put();
    const to = new Uint8Array(key.length + 1);
    to.set(key);
    await this.store.deleteRange('newest', { from: key, to }, 'off');
  }
}

/** Key of a record in the scratch store: of one that is too long for it, as JSON with many escaped
 *  characters, its beginning and a digest. Results are decoded from the values alone. */
function scratchKey(key: Uint8Array): Uint8Array {
  if (key.length <= ROW_KEY_BYTES_MAX) return key;
  const digest = createHash('sha256').update(key).digest();
  return new Uint8Array(Buffer.concat([key.subarray(0, ROW_KEY_BYTES_MAX - digest.length), digest]));
}

async function* scanInOrder(store: KvStore): AsyncIterable<readonly WindowResult[]> {
  const shape = { shape: 'fixed', keyBytes: KEY_BYTES, valueBytes: VALUE_BYTES } as const;
  const scan = await store.scan('newest', { from: null, to: null }, shape);
  try {
    const bytes = new Uint8Array(8192 * RECORD_BYTES);
    const view = new DataView(bytes.buffer);
    for (let count = await scan.next({ bytes }); count > 0; count = await scan.next({ bytes }))
      yield Array.from({ length: count }, (_, row) => resultAt(view, row * RECORD_BYTES));
  } finally {
    scan.close();
  }
}

/** Yields results by key and window. */
async function* scanKeyed(store: KvStore, type: KeyType): AsyncIterable<readonly WindowResult[]> {
  const scan = await store.scan('newest', { from: null, to: null }, { shape: 'spans' });
  try {
    const page = { bytes: new Uint8Array(SCAN_BYTES), ends: new Uint32Array(2 * SCAN_ROWS) };
    const view = new DataView(page.bytes.buffer);
    for (let count = await scan.next(page); count > 0; count = await scan.next(page)) {
      let from = 0;
      yield Array.from({ length: count }, (_, row) => {
        const keyEnd = page.ends[row * 2] as number;
        const key = page.bytes.slice(from + 1 + type.length, keyEnd - BOUNDS_BYTES);
        from = page.ends[row * 2 + 1] as number;
        return { ...resultBehind(view, keyEnd), accountId: 0n, key };
      });
    }
  } finally {
    scan.close();
  }
}

/** Type that a record's key states, without the names of the parts. */
function typeOf(key: Uint8Array | null | undefined): KeyType | undefined {
  const count = key?.[0] ?? 0;
  if (key === null || key === undefined || count < 1 || key.length < 1 + count + BOUNDS_BYTES)
    return undefined;
  const type = Array.from({ length: count }, (_, at) => ({
    name: count === 1 ? 'key' : `key_${at + 1}`,
    kind: KEY_KINDS[key[at + 1] as number],
  }));
  try {
    if (!isKeyType(type)) return undefined;
    keyValues(type, key.subarray(1 + count, key.length - BOUNDS_BYTES));
    return type;
  } catch {
    return undefined;
  }
}

function putBounds(view: DataView, at: number, rows: ResultRows, row: number): void {
  view.setBigInt64(at, BigInt(rows.windowStart(row)));
  view.setBigInt64(at + 8, BigInt(rows.windowEnd(row)));
}

function putValue(view: DataView, at: number, form: number, rows: ResultRows, row: number): void {
  view.setUint8(at, form);
  view.setUint8(at + 1, rows.overflow(row) ? OVERFLOW : 0);
  view.setBigUint64(at + 2, rows.count(row));
  view.setBigInt64(at + 10, rows.sum(row));
  view.setBigInt64(at + 18, rows.min(row));
  view.setBigInt64(at + 26, rows.max(row));
  view.setBigInt64(at + 34, rows.lastUpdateTs(row));
}

const resultAt = (view: DataView, at: number): WindowResult => ({
  accountId: view.getBigUint64(at),
  ...resultBehind(view, at + KEY_BYTES),
});

/** Result whose bounds end, and whose value begins, at `at`. */
const resultBehind = (view: DataView, at: number): Omit<WindowResult, 'accountId'> => ({
  windowStart: getOrdered(view, at - 16),
  windowEnd: getOrdered(view, at - 8),
  overflow: (view.getUint8(at + 1) & OVERFLOW) !== 0,
  count: view.getBigUint64(at + 2),
  sum: view.getBigInt64(at + 10),
  min: view.getBigInt64(at + 18),
  max: view.getBigInt64(at + 26),
  lastUpdateTs: view.getBigInt64(at + 34),
});
