/** Digests of whole tables in one database: where those of two sets are equal, every class that
 *  compares the two is empty, and its join can be omitted.
 *
 *  A digest is the count of the rows in range and the sum of the hashes of their ids. One scan a
 *  table, which PostgreSQL runs in parallel, replaces the joins of a run without differences.
 *  Invariant: a class is omitted only if no row could be its member. So digests that differ because
 *  of expired rows, or of rows in flight at the end of the range, cost time and hide nothing.
 */
import type { SqlSession } from '../../io/postgres/sql/port.ts';
import type { Tables } from './deltas.ts';
import { maybeLateSql } from './late.ts';
import { serverVersionOf } from './pairs/side.ts';

interface Scan {
  /** Rows in the table. */
  readonly total: number;
  /** Rows in range. */
  readonly n: number;
  /** Sums and counts by name. */
  readonly of: Readonly<Record<string, string>>;
}

async function scan(
  session: SqlSession,
  table: string,
  inRange: string,
  sums: Readonly<Record<string, string>>,
): Promise<Scan> {
  const list = Object.entries(sums).map(
    ([name, expression]) => `(${expression} FILTER (WHERE ${inRange}))::text AS ${name}`,
  );
  const { rows } = await session.query<Readonly<Record<string, string>>>(
    `SELECT count(*)::text AS total, (count(*) FILTER (WHERE ${inRange}))::text AS n, ${list.join(', ')} FROM ${table}`,
  );
  const row = rows[0] ?? {};
  return { total: Number(row['total']), n: Number(row['n']), of: row };
}

export interface EmptyClasses {
  /** Classes that have no member. */
  readonly classes: ReadonlySet<string>;
  /** Ground truth, if the digests prove it: intents (keys), orders and charges are equal sets. */
  readonly equal: number | undefined;
  /** True if no effect can be late. */
  readonly noneLate: boolean;
  /** True if orders or keys are out of the range. */
  readonly hasOthers: boolean;
}

const sumOf = (id: string, seed = '0'): string => `sum(uuid_hash_extended(${id}, ${seed}))`;

const countOf = (condition: string): string => `count(CASE WHEN ${condition} THEN 1 END)`;

/** Finds the classes that the digests prove to be empty.
 *  @param lateAfterMs bound of class `late`; undefined: lateness is not judged */
export async function readEmptyClasses(
  session: SqlSession,
  t: Tables,
  lateAfterMs: number | undefined,
): Promise<EmptyClasses> {
  const late =
    lateAfterMs === undefined
      ? countOf('true')
      : countOf(maybeLateSql('msg_id', 'processed_at', lateAfterMs, await serverVersionOf(session)));
  const orders = await scan(session, t.orders, t.inOrder(), {
    ids: sumOf('order_id'),
    amounts: sumOf('order_id', 'amount_cents'),
  });
  const keys = await scan(session, t.keys, t.inOrder(), { ids: sumOf('order_id') });
  const outbox = await scan(session, t.outbox, t.in('created_at'), {
    ids: sumOf('aggregate_id'),
    messages: sumOf('msg_id'),
    pending: countOf('published_at IS NULL'),
  });
  const inbox = await scan(session, t.inbox, t.in('processed_at'), {
    messages: sumOf('msg_id'),
    late,
  });
  const charges = await scan(session, t.charges, t.in('created_at'), {
    amounts: sumOf('order_id', 'amount_cents'),
  });
  return judge({ orders, keys, outbox, inbox, charges }, t.hasLedger);
}

type Scans = Readonly<Record<'orders' | 'keys' | 'outbox' | 'inbox' | 'charges', Scan>>;

const equal = (a: Scan, b: Scan, name: string): boolean => a.n === b.n && a.of[name] === b.of[name];

function judge({ orders, keys, outbox, inbox, charges }: Scans, hasLedger: boolean): EmptyClasses {
  const classes = new Set<string>();
  const charged = equal(orders, charges, 'amounts');
  const sent = equal(orders, outbox, 'ids');
  const keyed = equal(orders, keys, 'ids');
  const processed = equal(outbox, inbox, 'messages');
  if (charged)
    for (const name of [
      'order_without_charge',
      'order_parked',
      'charge_without_order',
      'charge_amount_differs',
    ])
      classes.add(name);
  // A second row of an order in range may itself be out of range.
  if (charged && charges.total === charges.n) classes.add('double_charge');
  if (keyed && keys.total === keys.n) classes.add('shared_order');
  if (keyed && !hasLedger) for (const name of ['lost_order', 'ghost_order']) classes.add(name);
  if (sent) for (const name of ['order_without_outbox', 'outbox_without_order']) classes.add(name);
  if (outbox.of['pending'] === '0') classes.add('pending_outbox');
  if (processed) classes.add('inbox_without_outbox');
  if (charged && sent && processed)
    for (const name of ['charge_without_inbox', 'inbox_without_charge']) classes.add(name);
  return {
    classes,
    equal: keyed && charged && keys.total === keys.n && !hasLedger ? orders.n : undefined,
    noneLate: processed && inbox.of['late'] === '0',
    hasOthers: orders.total > orders.n || keys.total > keys.n,
  };
}
