/** Any interleaving of creating ids, publishing with and without a mark, delivering, crashing,
 *  expiring and clock jumps on a real inbox, compared with a model: no effect happens twice, no
 *  message is lost, and a message is undecidable exactly when it must be. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { coreError, findMillraceError } from '../../src/core/errors.ts';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { isUuidV7, leading48 } from '../../src/outbox/inbox/names.ts';
import { Inbox } from '../../src/outbox/inbox/once.ts';
import { InboxKeeper } from '../../src/outbox/inbox/retention/keeper.ts';
import { readFloorMs } from '../../src/outbox/inbox/retention/partitions.ts';
import { inboxTableSql } from '../../src/outbox/inbox/table.ts';
import { HOUR_MS, idAt, inboxWorld, T0, v4 } from '../e2e/inbox-kit.ts';

const RETENTION_MS = 3 * HOUR_MS;
const RELAY_OUTAGE_MS = HOUR_MS;
const SKEW_MS = HOUR_MS / 4;
const TTL_MS = RETENTION_MS + 2 * RELAY_OUTAGE_MS + SKEW_MS;

const world = await inboxWorld(0, 'unused');

type Step =
  | { readonly do: 'wait'; readonly hours: number }
  | { readonly do: 'jump'; readonly hours: number }
  | { readonly do: 'mint'; readonly version: string; readonly skew: number; readonly count: number }
  | { readonly do: 'publish'; readonly mark: boolean }
  | { readonly do: 'deliver'; readonly pick: number; readonly crash: boolean }
  | { readonly do: 'restore'; readonly pick: number }
  | { readonly do: 'keep'; readonly isBrokerDown: boolean };

const steps = fc.array(
  fc.oneof(
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant('wait' as const),
        hours: fc.double({ min: 0, max: 2, noNaN: true }),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ do: fc.constant('jump' as const), hours: fc.constantFrom(-48, -3, 0, 3, 48) }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constant('mint' as const),
        version: fc.constantFrom('7', '7', '7', '4', '1', '6', '8', 'any'),
        skew: fc.double({ min: -1, max: 1, noNaN: true }),
        count: fc.integer({ min: 1, max: 4 }),
      }),
    },
    { weight: 3, arbitrary: fc.record({ do: fc.constant('publish' as const), mark: fc.boolean() }) },
    {
      weight: 6,
      arbitrary: fc.record({ do: fc.constant('deliver' as const), pick: fc.nat(), crash: fc.boolean() }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('restore' as const), pick: fc.nat() }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant('keep' as const), isBrokerDown: fc.boolean() }) },
  ),
  { minLength: 15, maxLength: 60 },
);

interface Message {
  readonly id: string;
  readonly madeMs: number;
}

let count = 0;
const seenCases = { undecidable: 0, seen: 0, dropped: 0, deleted: 0 };

async function play(script: readonly Step[]): Promise<void> {
  const inbox = new Inbox(`model_${count++}`);
  const { names } = inbox;
  await world.pool.query(inboxTableSql(names.table));
  let nowMs = T0 + 1000 * HOUR_MS;
  let jumpMs = 0;
  let isBrokerDown = false;
  let pending: Message[] = [];
  let log: Array<{ readonly message: Message; readonly publishedMs: number }> = [];
  /** Every message that was published. */
  const archive: Message[] = [];
  const effects = new Map<string, number>();
  const keeper = new InboxKeeper({
    pool: world.pool,
    names,
    sources: {
      databaseNowMs: async () => nowMs + jumpMs,
      processNowMs: () => nowMs,
      topic: async () => {
        if (isBrokerDown) throw coreError('unreachable', 'no broker answers');
        const times = log.map(({ message, publishedMs }) =>
          isUuidV7(message.id) ? Math.min(publishedMs, leading48(message.id)) : publishedMs,
        );
        return {
          retentionMs: RETENTION_MS,
          oldestRecordMs: times.length === 0 ? undefined : Math.min(...times),
          oldestUncommittedMs: undefined,
        };
      },
      outbox: async () =>
        pending.length === 0 ? undefined : Math.min(...pending.map((message) => message.madeMs)),
    },
    ttlMs: TTL_MS,
    parts: { relayOutageMs: RELAY_OUTAGE_MS, consumerOutageMs: RELAY_OUTAGE_MS, clockSkewMs: SKEW_MS },
    unsafe: false,
    widthMs: HOUR_MS,
    aheadMs: HOUR_MS,
    everyMs: 1,
    metrics: new Metrics(),
    log: silentLogger,
    drain: new AbortController().signal,
    sleep: async () => {},
  });

  const deliver = async (message: Message, crash: boolean): Promise<'done' | 'seen' | 'undecidable'> => {
    const floorMs = await readFloorMs(world.pool, names);
    const { rowCount } = await world.pool.query(`SELECT FROM ${names.table} WHERE msg_id = $1`, [message.id]);
    const must =
      rowCount > 0
        ? 'seen'
        : isUuidV7(message.id) && leading48(message.id) < floorMs
          ? 'undecidable'
          : 'done';
    const attempt = world.pool.transaction(async (session) => {
      const once = await inbox.once(session, message.id, async () => undefined);
      await session.query(
        `UPDATE ${names.table} SET processed_at = to_timestamp($2::float8 / 1000) WHERE msg_id = $1 AND $3`,
        [message.id, nowMs, once.kind === 'done'],
      );
      if (crash) throw coreError('internal', 'crashed before the commit');
      return once.kind;
    });
    const kind = await attempt.catch((thrown: unknown) => {
      if (crash && findMillraceError(thrown)?.code === 'internal') return 'crashed' as const;
      throw thrown;
    });
    if (kind === 'crashed') return deliver(message, false);
    expect(kind).toBe(must);
    if (kind === 'done') effects.set(message.id, (effects.get(message.id) ?? 0) + 1);
    return kind;
  };

  for (const step of script) {
    if (step.do === 'wait') nowMs += step.hours * HOUR_MS;
    if (step.do === 'jump') jumpMs = step.hours * HOUR_MS;
    if (step.do === 'mint') {
      for (let i = 0; i < step.count; i++) {
        // The first 48 bits of other UUID versions are no timestamp.
        const clockMs = nowMs + step.skew * (step.version === '7' ? SKEW_MS * 0.9 : 9 * HOUR_MS);
        const id = step.version === 'any' ? v4() : idAt(clockMs, step.version);
        pending.push({ id, madeMs: nowMs });
      }
    }
    if (step.do === 'publish') {
      // An id without a timestamp is published within the planned outage; otherwise the inbox could
      // not decide it.
      const due = pending.filter(({ id, madeMs }) => isUuidV7(id) || nowMs - madeMs <= RELAY_OUTAGE_MS);
      for (const message of due) {
        log.push({ message, publishedMs: nowMs });
        archive.push(message);
      }
      if (step.mark) pending = [];
    }
    log = log.filter(({ publishedMs }) => nowMs - publishedMs <= RETENTION_MS);
    const readable = step.do === 'deliver' ? log[step.pick % Math.max(1, log.length)] : undefined;
    if (step.do === 'deliver' && readable !== undefined) {
      const kind = await deliver(readable.message, step.crash);
      // A record in the topic is never undecidable, or it would be lost.
      expect(kind).not.toBe('undecidable');
      if (kind === 'seen') seenCases.seen++;
    }
    // A topic that was restored from elsewhere delivers records beyond every horizon. A record with
    // a UUIDv7 must at least not take effect twice.
    const old = step.do === 'restore' ? archive[step.pick % Math.max(1, archive.length)] : undefined;
    if (old !== undefined && isUuidV7(old.id)) {
      if ((await deliver(old, false)) === 'undecidable') seenCases.undecidable++;
    }
    if (step.do === 'keep') {
      isBrokerDown = step.isBrokerDown;
      const before = await readFloorMs(world.pool, names);
      const kept = await keeper.turn();
      seenCases.dropped += kept.partitionsDropped;
      seenCases.deleted += kept.rowsDeleted;
      const after = await readFloorMs(world.pool, names);
      expect(after).toBeGreaterThanOrEqual(before);
      if (isBrokerDown || Math.abs(jumpMs) > SKEW_MS)
        expect([kept.partitionsDropped, kept.rowsDeleted, after]).toEqual([0, 0, before]);
    }
    for (const [id, times] of effects) expect(`${id} ${times}`).toBe(`${id} 1`);
  }
  // Every readable record has its effect exactly once.
  for (const { message } of log) await deliver(message, false);
  for (const { message } of log) expect(effects.get(message.id)).toBe(1);
  await world.pool.query(`DROP TABLE ${names.table}, ${names.floor}`);
}

describe('inbox and its keeper', () => {
  it('an inbox never applies a message twice, loses none, and reports undecidable messages as such', async () => {
    await fc.assert(fc.asyncProperty(steps, play), { numRuns: 12, endOnFailure: true });
  });

  it('a restored topic causes no second effect, however it is interleaved with expiry', async () => {
    const late: Step[] = [
      { do: 'keep', isBrokerDown: false },
      { do: 'mint', version: '7', skew: 0, count: 2 },
      { do: 'publish', mark: true },
      { do: 'deliver', pick: 0, crash: false },
      ...Array.from({ length: 8 }, (): Step[] => [
        { do: 'wait', hours: 1 },
        { do: 'keep', isBrokerDown: false },
        { do: 'restore', pick: 0 },
        { do: 'restore', pick: 1 },
      ]).flat(),
    ];
    await play(late);
    expect(seenCases.dropped).toBeGreaterThan(0);
    expect(seenCases.undecidable).toBeGreaterThan(0);
  });
});
