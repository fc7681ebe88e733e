/** Rights of the table in docs/how-to/secured-kafka.md: a command runs on existing topics with
 *  exactly the rights of its row. Without one of them it is refused, or limited as the page says.
 */
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ask } from '../../src/demo/contracts/model.ts';
import type { Stack } from '../../src/devstack/stack.ts';
import { openBroker, readBrokerConfig } from '../../src/drivers.ts';
import { orderSchema } from '../../src/gen/order-versions.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { batchOf } from '../contract/broker-world.ts';
import { type Right, setRights } from '../fixtures/acl.ts';
import { runConsumer, startConsumer } from '../fixtures/consumer.ts';
import { connectPool, createTables } from '../fixtures/database.ts';
import { runEngine } from '../fixtures/engine.ts';
import { runGen } from '../fixtures/gen.ts';
import { startOwned } from '../fixtures/own-stack.ts';
import { runPayments, startPayments } from '../fixtures/payments.ts';
import { launcher, type Outcome, type Running } from '../fixtures/process.ts';
import { runProducer } from '../fixtures/producer.ts';
import { runRegistry, startRegistry } from '../fixtures/registry.ts';
import { runRelay } from '../fixtures/relay.ts';
import { read } from '../repository/root.ts';
import { arrival, until } from '../wait.ts';
import { insert } from './relay-kit.ts';
import { startService } from './shipping-kit.ts';

const own = launcher();
const SCHEMA = 'rights';
const SHIPPING_SCHEMA = 'rights_shipping';
const RECORDS = 'records';
const QUARANTINE = 'records.quarantine';
const LINES = 'lines';
const EVENTS = 'order.events';
const PARCELS = 'parcel.events';
const WINDOWS = 'windows';
const RESULTS = 'results';
const ORDERS = 'orders';
const ORDERS_QUARANTINE = 'orders.quarantine';
const PROGRESS = 'orders.quarantine.redriven';
const SCHEMAS = 'schemas';
const SCHEMAS_LEADER = 'schemas-leader';

let stack: Stack;
let pool: SqlPool;
/** -registry of a registry in memory. */
let registry: string;
const flagOf = (user: 'admin' | 'client'): string => `-broker-config=${stack.clients?.[user]}`;
const database = (): readonly string[] => [`-postgres=${stack.postgres}`, `-schema=${SCHEMA}`];

const topic = (name: string, operation: Right['operation']): Right => ({
  resource: 'topic',
  pattern: 'literal',
  name,
  operation,
});
const transactions = (name: string, pattern: Right['pattern']): Right => ({
  resource: 'transactionalId',
  pattern,
  name,
  operation: 'write',
});
const group = (name: string): Right => ({
  resource: 'group',
  pattern: 'literal',
  name,
  operation: 'read',
});

beforeAll(async () => {
  stack = await startOwned(undefined, undefined, 'sasl_ssl');
  pool = await connectPool(stack.postgres, { schema: SCHEMA });
  await createTables(pool, SCHEMA, 'orders', 'relay');
  const config = readBrokerConfig({ file: stack.clients?.admin as string });
  const driver = await openBroker('auto', config);
  const at = { brokers: config.brokers as string, clientId: 'test' };
  const admin = await driver.admin(at);
  const names = [RECORDS, QUARANTINE, LINES, EVENTS, PARCELS, WINDOWS, ORDERS, ORDERS_QUARANTINE];
  const compacted = { 'cleanup.policy': 'compact' };
  await admin.createTopics([
    ...names.map((name) => ({ topic: name, partitions: 1 })),
    ...[RESULTS, PROGRESS, SCHEMAS, SCHEMAS_LEADER].map((name) => {
      return { topic: name, partitions: 1, config: compacted };
    }),
  ]);
  await admin.close();
  const producer = await driver.producer(at);
  const rows = ['{"n":1}', 'not JSON'].map((text) => ({ value: Buffer.from(text), partition: 0 }));
  expect(await producer.produce(batchOf(rows), [RECORDS])).toMatchObject({ delivered: 2 });
  await producer.close();
  // Payments and the engine have something to read, whichever tests run.
  done(await publish('admin'));
  done(await generate('admin'));
  const url = `http://${await startRegistry(own, ['-store=memory'], 'memory').ready()}`;
  registry = `-registry=${url}`;
  const fields = [{ name: 'other', type: 'int' }];
  const schema = JSON.stringify({ type: 'record', name: 'Order', fields });
  await ask(url, 'POST', `/subjects/${OTHER_SUBJECT}/versions`, { schema });
  await quarantineOne();
});
afterAll(async () => {
  await pool?.close();
  await stack?.close();
});

/** Fails with the log of the command unless it ended with 0. */
function done({ code, stdout, stderr }: Outcome): string {
  if (code !== 0) throw new Error(`it ended with code ${code}: ${stderr}`);
  return stdout;
}

/** Adds an order and runs the relay until no row is pending. */
async function publish(user: 'admin' | 'client', ...flags: readonly string[]): Promise<Outcome> {
  const order_id = randomUUID();
  const order = { order_id, account_id: '7', amount_cents: '100', status: 'created' };
  await insert(pool, order_id, JSON.stringify({ ...order, created_at: new Date().toISOString() }));
  const common = [flagOf(user), ...database(), `-topic=${EVENTS}`, '-wake=off', '-exit-when-drained'];
  return runRelay(own, [...common, ...flags]);
}
const generate = (user: 'admin' | 'client'): Promise<Outcome> =>
  runGen(own, ['-kind=events', '-count=100', flagOf(user), `-out=kafka:${WINDOWS}`]);

const SUBJECT = `${ORDERS}-value`;
/** Subject whose readers cannot read the records of the other one. */
const OTHER_SUBJECT = `${ORDERS}-other`;
/** Moves a record to the quarantine that readers of SUBJECT can read. */
async function quarantineOne(): Promise<void> {
  const path = join(own.dir, 'order.avsc');
  writeFileSync(path, orderSchema(1, 'avro'));
  const common = [flagOf('admin'), registry, `-topic=${ORDERS}`];
  done(
    await runProducer(own, [
      ...[...common, '-format=avro', `-subject=${SUBJECT}`],
      ...[`-schema=${path}`, '-count=1'],
    ]),
  );
  done(await runConsumer(own, [...common, `-subject=${OTHER_SUBJECT}`, '-group=setup', '-exit-at-end']));
}
const ofQuarantine = (): readonly string[] => [
  ...[flagOf('client'), registry, `-topic=${ORDERS}`, `-subject=${SUBJECT}`, '-json'],
];
const listQuarantine = (): Promise<Outcome> => runConsumer(own, [...ofQuarantine(), '-quarantine']);
const lists = async (): Promise<void> => {
  const { left } = JSON.parse(done(await listQuarantine())) as { left: number };
  expect(left).toBeGreaterThan(0);
};
async function redrive(): Promise<Outcome> {
  await quarantineOne();
  return runConsumer(own, [...ofQuarantine(), '-redrive']);
}
const redrives = async (): Promise<void> => {
  const { redriven, failed } = JSON.parse(done(await redrive())) as { redriven: number; failed: number };
  expect(redriven).toBeGreaterThan(0);
  expect(failed).toBe(0);
};
/** Starts a redrive that cannot end. */
const startRedrive = async (): Promise<Running> => {
  await quarantineOne();
  return startConsumer(own, [...ofQuarantine(), '-redrive']);
};

const contractsFlags = (): readonly string[] => [
  ...['-store=kafka', flagOf('client'), `-schemas-topic=${SCHEMAS}`],
];
const runContracts = (): Promise<Outcome> => runRegistry(own, contractsFlags());
const startContracts = async (): Promise<Running> => startRegistry(own, contractsFlags(), 'contracts');
/** Status of a write to a registry in a topic. */
async function register(): Promise<number> {
  const contracts = await startContracts();
  const url = `http://${await contracts.ready()}`;
  const answer = await ask(url, 'POST', `/subjects/${randomUUID()}/versions`, { schema: '"string"' });
  await contracts.die();
  return answer.status;
}
const registers = async (): Promise<void> => expect(await register()).toBe(200);
const registersNothing = async (): Promise<void> => expect(await register()).toBeGreaterThanOrEqual(500);

const consume = (): Promise<Outcome> =>
  runConsumer(own, [
    ...[flagOf('client'), `-topic=${RECORDS}`, '-group=readers', `-out=kafka:${LINES}`],
    ...['-exit-at-end', '-json'],
  ]);
const fence = (): Promise<Outcome> => publish('client', '-fence=broker');
const paymentsFlags = (): readonly string[] => [
  ...[flagOf('client'), ...database(), `-topic=${EVENTS}`, '-group=charges', '-migrate'],
];
const charge = (): Promise<Outcome> => runPayments(own, [...paymentsFlags(), '-exit-at-end']);
const aggregate = (): Promise<Outcome> =>
  runEngine(own, [
    ...[flagOf('client'), `-topic=${WINDOWS}`, '-size=1s', `-sink=kafka:${RESULTS}`, '-bounded'],
    `-state-dir=${join(own.dir, randomUUID())}`,
  ]);
const list = (): Promise<Outcome> => own.run(['topic', 'list', flagOf('client')]);

const ship = () =>
  startService(
    packageRoot(),
    ['examples/shipping/shipping.mjs', stack.brokers, stack.postgres, SHIPPING_SCHEMA, PARCELS],
    { ...process.env, MILLRACE_BROKER_CONFIG: stack.clients?.client },
  );
/** Moves a parcel and waits for the effect; `seen` must be in the log before the end. */
async function shipOne(seen?: string): Promise<void> {
  const { child, ended, stderr } = ship();
  const parcel = randomUUID();
  child.stdin?.write(`${parcel} 1-packed\n`);
  await until('the effect of a move', async () => {
    if (child.exitCode !== null) return true;
    const sql = `SELECT FROM ${SHIPPING_SCHEMA}.history WHERE parcel = $1::uuid`;
    return (await pool.query(sql, [parcel])).rowCount === 1;
  });
  if (seen !== undefined)
    await until(`${seen} in the log`, () => child.exitCode !== null || stderr().includes(seen));
  child.stdin?.end();
  await ended;
  expect(child.exitCode, stderr()).toBe(0);
}
/** Moves a parcel and waits for a reason in the log, while the service continues. */
async function shipsNothing(reason: RegExp): Promise<void> {
  const { child, ended, stderr } = ship();
  child.stdin?.write(`${randomUUID()} 1-packed\n`);
  await until(`${reason} in the log`, () => child.exitCode !== null || reason.test(stderr()));
  expect(child.exitCode, stderr()).toBeNull();
  child.kill('SIGKILL');
  await ended;
}

/** Expectation for a run without one right. */
type Without = () => Promise<void>;
const fails =
  (run: () => Promise<Outcome>, reason = '[broker_forbidden]'): Without =>
  async () => {
    const { code, stderr } = await run();
    expect(stderr).toContain(reason);
    expect(code, stderr).toBeGreaterThan(1);
  };

/** Expects a refusal in the log of a process that may continue. */
const logs =
  (start: () => Promise<Running>): Without =>
  async () => {
    const running = await start();
    const refusal = /authorization failed/i;
    let over = false;
    void running.ended.then(() => {
      over = true;
    });
    await until('a refusal in the log', () => over || refusal.test(running.log()));
    running.kill('SIGKILL');
    await running.ended;
    expect(running.log()).toMatch(refusal);
  };

interface Row {
  /** Line of the page after the commands. */
  readonly cells: string;
  /** Fails unless the command did its work. */
  readonly works: () => Promise<void>;
  readonly rights: ReadonlyArray<readonly [right: Right, without: Without]>;
}

const NO_RETENTION = 'does not report the retention.ms';
const published = async (outcome: Promise<Outcome>): Promise<void> => {
  done(await outcome);
  expect((await pool.query('SELECT FROM outbox WHERE published_at IS NULL')).rowCount).toBe(0);
};
const relays = (): Promise<void> => published(publish('client'));

const ROWS: Readonly<Record<string, Row>> = {
  '`producer`, `gen`': {
    cells: 'Write | | |',
    works: async () => void done(await generate('client')),
    rights: [[topic(WINDOWS, 'write'), fails(() => generate('client'))]],
  },
  '`consumer`': {
    cells: 'Read; Write on the quarantine and output topic | Read on `-group` | |',
    works: async () =>
      expect(JSON.parse(done(await consume()))).toMatchObject({ records: 2, quarantined: 1 }),
    rights: [
      [topic(RECORDS, 'read'), fails(consume)],
      [topic(QUARANTINE, 'write'), fails(consume)],
      [topic(LINES, 'write'), fails(consume)],
      [group('readers'), fails(consume)],
    ],
  },
  '`consumer -quarantine`': {
    cells: 'Read on the quarantine topic and on QUARANTINE`.redriven` | | |',
    works: lists,
    rights: [
      [topic(ORDERS_QUARANTINE, 'read'), fails(listQuarantine)],
      [topic(PROGRESS, 'read'), lists],
    ],
  },
  '`consumer -redrive`': {
    cells:
      'Read on the quarantine topic; Read, Write, DescribeConfigs on QUARANTINE`.redriven`; Write on the topic or the output | | Write on `millrace-redrive-` and the quarantine topic |',
    works: redrives,
    rights: [
      [topic(ORDERS_QUARANTINE, 'read'), fails(redrive)],
      [topic(PROGRESS, 'read'), logs(startRedrive)],
      [topic(PROGRESS, 'write'), logs(startRedrive)],
      [topic(PROGRESS, 'describeConfigs'), redrives],
      [topic(ORDERS, 'write'), fails(redrive, 'does not exist')],
      [transactions('millrace-redrive-orders.quarantine', 'literal'), logs(startRedrive)],
    ],
  },
  '`relay`': {
    cells: 'Write, DescribeConfigs | | |',
    works: relays,
    rights: [
      [topic(EVENTS, 'write'), fails(() => publish('client'))],
      [topic(EVENTS, 'describeConfigs'), relays],
    ],
  },
  '`relay -fence=broker`': {
    cells: 'Write, DescribeConfigs | | Write on `millrace-relay-` (prefix) |',
    works: () => published(fence()),
    rights: [
      [topic(EVENTS, 'write'), fails(fence)],
      [topic(EVENTS, 'describeConfigs'), () => published(fence())],
      [transactions('millrace-relay-', 'prefixed'), fails(fence, 'Transactional Id authorization failed')],
    ],
  },
  '`payments`': {
    cells: 'Read, DescribeConfigs | Read on `-group` | |',
    works: async () => {
      done(await charge());
      const { rows } = await pool.query<{ orders: number; charges: number }>(
        `SELECT (SELECT count(*)::int FROM outbox WHERE published_at IS NOT NULL) AS orders,
           (SELECT count(*)::int FROM charges) AS charges`,
      );
      expect(rows[0]?.charges).toBe(rows[0]?.orders);
      expect(rows[0]?.charges).toBeGreaterThan(0);
    },
    rights: [
      [topic(EVENTS, 'read'), fails(charge)],
      [group('charges'), fails(charge)],
      [
        topic(EVENTS, 'describeConfigs'),
        async () => {
          const payments = startPayments(own, paymentsFlags());
          await until(`${NO_RETENTION} in the log`, () => payments.log().includes(NO_RETENTION));
          await payments.drain();
        },
      ],
    ],
  },
  'service of the library': {
    cells:
      "Write, DescribeConfigs for `service.relay`; Read, DescribeConfigs for `service.consume` | Read on `NAME-INBOX` | with `fence: 'broker'` Write on `millrace-relay-` (prefix) |",
    works: () => shipOne(),
    rights: [
      [topic(PARCELS, 'write'), () => shipsNothing(/authorization failed/i)],
      [topic(PARCELS, 'read'), () => shipsNothing(/TOPIC_AUTHORIZATION_FAILED/)],
      [topic(PARCELS, 'describeConfigs'), () => shipOne(NO_RETENTION)],
      [
        group('shipping-history_inbox'),
        async () => {
          const { child, ended, stderr } = ship();
          await arrival('the end of the service', ended, stderr);
          expect(child.exitCode, stderr()).toBe(1);
          expect(stderr()).toMatch(/"part":"consumer".*\[broker_forbidden\]/);
        },
      ],
    ],
  },
  '`engine`': {
    cells:
      'Read; Write on the topic of `-sink=kafka:` and of late events; Create and Write on `TOPIC.quarantine`, unless `-quarantine=off` | Read on `-group` with `-source=group` | |',
    works: async () => void done(await aggregate()),
    rights: [
      [topic(WINDOWS, 'read'), fails(aggregate)],
      [topic(RESULTS, 'write'), fails(aggregate, '[sink_missing]')],
    ],
  },
  '`registry`': {
    cells:
      'Read, Write, DescribeConfigs on `-schemas-topic`; Read, Write on that name with `-leader` | | Write on `millrace-registry-` and the topic |',
    works: registers,
    rights: [
      [topic(SCHEMAS, 'read'), fails(runContracts, 'sends no records')],
      [topic(SCHEMAS, 'write'), registersNothing],
      [topic(SCHEMAS, 'describeConfigs'), registers],
      [topic(SCHEMAS_LEADER, 'read'), fails(runContracts, 'sends no records')],
      [topic(SCHEMAS_LEADER, 'write'), registersNothing],
      [transactions('millrace-registry-schemas', 'literal'), logs(startContracts)],
    ],
  },
  '`doctor`, `topic list`': {
    cells: 'Describe | | |',
    works: async () => expect(done(await list())).toContain(EVENTS),
    rights: [[topic(EVENTS, 'describe'), async () => expect(done(await list())).not.toContain(EVENTS)]],
  },
};

const page = read('docs/how-to/secured-kafka.md');

it('every row of the table of rights has a case here', () => {
  const table = page
    .slice(page.indexOf('| command | topic | group | transactional id |'))
    .split('\n\n', 1)[0];
  const commands = [...(table as string).matchAll(/^\| (.+?) \|/gm)].map(([, command]) => command as string);
  expect(commands.slice(2).sort()).toEqual(Object.keys(ROWS).sort());
});

describe.each(Object.entries(ROWS))('rights of %s', (command, { cells, works, rights }) => {
  it('the rights of the row are enough for topics that exist', async () => {
    expect(page).toContain(`| ${command} | ${cells}\n`);
    await setRights(
      stack.folder,
      'client',
      rights.map(([right]) => right),
    );
    await works();
  });

  it.each(
    rights.map(
      ([right, without]) =>
        [`${right.operation} on ${right.resource} ${right.name}`, right, without] as const,
    ),
  )(
    'a user without the right %s is refused, or limited as the page says',
    async (_text, missing, without) => {
      await setRights(
        stack.folder,
        'client',
        rights.map(([right]) => right).filter((right) => right !== missing),
      );
      await without();
    },
  );
});
