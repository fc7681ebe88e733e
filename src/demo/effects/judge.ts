/** Judges the effects slice from the tables, the topic and the client's ledger; no process reports
 *  about itself. Sets are compared by queries of this file, and again by the reconciler that users
 *  have. */
import { createReadStream } from 'node:fs';
import { pgDriver } from '../../io/postgres/sql/pg.ts';
import type { SqlPool, SqlRow, SqlValue } from '../../io/postgres/sql/port.ts';
import { withSettings } from '../../outbox/database/connection.ts';
import { type LedgerSummary, readLedger, summarizeLedger } from '../../outbox/reconcile/client-ledger.ts';
import { reconcile } from '../../outbox/reconcile/run.ts';
import { TopicReader } from '../contracts/topic.ts';
import type { Fact, SliceContext } from '../fact.ts';

/** State of the database right after a relay died. */
export interface RelayKill {
  readonly signal: string | null;
  /** Rows not yet marked. */
  readonly pending: number;
  /** Database clock, in its text form. */
  readonly at: string;
}

export interface EffectsRun {
  readonly schema: string;
  readonly topic: string;
  readonly group: string;
  readonly ledgerPath: string;
  readonly kills: readonly RelayKill[];
}

/** Smallest fraction of charges with a duplicate delivery, and of intents with a repeat. */
const SUPPRESSED_LEAST = 0.04;
const REPEATED_LEAST = 0.2;
const KILLED_FROM = 0.1;
const KILLED_TO = 0.9;

const n = (value: number): string => value.toLocaleString('en-US');
const percent = (part: number, whole: number): string => `${((100 * part) / Math.max(1, whole)).toFixed(1)}%`;

export function connect(context: SliceContext, schema: string): Promise<SqlPool> {
  return pgDriver.connect({
    url: withSettings(context.stack.postgres, { schema }),
    connectionsMax: 4,
    applicationName: 'millrace demo',
    connectTimeoutMs: 60_000,
  });
}

/** Runs a query that returns one row of counts. */
async function counts<Name extends string>(
  pool: SqlPool,
  sql: string,
  params: readonly SqlValue[] = [],
): Promise<Readonly<Record<Name, number>>> {
  const { rows } = await pool.query(sql, params);
  const row: SqlRow = rows[0] ?? {};
  return Object.fromEntries(Object.entries(row).map(([name, value]) => [name, Number(value)])) as Record<
    Name,
    number
  >;
}

/** The client's intents as a SQL table. */
const INTENDED = `intended AS (
  SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS i(key, account_id, amount_cents))`;

function intendedOf({ intents }: LedgerSummary): readonly SqlValue[] {
  const all = [...intents.values()];
  return [all.map((one) => one.key), all.map((one) => one.accountId), all.map((one) => one.amountCents)];
}

async function setsFact(pool: SqlPool, ledger: LedgerSummary): Promise<Fact> {
  const c = await counts<
    'intents' | 'orders' | 'charges' | 'unordered' | 'unintended' | 'uncharged' | 'unfounded' | 'twice'
  >(
    pool,
    `WITH ${INTENDED}, made AS (SELECT key, order_id FROM intended JOIN idempotency_keys ON idem_key = key JOIN orders USING (order_id))
     SELECT (SELECT count(*) FROM intended) AS intents, (SELECT count(*) FROM orders) AS orders,
       (SELECT count(*) FROM charges) AS charges,
       (SELECT count(*) FROM (SELECT key FROM intended EXCEPT SELECT key FROM made) AS x) AS unordered,
       (SELECT count(*) FROM (SELECT order_id FROM orders EXCEPT SELECT order_id FROM made) AS x) AS unintended,
       (SELECT count(*) FROM (SELECT order_id FROM orders EXCEPT SELECT order_id FROM charges) AS x) AS uncharged,
       (SELECT count(*) FROM (SELECT order_id FROM charges EXCEPT SELECT order_id FROM orders) AS x) AS unfounded,
       (SELECT count(*) FROM (SELECT order_id FROM charges GROUP BY order_id HAVING count(*) > 1) AS x) AS twice`,
    intendedOf(ledger),
  );
  const wrong = c.unordered + c.unintended + c.uncharged + c.unfounded + c.twice;
  return {
    slice: 'effects',
    claim:
      'intents = orders = charges, as sets: every intent was ordered once and charged once, and nothing else was',
    seen: `${n(c.intents)} intents in the client's ledger, ${n(c.orders)} orders, ${n(c.charges)} charges; ${n(c.unordered)} intents without order, ${n(c.unintended)} orders without intent, ${n(c.uncharged)} orders without charge, ${n(c.unfounded)} charges without order, ${n(c.twice)} charged twice`,
    holds: c.intents > 0 && wrong === 0 && c.intents === c.orders && c.orders === c.charges,
  };
}

async function amountsFact(pool: SqlPool, ledger: LedgerSummary): Promise<Fact> {
  const c = await counts<'compared' | 'ordered' | 'charged' | 'cents'>(
    pool,
    `WITH ${INTENDED} SELECT count(*) AS compared, coalesce(sum(c.amount_cents), 0) AS cents,
       count(*) FILTER (WHERE (i.account_id, i.amount_cents) IS DISTINCT FROM (o.account_id, o.amount_cents)) AS ordered,
       count(*) FILTER (WHERE c.amount_cents IS DISTINCT FROM i.amount_cents) AS charged
     FROM intended i JOIN idempotency_keys k ON k.idem_key = i.key JOIN orders o USING (order_id) JOIN charges c USING (order_id)`,
    intendedOf(ledger),
  );
  return {
    slice: 'effects',
    claim: 'every order and every charge has the amount that its client sent',
    seen: `${n(c.compared)} compared, ${n(c.cents)} cents charged; ${n(c.ordered)} orders and ${n(c.charged)} charges differ`,
    holds: c.compared > 0 && c.ordered === 0 && c.charged === 0,
  };
}

async function reconcilerFact(pool: SqlPool, run: EffectsRun): Promise<Fact> {
  const { schema } = run;
  const result = await reconcile({
    pool,
    ordersSchema: schema,
    paymentsSchema: schema,
    ledgers: [() => readLedger(createReadStream(run.ledgerPath))],
    idsMax: 1,
  });
  const deltas = result.deltas.map((delta) => `${delta.class} ${n(delta.count)} (${delta.ids[0]})`);
  return {
    slice: 'effects',
    claim: 'the reconciler reports that the invariant holds',
    seen: `produced_intents ${n(result.produced_intents)}, distinct_orders ${n(result.distinct_orders)}, distinct_charges ${n(result.distinct_charges)}; ${deltas.length === 0 ? `no delta in ${result.classes.length} classes` : deltas.join(', ')}`,
    holds: result.holds && result.produced_intents > 0,
  };
}

async function repliesFact(pool: SqlPool, ledger: LedgerSummary): Promise<Fact> {
  const answered = [...ledger.intents.values()].filter((one) => one.answer !== undefined);
  const { stored } = await counts<'stored'>(
    pool,
    `SELECT count(*) AS stored FROM unnest($1::text[], $2::text[]) AS a(key, answer) JOIN idempotency_keys ON idem_key = key
     WHERE answer = response_code || ' ' || encode(sha256(convert_to(response_body::text, 'UTF8')), 'hex')`,
    [answered.map((one) => one.key), answered.map((one) => one.answer as string)],
  );
  const repeats = answered.reduce((sum, one) => sum + one.acknowledged - 1, 0);
  const keys = answered.filter((one) => one.acknowledged > 1).length;
  const different = answered.reduce((sum, one) => sum + one.different, 0);
  const unstored = answered.length - stored;
  return {
    slice: 'effects',
    claim: 'every repeated request got the first answer byte for byte, and it is the stored one',
    seen: `${n(repeats)} repeats (${percent(repeats, ledger.intents.size)} of the intents) of ${n(keys)} keys; ${n(different)} replies differ from the first one, ${n(unstored)} keys got an answer that is not stored`,
    holds: different === 0 && unstored === 0 && repeats >= REPEATED_LEAST * ledger.intents.size,
  };
}

/** The tables alone show which rows existed and were unpublished when the relay died. */
async function killFact(pool: SqlPool, run: EffectsRun): Promise<Fact> {
  const seen: string[] = [];
  let holds = run.kills.length > 0;
  for (const kill of run.kills) {
    const c = await counts<'later' | 'before' | 'orders'>(
      pool,
      `SELECT (SELECT count(*) FROM outbox WHERE created_at < $1::timestamptz AND published_at > $1::timestamptz) AS later,
         (SELECT count(*) FROM orders WHERE created_at < $1::timestamptz) AS before, (SELECT count(*) FROM orders) AS orders`,
      [kill.at],
    );
    const part = c.before / Math.max(1, c.orders);
    seen.push(
      `${kill.signal ?? 'no signal'} after ${percent(c.before, c.orders)} of the orders with ${n(kill.pending)} rows pending; ${n(c.later)} rows from before were published after`,
    );
    holds &&=
      kill.signal === 'SIGKILL' &&
      kill.pending > 0 &&
      c.later >= kill.pending &&
      part >= KILLED_FROM &&
      part <= KILLED_TO;
  }
  return {
    slice: 'effects',
    claim:
      'the relay was killed in the middle with rows pending, and all of them were published after its restart',
    seen: seen.join('. '),
    holds,
  };
}

/** A message as found in the topic. */
interface TopicMessage {
  readonly key: string;
  readonly partition: number;
  readonly first: bigint;
  times: number;
}

interface TopicContents {
  readonly records: number;
  /** By msg_id; the key undefined holds records without a msg_id. */
  readonly messages: ReadonlyMap<string | undefined, TopicMessage>;
  /** Records with another key or partition than the first record of their msg_id. */
  readonly strays: number;
}

async function readTopic(context: SliceContext, topic: string): Promise<TopicContents> {
  const messages = new Map<string | undefined, TopicMessage>();
  let records = 0;
  let strays = 0;
  const reader = await TopicReader.open(context.stack.brokers);
  try {
    await reader.read([topic], (_, record) => {
      records++;
      const key = Buffer.from(record.key ?? []).toString('utf8');
      const msgId = msgIdOf(record.value);
      const known = messages.get(msgId);
      if (known === undefined)
        messages.set(msgId, { key, partition: record.partition, first: record.offset, times: 1 });
      else {
        known.times++;
        if (known.key !== key || known.partition !== record.partition) strays++;
      }
    });
  } finally {
    await reader.close();
  }
  return { records, messages, strays };
}

function msgIdOf(value: Uint8Array | null): string | undefined {
  try {
    const id = (JSON.parse(Buffer.from(value ?? []).toString('utf8')) as Record<string, unknown>)['msg_id'];
    return typeof id === 'string' ? id : undefined;
  } catch {
    return undefined;
  }
}

interface SentRow extends SqlRow {
  readonly msg_id: string;
  readonly aggregate_id: string;
  readonly is_pending: boolean;
}

function topicFacts(rows: readonly SentRow[], contents: TopicContents): readonly Fact[] {
  const pending = rows.filter((row) => row.is_pending).length;
  const absent = rows.filter((row) => contents.messages.get(row.msg_id)?.key !== row.aggregate_id).length;
  const sent = new Set<string | undefined>(rows.map((row) => row.msg_id));
  const ghosts = [...contents.messages.keys()].filter((msgId) => !sent.has(msgId)).length;
  const repeated = [...contents.messages.values()].filter((one) => one.times > 1).length;

  let several = 0;
  let swapped = 0;
  const last = new Map<string, TopicMessage>();
  for (const row of rows) {
    const message = contents.messages.get(row.msg_id);
    if (message === undefined) continue;
    const ahead = last.get(row.aggregate_id);
    if (ahead !== undefined) {
      several++;
      if (ahead.partition !== message.partition || ahead.first > message.first) swapped++;
    }
    last.set(row.aggregate_id, message);
  }
  return [
    {
      slice: 'effects',
      claim: 'a crash between publish and mark put some msg_id at two offsets of the topic',
      seen: `${n(contents.records)} records of ${n(contents.messages.size)} messages; ${n(repeated)} of them have more than one offset`,
      holds: repeated > 0,
    },
    {
      slice: 'effects',
      claim: 'nothing is pending, every outbox row is in the topic under its order, and nothing else is',
      seen: `${n(rows.length)} rows; ${n(pending)} pending, ${n(absent)} not in the topic, ${n(ghosts)} messages without a row, ${n(contents.strays)} repeats elsewhere`,
      holds: rows.length > 0 && pending === 0 && absent === 0 && ghosts === 0 && contents.strays === 0,
    },
    {
      slice: 'effects',
      claim:
        'the events of an order are in the topic in the order they were written, by their first occurrence',
      seen: `${n(several)} events after another event of the same order, ${n(swapped)} out of order`,
      holds: several > 0 && swapped === 0,
    },
  ];
}

async function suppressedFact(pool: SqlPool): Promise<Fact> {
  const c = await counts<'charges' | 'suppressed' | 'injected' | 'inserted' | 'noted' | 'parked'>(
    pool,
    `SELECT (SELECT count(*) FROM charges) AS charges, count(*) AS suppressed, count(*) FILTER (WHERE injected) AS injected,
       (SELECT coalesce(sum(inserted), 0) FROM payments_batches) AS inserted,
       (SELECT coalesce(sum(suppressed), 0) FROM payments_batches) AS noted,
       (SELECT count(*) FROM payments_parked) AS parked
     FROM payments_suppressed s WHERE EXISTS (SELECT FROM inbox i WHERE i.msg_id = s.msg_id)`,
  );
  return {
    slice: 'effects',
    claim: 'at least 4% of the charges were delivered again, and every such delivery was suppressed',
    seen: `${n(c.suppressed)} deliveries suppressed (${percent(c.suppressed, c.charges)} of ${n(c.charges)} charges), ${n(c.injected)} of them injected and ${n(c.suppressed - c.injected)} published again; the batches say ${n(c.inserted)} charged, ${n(c.noted)} suppressed, ${n(c.parked)} parked`,
    holds:
      c.charges > 0 &&
      c.suppressed >= SUPPRESSED_LEAST * c.charges &&
      c.suppressed > c.injected &&
      c.suppressed === c.noted &&
      c.parked === 0,
  };
}

export async function judgeEffects(context: SliceContext, run: EffectsRun): Promise<readonly Fact[]> {
  const pool = await connect(context, run.schema);
  try {
    const ledger = await summarizeLedger(readLedger(createReadStream(run.ledgerPath)));
    const contents = await readTopic(context, run.topic);
    const { rows } = await pool.query<SentRow>(
      'SELECT msg_id, aggregate_id, published_at IS NULL AS is_pending FROM outbox ORDER BY id',
    );
    return [
      await setsFact(pool, ledger),
      await amountsFact(pool, ledger),
      await reconcilerFact(pool, run),
      await repliesFact(pool, ledger),
      await killFact(pool, run),
      ...topicFacts(rows, contents),
      await suppressedFact(pool),
    ];
  } finally {
    await pool.close();
  }
}
