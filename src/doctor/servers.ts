/** Checks of the configured broker and database. */
import { askBroker, type BrokerAddress } from '../devstack/kafka/wire.ts';
import type { BrokerDriver } from '../io/kafka/port.ts';
import type { SqlDriver, SqlPool } from '../io/postgres/sql/port.ts';
import { type Answer, type Check, fail, ok, warn } from './check.ts';

/** Long enough for a server that is busy for a moment. */
const ANSWER_BOUND_MS = 10_000;
const CLOCK_SKEW_MS_MAX = 1_000;
const RETAINED_BYTES_MAX = 2 ** 30;
const POSTGRES_MIN = 140_000;

function hostAndPort(text: string): { readonly host: string; readonly port: number } | undefined {
  const match = /^\[?([^\]]+?)\]?:(\d{1,5})$/.exec(text.trim());
  return match === null ? undefined : { host: match[1] as string, port: Number(match[2]) };
}

/** Checks that every bootstrap address answers, and every address that the brokers advertise to
 *  clients: a wrong advertised listener breaks only the latter. */
async function listeners(brokers: string): Promise<Answer> {
  const advertised = new Map<string, BrokerAddress>();
  const clusters = new Set<string>();
  for (const text of brokers.split(',')) {
    const at = hostAndPort(text);
    if (at === undefined) return fail(`${text} is not host:port`, 'give -brokers=host:port,…');
    const view = await askBroker(at.host, at.port, ANSWER_BOUND_MS);
    if (view === undefined) {
      return fail(
        `no broker answers in plaintext on ${text}`,
        'check the address; for a listener with TLS or SASL give -broker-config or -broker-property',
      );
    }
    clusters.add(view.clusterId ?? 'unnamed');
    for (const broker of view.brokers) advertised.set(`${broker.host}:${broker.port}`, broker);
  }
  if (clusters.size > 1)
    return fail(`the addresses belong to ${clusters.size} clusters`, 'give the brokers of one cluster');
  if (advertised.size === 0) return fail('no broker of the cluster is alive', 'see the log of the broker');
  for (const [text, { host, port }] of advertised) {
    if ((await askBroker(host, port, ANSWER_BOUND_MS)) === undefined) {
      return fail(
        `the cluster advertises ${text}, which does not answer`,
        'set advertised.listeners to an address that clients reach',
      );
    }
  }
  return ok(`cluster ${[...clusters][0]}, reachable as ${[...advertised.keys()].join(', ')}`);
}

async function walLevel(pool: SqlPool): Promise<Answer> {
  const { rows } = await pool.query<{ wal: string; version: string; number: string }>(
    "select current_setting('wal_level') as wal, current_setting('server_version') as version, current_setting('server_version_num') as number",
  );
  const row = rows[0];
  if (row === undefined || Number(row.number) < POSTGRES_MIN) {
    return fail(`PostgreSQL ${row?.version ?? 'unknown'}`, `use ${POSTGRES_MIN / 10_000} or newer`);
  }
  const found = `PostgreSQL ${row.version}, wal_level=${row.wal}`;
  if (row.wal === 'logical') return ok(found);
  return warn(found, 'the relay can only poll; for -relay=wal set wal_level=logical and restart the server');
}

async function slots(pool: SqlPool): Promise<Answer> {
  const { rows } = await pool.query<{ name: string; active: boolean; retained: string | null }>(
    'select slot_name::text as name, active, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::text as retained from pg_replication_slots',
  );
  const limit = await pool.query<{ most: string }>("select current_setting('max_replication_slots') as most");
  const most = Number(limit.rows[0]?.most ?? 0);
  const idle = rows.filter((row) => !row.active && Number(row.retained ?? 0) > RETAINED_BYTES_MAX);
  if (idle.length > 0) {
    const names = idle.map((row) => row.name).join(', ');
    return warn(
      `no client reads ${names}, which retains over ${RETAINED_BYTES_MAX / 2 ** 30} GiB of log`,
      'start its reader, or drop it with pg_drop_replication_slot',
    );
  }
  const found = `${rows.length} of ${most} replication slots in use`;
  return rows.length < most
    ? ok(found)
    : warn(found, 'raise max_replication_slots before using millrace relay -relay=wal');
}

async function clockSkew(pool: SqlPool): Promise<Answer> {
  const before = Date.now();
  const { rows } = await pool.query<{ ms: string }>(
    'select (extract(epoch from clock_timestamp()) * 1000)::bigint::text as ms',
  );
  const after = Date.now();
  const server = Number(rows[0]?.ms);
  const skew = server < before ? before - server : Math.max(0, server - after);
  const found = `${skew} ms between this clock and the database's`;
  return skew <= CLOCK_SKEW_MS_MAX ? ok(found) : warn(found, 'run a time service on both machines');
}

/** Connects to each address with the properties of the user, as any client of Millrace does. */
async function securedListeners(driver: BrokerDriver, brokers: string): Promise<Answer> {
  const clusters = new Set<string>();
  let topics = 0;
  for (const address of brokers.split(',')) {
    const one = { brokers: address, clientId: 'millrace-doctor', connectTimeoutMs: ANSWER_BOUND_MS };
    const admin = await driver.admin(one);
    try {
      clusters.add(await admin.clusterId());
      topics = (await admin.listTopics()).length;
    } finally {
      await admin.close();
    }
  }
  if (clusters.size > 1)
    return fail(`the addresses belong to ${clusters.size} clusters`, 'give the brokers of one cluster');
  return ok(`cluster ${[...clusters][0]}, ${topics} topics that this client may describe`);
}

/** @param driver opens clients with the properties of the user; undefined: there are none */
export function brokerChecks(brokers: string, driver: BrokerDriver | undefined): readonly Check[] {
  const ask = () => (driver === undefined ? listeners(brokers) : securedListeners(driver, brokers));
  return [{ id: 'broker-listeners', ask }];
}

export function postgresChecks(driver: SqlDriver, url: string): readonly Check[] {
  const onPool = async (ask: (pool: SqlPool) => Promise<Answer>): Promise<Answer> => {
    const pool = await driver.connect({
      url,
      connectionsMax: 1,
      applicationName: 'millrace doctor',
      connectTimeoutMs: ANSWER_BOUND_MS,
      answerTimeoutMs: ANSWER_BOUND_MS,
    });
    try {
      return await ask(pool);
    } finally {
      await pool.close();
    }
  };
  return [
    { id: 'postgres-wal-level', ask: () => onPool(walLevel) },
    { id: 'postgres-slots', ask: () => onPool(slots) },
    { id: 'postgres-clock', ask: () => onPool(clockSkew) },
  ];
}
