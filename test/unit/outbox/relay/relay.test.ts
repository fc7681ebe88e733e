/** The pipeline keeps the order of a key under all failures, and marks exactly the acknowledged
 *  rows. Both encoders produce the records of the contract. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { sleep, type Timers } from '../../../../src/core/clock.ts';
import { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import { unreachable } from '../../../../src/io/kafka/errors.ts';
import { EventEncoder, toRecord, traceparentOf } from '../../../../src/outbox/relay/pipeline/event.ts';
import { Publisher, type PublisherOptions } from '../../../../src/outbox/relay/pipeline/publisher.ts';
import type { Sender, Sent } from '../../../../src/outbox/relay/pipeline/sender.ts';
import type { OutboxRow } from '../../../../src/outbox/relay/store.ts';
import { VirtualClock } from '../../../../src/sim/clock.ts';
import { runs } from '../../../tier.ts';
import { realClock } from '../../../wait.ts';

const uuid = (n: number): string => `00000000-0000-7000-8000-${n.toString(16).padStart(12, '0')}`;
const clock: Timers = realClock;
const moment = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function row(id: number, aggregate: number, payload = '{"a":1}'): OutboxRow {
  return {
    id: BigInt(id),
    aggregateId: uuid(aggregate),
    msgId: uuid(1_000_000 + id),
    eventType: 'order.created.v1',
    payload: new TextEncoder().encode(payload),
    createdAt: new Date(1_750_000_000_000),
  };
}

const msgIdOf = (batch: RecordBatch, i: number): string =>
  JSON.parse(new TextDecoder().decode(batch.value(i) as Uint8Array)).msg_id;

/** Broker that fails the sends selected by `fails`, as a gapless producer does: no later row of the
 *  batch is accepted. Sends settle in any order. */
function broker(fails: (send: number) => boolean, late: (flight: number) => number) {
  const log: string[] = [];
  let send = 0;
  let flight = 0;
  const sender: Sender = {
    flights: 3,
    open: async () => {},
    isHealthy: () => true,
    isOpen: () => true,
    renew: async () => {},
    close: async () => {},
    send: async (batch): Promise<Sent> => {
      const status = new Int32Array(batch.rowCount);
      const turns = late(flight++);
      let broken = false;
      for (let i = 0; i < batch.rowCount; i++) {
        if (!broken && fails(send++)) broken = true;
        status[i] = broken ? -192 : 0;
        if (!broken) log.push(msgIdOf(batch, i));
      }
      for (let turn = 0; turn < turns; turn++) await moment();
      return { status, events: [], fenced: false };
    },
  };
  return { sender, log };
}

const IN_FLIGHT_BYTES = 40_000;

function pipeline(
  sender: Sender,
  batchRows: number,
  owns: (shard: number) => boolean = () => true,
  flightBytes = 64 * 1024,
  marks = true,
  later: (done: () => void) => void = () => {},
  time: Timers = clock,
  topics?: PublisherOptions['topics'],
) {
  const marked: bigint[] = [];
  const dead: bigint[] = [];
  const metrics = new Metrics();
  const made = new Publisher({
    sender,
    encoder: new EventEncoder('poll', '/orders'),
    topics,
    marker: {
      onDone: () => {},
      add(entry) {
        marked.push(entry.row.id);
        if (entry.dead !== undefined) dead.push(entry.row.id);
        if (marks) setImmediate(() => this.onDone(entry));
        else later(() => this.onDone(entry));
      },
    },
    leases: { shards: 4, epochOf: (shard) => (owns(shard) ? 1n : undefined), holds: (shard) => owns(shard) },
    metrics,
    log: silentLogger,
    clock: time,
    flightRowsMax: batchRows,
    flightBytesMax: flightBytes,
    recordBytesMax: flightBytes,
    inFlight: { rows: 1000, bytes: IN_FLIGHT_BYTES },
    crashAt: () => {},
    onTopicMissing: () => {},
    onFenced: () => {},
  });
  return { made, marked, dead, metrics };
}

describe('pipeline', () => {
  it('the pipeline keeps first occurrences of a key in id order over failed, reordered and repeated sends', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 40 }),
        fc.array(fc.boolean(), { maxLength: 40 }),
        fc.array(fc.integer({ min: 0, max: 4 }), { minLength: 1, maxLength: 20 }),
        fc.integer({ min: 1, max: 7 }),
        fc.integer({ min: 1, max: 9 }),
        async (keys, failures, turns, batchRows, readRows) => {
          const { sender, log } = broker(
            (send) => failures[send] === true,
            (flight) => turns[flight % turns.length] as number,
          );
          const { made, marked, metrics } = pipeline(sender, batchRows);
          const rows = keys.map((key, i) => row(i, key));
          const pending = new Set(rows.map(({ id }) => id));
          // Simulated source: it continues to read while earlier rows are in flight, and rereads
          // rows that were left.
          let cursor = -1;
          let back = false;
          let leftFrom: bigint | undefined;
          for (let step = 0; pending.size > 0; step++) {
            expect(step).toBeLessThan(5000);
            for (const id of marked) pending.delete(id);
            if (leftFrom !== undefined && step % 3 === 0) {
              cursor = Math.min(cursor, Number(leftFrom) - 1);
              leftFrom = undefined;
              back = true;
            }
            const read = rows.filter(
              ({ id }) => Number(id) > cursor && pending.has(id) && !made.isInFlight(id),
            );
            const page = read.slice(0, readRows);
            const full = page.length === readRows;
            const to = full ? (page[page.length - 1]?.id as bigint) : 1_000_000n;
            const covered = back ? { from: BigInt(cursor + 1), to, asOf: made.leftSoFar() } : undefined;
            // The result of a read is older than its arrival.
            for (let turn = turns[step % turns.length] as number; turn > 0; turn--) await moment();
            made.deliver(page, covered).then(({ left }) => {
              for (const id of left) if (leftFrom === undefined || id < leftFrom) leftFrom = id;
            });
            if (!full) back = false;
            cursor = full ? Number(to) : keys.length;
            await moment();
          }
          const firsts = [...new Set(log)];
          for (const key of new Set(keys)) {
            const wanted = rows.filter((one) => one.aggregateId === uuid(key)).map((one) => one.msgId);
            expect(firsts.filter((msgId) => wanted.includes(msgId))).toEqual(wanted);
          }
          expect(new Set(marked).size).toBe(marked.length);
          expect(metrics.counter('relay_order_gaps_total', '').value()).toBe(0);
          await made.idle();
        },
      ),
      { numRuns: runs(200) },
    );
  });

  it('the pipeline holds back a row of a page that is older than the failure of the previous row', async () => {
    let fail = true;
    const { sender, log } = broker(
      () => fail,
      () => 1,
    );
    const { made } = pipeline(sender, 10);
    const first = made.deliver([row(1, 1)]);
    // A page that was read while row 1 was in flight, so that it does not contain row 1.
    const asOf = made.leftSoFar();
    expect((await first).left).toEqual([1n]);
    fail = false;
    const stale = await made.deliver([row(2, 1)], { from: 0n, to: 100n, asOf });
    expect(stale).toMatchObject({ published: 0, left: [2n] });
    const whole = { from: 0n, to: 100n, asOf: made.leftSoFar() };
    expect(await made.deliver([row(1, 1), row(2, 1)], whole)).toMatchObject({ published: 2, left: [] });
    expect(log).toEqual([uuid(1_000_001), uuid(1_000_002)]);
  });

  it('the pipeline keeps a blocked key in the range of a call that does not contain it', async () => {
    let fail = true;
    const { sender, log } = broker(
      () => fail,
      () => 0,
    );
    const { made } = pipeline(sender, 1);
    await made.deliver([row(1, 1)]);
    await made.deliver([row(4, 2)]);
    await made.deliver([row(9, 1)]);
    fail = false;
    const covered = { from: 1n, to: 9n, keys: new Set([uuid(1)]) };
    expect(await made.deliver([row(1, 1), row(9, 1)], covered)).toMatchObject({ published: 2, left: [] });
    expect(await made.deliver([row(5, 2)], covered)).toMatchObject({ published: 0, left: [5n] });
    const both = await made.deliver([row(4, 2), row(5, 2)], { from: 4n, to: 5n, keys: new Set([uuid(2)]) });
    expect(both).toMatchObject({ published: 2, left: [] });
    expect(log).toEqual([1, 9, 4, 5].map((id) => uuid(1_000_000 + id)));
  });

  it('the pipeline keeps a key blocked if a call leaves its rows because the lease has expired, although the call covers them', async () => {
    let isOwner = false;
    const { sender, log } = broker(
      () => false,
      () => 1,
    );
    const { made } = pipeline(sender, 10, () => isOwner);
    const all = { from: 0n, to: 9n };
    expect((await made.deliver([row(1, 1)], all)).left).toEqual([1n]);
    isOwner = true;
    expect((await made.deliver([row(2, 1)])).left).toEqual([2n]);
    await made.deliver([row(1, 1), row(2, 1)], all);
    expect(log).toEqual([row(1, 1).msgId, row(2, 1).msgId]);
  });

  it('every call of the pipeline fails once it can publish nothing more, whether its rows are queued or acknowledged', async () => {
    const { sender, log } = broker(
      () => false,
      () => 0,
    );
    const broken: Sender = {
      ...sender,
      send: (batch) => (log.length > 0 ? Promise.reject(new Error('gone')) : sender.send(batch)),
    };
    const { made } = pipeline(broken, 1, () => true, 64 * 1024, false);
    const { marked } = await made.deliver([row(1, 1)]);
    const calls = [made.deliver([row(2, 2), row(3, 2)]), made.deliver([row(4, 2)])];
    for (const call of calls) await expect(call).rejects.toThrow('gone');
    await expect(marked).rejects.toThrow('gone');
    await Promise.all([made.idle(), made.room()]);
    await expect(made.deliver([row(5, 5)])).rejects.toThrow('gone');
  });

  it('an abandoned pipeline ends every wait and reports no unmarked row as done', async () => {
    const { sender } = broker(
      () => false,
      () => 0,
    );
    let sends = 0;
    const silent: Sender = {
      ...sender,
      flights: 1,
      send: (batch) => (sends++ === 0 ? sender.send(batch) : new Promise<Sent>(() => {})),
    };
    const { made } = pipeline(silent, 1, () => true, 64 * 1024, false);
    const { marked } = await made.deliver([row(1, 1)]);
    const inTransit = made.deliver([row(2, 2)]);
    const queued = made.deliver([row(3, 2), row(4, 3)]);
    await moment();
    const idle = made.idle();
    made.abandon();
    await idle;
    await expect(marked).rejects.toMatchObject({ code: 'unreachable' });
    const up = await inTransit;
    expect(up).toMatchObject({ published: 0, left: [2n] });
    await expect(up.marked).rejects.toMatchObject({ code: 'unreachable' });
    const behind = await queued;
    expect(behind).toMatchObject({ published: 0, left: [3n, 4n] });
    await behind.marked;
    expect(await made.deliver([row(5, 5)])).toMatchObject({ published: 0, left: [5n] });
    expect({ sends, inFlight: made.inFlight() }).toEqual({ sends: 2, inFlight: 0 });
  });

  it('the pipeline has no room while its bytes are in flight, accepts one larger row, and has room once they are marked', async () => {
    const { sender } = broker(
      () => false,
      () => 0,
    );
    const marks: Array<() => void> = [];
    const { made, metrics } = pipeline(
      sender,
      10,
      () => true,
      64 * 1024,
      false,
      (done) => marks.push(done),
    );
    const bytes = (): number => {
      metrics.snapshot();
      return metrics.gauge('relay_under_way_bytes', '').value();
    };
    let room = 0;
    const asked = async (): Promise<number> => {
      void made.room().then(() => room++);
      await moment();
      return room;
    };
    await made.deliver([row(1, 1, JSON.stringify('x'.repeat(IN_FLIGHT_BYTES - 2000)))]);
    expect(await asked()).toBe(1);
    const whole = row(2, 2, JSON.stringify('y'.repeat(IN_FLIGHT_BYTES)));
    expect(await made.deliver([whole])).toMatchObject({ published: 1, left: [] });
    expect(bytes()).toBeGreaterThan(2 * IN_FLIGHT_BYTES - 2000);
    expect(await asked()).toBe(1);
    for (const mark of marks.splice(0)) mark();
    await moment();
    expect([room, bytes()]).toEqual([2, 0]);
  });

  it('the pipeline sends a key with a thousand rows in one batch', async () => {
    const { sender, log } = broker(
      () => false,
      () => 1,
    );
    const { made, metrics } = pipeline(sender, 1000, () => true, 2 << 20);
    const { published } = await made.deliver(Array.from({ length: 1000 }, (_, i) => row(i, 1)));
    expect({ published, sent: log.length }).toEqual({ published: 1000, sent: 1000 });
    expect(metrics.counter('relay_flights_total', '').value()).toBe(1);
  });

  it('few rows wait at most 1 s for the previous batch, so that they are sent together', async () => {
    const landings: Array<() => void> = [];
    const sent: string[][] = [];
    const sender: Sender = {
      flights: 3,
      open: async () => {},
      isHealthy: () => true,
      isOpen: () => true,
      renew: async () => {},
      close: async () => {},
      send: (batch) => {
        sent.push(Array.from({ length: batch.rowCount }, (_, i) => msgIdOf(batch, i)));
        const status = new Int32Array(batch.rowCount);
        return new Promise((resolve) => landings.push(() => resolve({ status, events: [], fenced: false })));
      },
    };
    const time = new VirtualClock();
    const { made } = pipeline(
      sender,
      4,
      () => true,
      64 * 1024,
      true,
      () => {},
      time,
    );
    const ids = (...numbers: number[]): string[] => numbers.map((n) => uuid(1_000_000 + n));
    for (const n of [1, 2, 3]) void made.deliver([row(n, n)]);
    expect(sent).toEqual([ids(1)]);
    landings[0]?.();
    await time.advance(0);
    expect(sent).toEqual([ids(1), ids(2, 3)]);
    // A full send does not wait.
    void made.deliver([4, 5, 6, 7].map((n) => row(n, n)));
    expect(sent).toEqual([ids(1), ids(2, 3), ids(4, 5, 6, 7)]);
    // A send with enough bytes does not wait either.
    void made.deliver([row(8, 8, JSON.stringify('x'.repeat(IN_FLIGHT_BYTES)))]);
    void made.deliver([row(9, 9, JSON.stringify('x'.repeat(IN_FLIGHT_BYTES)))]);
    expect(sent.slice(3)).toEqual([ids(8)]);
    for (const land of landings) land();
    await time.advance(0);
    expect(sent.slice(4)).toEqual([ids(9)]);
    // No earlier send settles, and the next send does not wait for them.
    void made.deliver([row(10, 10)]);
    await time.advance(999);
    expect(sent.slice(5)).toEqual([]);
    await time.advance(1);
    expect(sent.slice(5)).toEqual([ids(10)]);
    for (const land of landings) land();
    await made.idle();
  });

  it('flights of few rows start three usual flights apart, and at most 50 ms after long flights', async () => {
    const time = new VirtualClock();
    const starts: number[] = [];
    let flightMs = 4;
    const sender: Sender = {
      ...broker(
        () => false,
        () => 0,
      ).sender,
      send: async ({ rowCount }) => {
        starts.push(time.monotonicMs());
        await sleep(time, flightMs);
        return { status: new Int32Array(rowCount), events: [], fenced: false };
      },
    };
    const { made } = pipeline(
      sender,
      1000,
      () => true,
      64 * 1024,
      false,
      (done) => done(),
      time,
    );
    let [next, longestMs] = [0, 0];
    const arrive = time.every(1, () => {
      const sinceMs = time.monotonicMs();
      const delivered = made.deliver([row(next, next++)]);
      void delivered.then(() => {
        longestMs = Math.max(longestMs, time.monotonicMs() - sinceMs);
      });
    });
    // The mean of the flights has settled.
    await time.advance(200);
    starts.length = 0;
    longestMs = 0;
    await time.advance(400);
    expect(Math.abs(starts.length - 400 / (3 * flightMs))).toBeLessThanOrEqual(2);
    expect(longestMs).toBeLessThanOrEqual(4 * flightMs);
    // A flight that is longer than the longest pace is followed by the next when it lands.
    flightMs = 80;
    await time.advance(5000);
    const gapsMs = starts.slice(-4).map((startMs, i, all) => startMs - (all[i - 1] ?? startMs));
    expect(gapsMs.slice(1)).toEqual([80, 80, 80]);
    flightMs = 1;
    await time.advance(500);
    starts.length = 0;
    await time.advance(100);
    expect(starts.length).toBeGreaterThanOrEqual(2);
    arrive();
    await time.advance(100);
    expect(made.inFlight()).toBe(0);
  });

  it('the pipeline reports a row that fits no batch, blocks its key, and continues with the other keys', async () => {
    const { sender, log } = broker(
      () => false,
      () => 0,
    );
    const { made, marked, metrics } = pipeline(sender, 4, () => true, 2048);
    const { left } = await made.deliver([row(1, 1, 'x'.repeat(4096)), row(2, 2), row(3, 1)]);
    expect([...left].sort()).toEqual([1n, 3n]);
    expect(marked).toEqual([2n]);
    expect(log).toEqual([uuid(1_000_002)]);
    expect(metrics.counter('relay_oversize_total', '').value()).toBe(1);
  });

  it('the pipeline moves a row whose payload is not JSON to the dead letters, and publishes the other rows', async () => {
    const { sender, log } = broker(
      () => false,
      () => 0,
    );
    const { made, marked, dead, metrics } = pipeline(sender, 4);
    const rows = [row(1, 1), row(2, 1, '1,"amount":2'), row(3, 1), row(4, 2, ''), row(5, 3)];
    expect(await made.deliver(rows)).toMatchObject({ published: 3, left: [] });
    await made.idle();
    expect(log).toEqual([1, 3, 5].map((n) => uuid(1_000_000 + n)));
    expect([...marked].sort()).toEqual([1n, 2n, 3n, 4n, 5n]);
    expect(dead).toEqual([2n, 4n]);
    expect(metrics.counter('relay_dead_letters_total', '').value()).toBe(2);
  });

  it('the pipeline accepts no row of a foreign shard, and drops queued rows when the shard is lost', async () => {
    let owned = true;
    const { sender, log } = broker(
      () => false,
      () => 2,
    );
    const { made } = pipeline(sender, 1, () => owned);
    const first = made.deliver([row(1, 1), row(2, 1)]);
    owned = false;
    const second = await made.deliver([row(3, 2)]);
    expect(second).toMatchObject({ published: 0, left: [3n] });
    expect(await first).toMatchObject({ published: 1, left: [2n] });
    expect(log).toEqual([uuid(1_000_001)]);
  });

  it('the pipeline halves its batches while the broker refuses them as too large, down to a single row', async () => {
    const sizes: number[] = [];
    const sender: Sender = {
      flights: 1,
      open: async () => {},
      isHealthy: () => true,
      isOpen: () => true,
      renew: async () => {},
      close: async () => {},
      send: async (batch) => {
        sizes.push(batch.rowCount);
        const bad = Array.from({ length: batch.rowCount }, (_, i) => msgIdOf(batch, i)).includes(
          uuid(1_000_005),
        );
        return { status: new Int32Array(batch.rowCount).fill(bad ? 10 : 0), events: [], fenced: false };
      },
    };
    const { made, marked } = pipeline(sender, 8);
    const rows = Array.from({ length: 8 }, (_, i) => row(i, i));
    for (let round = 0; round < 6; round++) {
      await made.deliver(
        rows.filter(({ id }) => !marked.includes(id)),
        { from: 0n, to: 100n },
      );
      await made.idle();
    }
    expect(marked.map(Number).sort((a, b) => a - b)).toEqual([0, 1, 2, 3, 4, 6, 7]);
    expect(Math.min(...sizes)).toBe(1);
  });
});

describe('record of a row', () => {
  const text = (bytes: Uint8Array | null | undefined): string =>
    new TextDecoder().decode(bytes ?? new Uint8Array());

  it('a record is keyed by the order and carries the payload unchanged with CloudEvents headers', () => {
    const record = toRecord(row(7, 3, '{"amount_cents": 5 }'), 'poll', '/shop', 9n);
    expect(text(record.key)).toBe(uuid(3));
    expect(text(record.value)).toBe(
      `{"msg_id":"${uuid(1_000_007)}","event_type":"order.created.v1","payload":{"amount_cents": 5 }}`,
    );
    expect(Object.fromEntries((record.headers ?? []).map(([name, value]) => [name, text(value)]))).toEqual({
      ce_specversion: '1.0',
      ce_id: uuid(1_000_007),
      ce_source: '/shop',
      ce_type: 'order.created.v1',
      ce_subject: uuid(3),
      ce_time: '2025-06-15T15:06:40.000Z',
      ce_partitionkey: uuid(3),
      ce_sequence: '7',
      'content-type': 'application/json',
      relay_mode: 'poll',
      relay_epoch: '9',
      traceparent: `00-${uuid(1_000_007).replaceAll('-', '')}-80000000000f4247-00`,
    });
  });

  const record = {
    aggregateKey: 'Kunde/ä',
    partitionKey: null,
    topic: null,
    headers: null,
    contentType: null,
  };
  const headersOf = (one: ReturnType<typeof toRecord>): Readonly<Record<string, string>> =>
    Object.fromEntries((one.headers ?? []).map(([name, value]) => [name, text(value)]));

  it('a record of an aggregate with a text id has that text as key and subject', () => {
    const made = toRecord({ ...row(7, 3), record }, 'poll');
    expect(text(made.key)).toBe('Kunde/ä');
    expect(JSON.parse(text(made.value))).toMatchObject({ payload: { a: 1 } });
    expect(headersOf(made)).toMatchObject({
      ce_subject: 'Kunde/ä',
      ce_partitionkey: 'Kunde/ä',
      'content-type': 'application/json',
    });
  });

  it('a record with a content type has the payload alone as its value, and its headers replace those of the relay', () => {
    const headers = '{"ce_source":"/own","ce_subject":"s","tenant":"eu","id":{"base64":"AP8="}}';
    const chosen = { ...record, partitionKey: 'k', headers, contentType: 'application/avro' };
    const made = toRecord({ ...row(7, 3, 'no json'), record: chosen }, 'wal', '/shop', 9n);
    expect(text(made.key)).toBe('k');
    expect(text(made.value)).toBe('no json');
    expect(headersOf(made)).toMatchObject({
      ce_id: uuid(1_000_007),
      ce_type: 'order.created.v1',
      ce_source: '/own',
      ce_subject: 's',
      ce_partitionkey: 'k',
      'content-type': 'application/avro',
      tenant: 'eu',
      relay_epoch: '9',
    });
    expect(made.headers?.find(([name]) => name === 'id')?.[1]).toEqual(Buffer.from([0, 255]));
    expect(made.headers).toHaveLength(14);
  });

  it('a record from the fast encoder is the same for any row', () => {
    const anyRow = fc.record({
      id: fc.bigInt({ min: 0n, max: (1n << 63n) - 1n }),
      aggregateId: fc.uuid(),
      msgId: fc.uuid(),
      eventType: fc.string({ unit: 'binary', maxLength: 40 }),
      payload: fc.uint8Array({ maxLength: 200 }),
      createdAt: fc.date({ noInvalidDate: false }),
      traceparent: fc.constantFrom(null, undefined, 'nonsense', `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`),
      record: fc.constantFrom(undefined, undefined, { ...record, headers: '{"a":"b"}', partitionKey: 'ä' }),
    });
    const encoder = new EventEncoder('wal', '/x');
    const fast = RecordBatch.create(4, 1 << 16);
    const slow = RecordBatch.create(4, 1 << 16);
    fc.assert(
      fc.property(
        fc.array(anyRow, { minLength: 1, maxLength: 4 }),
        fc.bigInt({ min: 0n, max: 99n }),
        (rows, epoch) => {
          fast.clear();
          slow.clear();
          for (const one of rows as OutboxRow[]) {
            expect(encoder.append(fast, one, epoch)).toBe(true);
            expect(slow.append(toRecord(one, 'wal', '/x', epoch))).toBe(true);
          }
          expect(fast.arenaUsed).toBe(slow.arenaUsed);
          for (let i = 0; i < rows.length; i++) {
            expect(fast.key(i)).toEqual(slow.key(i));
            expect(fast.value(i)).toEqual(slow.value(i));
            expect(fast.headers(i)).toEqual(slow.headers(i));
          }
        },
      ),
      { numRuns: runs(60) },
    );
  });

  it('a record that lacks one byte of room does not fit and changes nothing', () => {
    const encoder = new EventEncoder('poll', '/orders');
    const roomy = RecordBatch.create(1, 1 << 16);
    encoder.append(roomy, row(1, 1), 0n);
    const tight = RecordBatch.create(1, roomy.arenaUsed - 1);
    expect(encoder.append(tight, row(1, 1), 0n)).toBe(false);
    expect({ rows: tight.rowCount, bytes: tight.arenaUsed }).toEqual({ rows: 0, bytes: 0 });
    expect(encoder.append(RecordBatch.create(1, roomy.arenaUsed), row(1, 1), 0n)).toBe(true);
  });

  it('a record carries a valid trace even for ids of zeros', () => {
    const zeros = '00000000-0000-0000-0000-000000000000';
    expect(traceparentOf({ msgId: zeros })).toBe('00-00000000000000000000000000000001-0000000000000001-00');
    expect(traceparentOf({ msgId: uuid(1), traceparent: 'x' })).toBe(traceparentOf({ msgId: uuid(1) }));
  });
});

describe('rows with choices', () => {
  const fields = { aggregateKey: null, partitionKey: null, topic: null, headers: null, contentType: null };

  it('a row whose topic cannot be used yet is left with the later rows of its key, and other keys pass', async () => {
    const { sender } = broker(
      () => false,
      () => 0,
    );
    const sent: Array<readonly [id: string, topic: number]> = [];
    const spying: Sender = {
      ...sender,
      send: (batch) => {
        for (let i = 0; i < batch.rowCount; i++)
          sent.push([msgIdOf(batch, i), batch.columns.topicIndex[i] as number]);
        return sender.send(batch);
      },
    };
    let exists = false;
    const topics = {
      names: ['main', 'other'],
      placeOf: ({ record }: Pick<OutboxRow, 'record'>) =>
        record?.topic !== 'other' ? 0 : exists ? 1 : undefined,
      recordBytesMax: () => 1_000_000,
    };
    const { made } = pipeline(spying, 10, undefined, undefined, undefined, undefined, undefined, topics);
    const rows = [row(1, 1), { ...row(2, 2), record: { ...fields, topic: 'other' } }, row(3, 2), row(4, 1)];
    const first = await made.deliver(rows);
    expect([first.published, [...first.left].sort()]).toEqual([2, [2n, 3n]]);
    exists = true;
    const again = await made.deliver(rows.slice(1, 3), { from: 2n, to: 3n });
    expect(again.published).toBe(2);
    expect(sent).toEqual([
      [uuid(1_000_001), 0],
      [uuid(1_000_004), 0],
      [uuid(1_000_002), 1],
      [uuid(1_000_003), 0],
    ]);
  });

  it('a payload with a content type may be anything but false JSON, and malformed headers are dead letters', async () => {
    const { sender } = broker(
      () => false,
      () => 0,
    );
    const values: string[] = [];
    const spying: Sender = {
      ...sender,
      send: async (batch) => {
        for (let i = 0; i < batch.rowCount; i++) values.push(Buffer.from(batch.value(i) ?? []).toString());
        return { status: new Int32Array(batch.rowCount), events: [], fenced: false };
      },
    };
    const { made, dead, marked } = pipeline(spying, 10);
    const typed = (
      id: number,
      payload: string,
      contentType: string | null,
      headers: string | null = null,
    ) => ({
      ...row(id, 1, payload),
      record: { ...fields, contentType, headers },
    });
    await made.deliver([
      typed(1, 'no json', 'application/avro'),
      typed(2, 'no json', 'application/json'),
      typed(3, 'no json', null),
      typed(4, '1', 'application/json', '["no object"]'),
      typed(5, '5', 'application/json', '{"a":"b"}'),
    ]);
    await made.idle();
    expect(values).toEqual(['no json', '5']);
    expect(dead).toEqual([2n, 3n, 4n]);
    expect([...marked].sort()).toEqual([1n, 2n, 3n, 4n, 5n]);
  });
});

describe('unreachable broker', () => {
  it("the error of an unreachable broker does not quote the client's warnings about its settings", () => {
    const remark = 'CONFWARN: [thrd:app]: Configuration property enable.gapless.guarantee is experimental';
    expect(unreachable({ brokers: 'kafka:9092' }, remark).message).toBe('no broker answers at kafka:9092');
    const refused = 'FAIL: [thrd:kafka:9092/bootstrap]: Connect failed: Connection refused';
    expect(unreachable({ brokers: 'kafka:9092' }, refused).message).toBe(
      `no broker answers at kafka:9092: ${refused}`,
    );
  });
});
