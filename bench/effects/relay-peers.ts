/** Peers of the relay: downloaded at first use into .millrace/bench, with versions pinned by the
 *  files in bench/peers. */
import { type ChildProcess, spawn } from 'node:child_process';
import { cpSync, existsSync, openSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { javaProgram } from '../../src/devstack/kafka/server.ts';
import { freePort } from '../../src/devstack/ports.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { peerFolder, peerSource, runForPeer } from '../peer-folder.ts';
import { intoOutbox, PAYLOAD, type RelaySide, type RunningSide, withOrders } from './relay-side.ts';
import { type Database, until, type World } from './world.ts';

const READY_MS_MAX = 120_000;
const STOP_MS_MAX = 20_000;

/** DDL of the orders table only: a peer's outbox has its own shape. */
const ORDERS = `CREATE TABLE orders (order_id uuid PRIMARY KEY, account_id bigint NOT NULL, amount_cents bigint NOT NULL,
  status text NOT NULL, created_at timestamptz NOT NULL DEFAULT now())`;

/** Starts a child that ends with this process; its output goes to a file of the run. */
function child(
  world: World,
  name: string,
  command: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): RunningSide & { readonly process: ChildProcess } {
  const log = openSync(join(world.dir, `${name}.log`), 'a');
  const owned = existsSync('/usr/bin/setpriv');
  const words = owned ? ['--pdeathsig', 'KILL', command, ...args] : [...args];
  const process_ = spawn(owned ? '/usr/bin/setpriv' : command, words, {
    stdio: ['ignore', log, log],
    env: { ...process.env, ...env },
  });
  const ended = new Promise<void>((resolve) => process_.once('close', () => resolve()));
  return {
    process: process_,
    pids: [process_.pid as number],
    async stop() {
      process_.kill('SIGTERM');
      const late = setTimeout(() => process_.kill('SIGKILL'), STOP_MS_MAX);
      await ended;
      clearTimeout(late);
    },
  };
}

async function slotActive({ pool }: Database): Promise<boolean> {
  const { rows } = await pool.query<{ readonly n: bigint }>(
    'SELECT count(*) AS n FROM pg_replication_slots WHERE database = current_database() AND active',
  );
  return (rows[0]?.n ?? 0n) > 0n;
}

/** Kafka Connect standalone with Debezium and its outbox event router. */
async function debezium(world: World): Promise<RelaySide> {
  const version = '3.6.0.Final';
  const libraries = await peerFolder('debezium', version, async (folder) => {
    const pom = join(peerSource('debezium'), 'pom.xml');
    const into = `-DoutputDirectory=${folder}`;
    await runForPeer('mvn', ['-B', '-q', '-f', pom, 'dependency:copy-dependencies', into]);
  });
  const start = async (database: Database, topic: string): Promise<RunningSide> => {
    const url = new URL(database.url);
    const file = (kind: string): string => join(world.dir, `debezium-${database.name}.${kind}`);
    const worker = {
      'bootstrap.servers': world.brokers,
      listeners: `HTTP://127.0.0.1:${await freePort()}`,
      'offset.storage.file.filename': file('offsets'),
      'key.converter': 'org.apache.kafka.connect.storage.StringConverter',
      'value.converter': 'org.apache.kafka.connect.converters.ByteArrayConverter',
      'producer.acks': 'all',
    };
    const connector = {
      name: 'outbox',
      'connector.class': 'io.debezium.connector.postgresql.PostgresConnector',
      'plugin.name': 'pgoutput',
      'database.hostname': url.hostname,
      'database.port': url.port,
      'database.user': url.username,
      'database.password': url.password,
      'database.dbname': database.name,
      'topic.prefix': 'bench',
      'slot.name': `dbz_${database.name}`,
      'publication.name': 'dbz',
      'publication.autocreate.mode': 'filtered',
      'table.include.list': 'public.outbox',
      'snapshot.mode': 'no_data',
      'poll.interval.ms': '10',
      transforms: 'outbox',
      'transforms.outbox.type': 'io.debezium.transforms.outbox.EventRouter',
      'transforms.outbox.table.field.event.id': 'msg_id',
      'transforms.outbox.table.field.event.key': 'aggregate_id',
      'transforms.outbox.table.field.event.type': 'event_type',
      'transforms.outbox.route.by.field': 'event_type',
      'transforms.outbox.route.topic.replacement': topic,
    };
    for (const [kind, settings] of [
      ['worker', worker],
      ['connector', connector],
    ] as const) {
      const lines = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
      writeFileSync(file(kind), `${lines.join('\n')}\n`);
    }
    return child(world, `debezium-${database.name}`, javaProgram(process.env), [
      '-Xmx1g',
      '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
      '-cp',
      join(libraries, '*'),
      'org.apache.kafka.connect.cli.ConnectStandalone',
      file('worker'),
      file('connector'),
    ]);
  };
  return {
    name: `Debezium ${version}, outbox event router`,
    rowsMax: 200_000,
    rateMax: 5000,
    async prepare(database, topic) {
      await database.pool.query(ORDERS);
      await database.pool.query(
        `CREATE TABLE outbox (id bigserial PRIMARY KEY, aggregate_id uuid NOT NULL, msg_id uuid NOT NULL,
           event_type text NOT NULL, payload bytea NOT NULL, published_at timestamptz,
           created_at timestamptz NOT NULL DEFAULT now())`,
      );
      const first = await start(database, topic);
      await until('the slot of Debezium', READY_MS_MAX, () => slotActive(database)).finally(first.stop);
    },
    insert: intoOutbox,
    start,
  };
}

/** Watermill's forwarder over its SQL subscriber. */
async function watermill(world: World): Promise<RelaySide> {
  const version = '1.5.1-sql-3.1.0';
  const folder = await peerFolder('watermill', version, async (part) => {
    cpSync(peerSource('watermill'), part, { recursive: true });
    await runForPeer('go', ['build', '-o', 'forwarder', '.'], part);
  });
  let topicOf = '';
  const start = async (database: Database): Promise<RunningSide> => {
    const url = new URL(database.url);
    url.searchParams.set('sslmode', 'disable');
    return child(world, `watermill-${database.name}`, join(folder, 'forwarder'), [
      url.href,
      world.brokers,
      'events',
    ]);
  };
  return {
    name: 'Watermill forwarder, watermill-sql 3.1.0',
    rowsMax: 50_000,
    rateMax: 1000,
    async prepare(database, topic) {
      topicOf = topic;
      await database.pool.query(ORDERS);
      const first = await start(database);
      await until('the tables of Watermill', READY_MS_MAX, async () => {
        const { rows } = await database.pool.query<{ readonly there: boolean }>(
          `SELECT to_regclass('watermill_offsets_events') IS NOT NULL AND to_regclass('watermill_events') IS NOT NULL AS there`,
        );
        return rows[0]?.there === true;
      }).finally(first.stop);
    },
    insert: (n) =>
      withOrders(
        n,
        `INSERT INTO watermill_events (uuid, payload, metadata, transaction_id)
         SELECT msg, json_build_object('destination_topic', '${topicOf}', 'uuid', msg,
           'payload', translate(encode(convert_to(${PAYLOAD}, 'UTF8'), 'base64'), E'\\n', ''),
           'metadata', json_build_object('key', id, 'event_type', 'order.created.v1')), '{}'::json, pg_current_xact_id()
         FROM (SELECT id, gen_random_uuid()::text AS msg FROM made) AS events`,
      ),
    start,
  };
}

async function pgTransactionalOutbox(world: World): Promise<RelaySide> {
  const version = '0.5.7';
  const folder = await peerFolder('pg-transactional-outbox', version, async (part) => {
    cpSync(peerSource('pg-transactional-outbox'), part, { recursive: true });
    await runForPeer('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts'], part);
  });
  return {
    name: `pg-transactional-outbox ${version}, replication listener`,
    rowsMax: 20_000,
    rateMax: 1000,
    async prepare({ pool, name }) {
      await pool.query(ORDERS);
      // The same DDL as in its own set-up script.
      await pool.query(
        `CREATE TABLE pto_outbox (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL,
           message_type text NOT NULL, segment text, concurrency text NOT NULL DEFAULT 'sequential',
           payload jsonb NOT NULL, metadata jsonb, locked_until timestamptz NOT NULL DEFAULT to_timestamp(0),
           created_at timestamptz NOT NULL DEFAULT clock_timestamp(), processed_at timestamptz,
           abandoned_at timestamptz, started_attempts smallint NOT NULL DEFAULT 0,
           finished_attempts smallint NOT NULL DEFAULT 0)`,
      );
      await pool.query("CREATE PUBLICATION pto FOR TABLE pto_outbox WITH (publish = 'insert')");
      await pool.query(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, [`pto_${name}`]);
    },
    insert: (n) =>
      withOrders(
        n,
        `INSERT INTO pto_outbox (id, aggregate_type, aggregate_id, message_type, segment, payload)
         SELECT gen_random_uuid(), 'order', id::text, 'order.created.v1', id::text, (${PAYLOAD})::jsonb FROM made`,
      ),
    async start(database, topic) {
      const rdkafka = join(packageRoot(), 'node_modules', 'node-rdkafka');
      return child(
        world,
        `pg-transactional-outbox-${database.name}`,
        process.execPath,
        [join(folder, 'main.mjs'), database.url, world.brokers, topic, rdkafka],
        { SLOT: `pto_${database.name}` },
      );
    },
  };
}

/** Peers by the name that -peers accepts. */
export const PEERS: Readonly<Record<string, (world: World) => Promise<RelaySide>>> = {
  debezium,
  watermill,
  'pg-transactional-outbox': pgTransactionalOutbox,
};
