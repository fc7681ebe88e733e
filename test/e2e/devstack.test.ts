/** The embedded stack as a black box: the tests run the real commands and check the servers
 *  themselves. */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { askBroker, type ClusterView } from '../../src/devstack/kafka/wire.ts';
import { startOf, waitForEnd } from '../../src/devstack/process.ts';
import { readState, runningServers, type ServerState } from '../../src/devstack/state.ts';
import { launcher, type Outcome } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { type Addresses, startUp } from '../fixtures/up.ts';
import { describeFull, itFull } from '../tier.ts';
import { until } from '../wait.ts';

const own = launcher();
const DEATH_BOUND_MS = 60_000;
/** Path with commas, quotes and spaces: Kafka splits its folders at commas, shells at quotes and
 *  spaces. */
const base = mkdtempSync(join(tmpdir(), "millrace up, o'clock "));
const folderOf = (name: string) => join(base, name);

const millrace = (...args: readonly string[]): Promise<Outcome> => own.run([...args, '-log-level=warn']);

async function up(folder: string, ...args: readonly string[]): Promise<Addresses> {
  const outcome = await millrace('up', `-dir=${folder}`, '-json', ...args);
  expect(outcome.stderr).toBe('');
  expect(outcome.code).toBe(0);
  return JSON.parse(outcome.stdout);
}

async function query(url: string, sql: string): Promise<readonly Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}

function clusterAt(brokers: string): Promise<ClusterView | undefined> {
  const [host, port] = brokers.split(':');
  return askBroker(host as string, Number(port), 60_000);
}

const processesOf = (servers: readonly ServerState[]) => servers.map((server) => server.process);

afterAll(async () => {
  for (const name of readdirSync(base)) await millrace('down', `-dir=${folderOf(name)}`);
  rmSync(base, { recursive: true, force: true });
});

describe('persistent stack', () => {
  const folder = folderOf('stays');
  let first: Addresses;
  let clusterId: string | undefined;

  beforeAll(async () => {
    // Two concurrent calls: the first starts the stack, the second waits and finds it.
    const [a, b] = await Promise.all([up(folder), up(folder)]);
    expect(b).toEqual(a);
    first = a;
    clusterId = (await clusterAt(first.brokers))?.clusterId;
  });

  it('up prints the two addresses and nothing else as JSON', () => {
    expect(Object.keys(first).sort()).toEqual(['brokers', 'postgres']);
    expect(first.brokers).toMatch(/^127\.0\.0\.1:\d+$/);
    expect(first.postgres).toMatch(/^postgres:\/\/millrace:[0-9a-f]+@127\.0\.0\.1:\d+\/millrace$/);
    expect(clusterId).toMatch(/^[\w-]{22}$/);
  });

  itFull('the database refuses a wrong password', async () => {
    const wrongUrl = first.postgres.replace(/:[0-9a-f]+@/, ':wrong@');
    await expect(query(wrongUrl, 'select 1')).rejects.toThrow(/password authentication failed/);
  });

  it('a second up finds the running stack at the same addresses', async () => {
    const outcome = await millrace('up', `-dir=${folder}`);
    expect(outcome.stdout).toContain('already running');
    expect(outcome.stdout).toContain(first.brokers);
    expect(outcome.stdout).toContain(first.postgres);
  });

  itFull('up refuses to move a running stack to another port', async () => {
    const outcome = await millrace('up', `-dir=${folder}`, '-kafka-port=1');
    expect(outcome.code).toBe(2);
    expect(outcome.stderr).toMatch(
      /^error: -kafka-port=1: the broker of .* runs already, on port \d+; .*millrace down/,
    );
  });

  itFull('a second stack does not start on the port of the first', async () => {
    const port = first.brokers.split(':')[1] as string;
    const outcome = await millrace('up', `-dir=${folderOf('busy')}`, `-kafka-port=${port}`);
    expect(outcome.code).toBe(3);
    expect(outcome.stderr.trim().split('\n')).toHaveLength(1);
    expect(outcome.stderr).toContain(`port ${port} of 127.0.0.1 is in use`);
    expect(runningServers(folderOf('busy'))).toEqual([]);
  });

  itFull('tables and the cluster stay through down and up, on the same ports', async () => {
    await query(first.postgres, 'create table kept as select 42 as answer');
    const servers = runningServers(folder);
    expect(servers.map((server) => server.name).sort()).toEqual(['kafka-1', 'postgres']);
    const down = await millrace('down', `-dir=${folder}`, '-json');
    expect(JSON.parse(down.stdout)).toMatchObject({ stopped: ['kafka-1', 'postgres'], killed: [] });
    expect(processesOf(servers).map((id) => startOf(id.pid))).toEqual([undefined, undefined]);
    expect(await up(folder)).toEqual(first);
    expect(await query(first.postgres, 'select answer from kept')).toEqual([{ answer: 42 }]);
    expect((await clusterAt(first.brokers))?.clusterId).toBe(clusterId);
  });

  itFull.each([
    ['kafkaClusterId', 'AAAAAAAAAAAAAAAAAAAAAA', 'the broker'],
    ['postgresSystemId', '1', 'PostgreSQL'],
  ])('up refuses servers whose identity is not the recorded one: %s', async (field, value, named) => {
    const path = join(folder, 'identity.json');
    const recorded = readFileSync(path, 'utf8');
    writeFileSync(path, JSON.stringify({ ...JSON.parse(recorded), [field]: value }));
    try {
      const outcome = await millrace('up', `-dir=${folder}`);
      expect(outcome.code).toBe(3);
      expect(outcome.stderr).toContain(named);
      expect(outcome.stderr).toContain('[wrong_server]');
    } finally {
      writeFileSync(path, recorded, { mode: 0o600 });
    }
  });

  itFull.each(['postgres', 'kafka-1'])(
    'up restarts a killed server and leaves the other alone: %s',
    async (name) => {
      const before = runningServers(folder);
      const killed = before.find((server) => server.name === name) as ServerState;
      process.kill(killed.process.pid, 'SIGKILL');
      expect(await waitForEnd([killed.process], DEATH_BOUND_MS)).toBe(true);
      const outcome = await millrace('up', `-dir=${folder}`);
      expect(outcome).toMatchObject({ code: 0, stderr: '' });
      expect(outcome.stdout).toMatch(/^ready in /);
      expect(outcome.stdout).toContain(first.brokers);
      expect(outcome.stdout).toContain(first.postgres);
      const after = runningServers(folder);
      expect(after.map((server) => server.name).sort()).toEqual(['kafka-1', 'postgres']);
      for (const { name: other, process: id } of after) {
        const was = before.find((server) => server.name === other)?.process;
        expect([other, id.start === was?.start]).toEqual([other, other !== name]);
      }
      expect(await query(first.postgres, 'select answer from kept')).toEqual([{ answer: 42 }]);
      expect((await clusterAt(first.brokers))?.clusterId).toBe(clusterId);
      // The folder records all servers: `up` finds a complete stack, and `down` can end it.
      expect((await millrace('up', `-dir=${folder}`)).stdout).toContain('already running');
      expect(
        readState(folder)
          ?.servers.map((server) => server.process.pid)
          .sort(),
      ).toEqual(after.map((server) => server.process.pid).sort());
    },
  );

  itFull('up moves a killed server to another port where a foreign process has taken its own', async () => {
    const postgres = runningServers(folder).find((server) => server.name === 'postgres') as ServerState;
    process.kill(postgres.process.pid, 'SIGKILL');
    expect(await waitForEnd([postgres.process], DEATH_BOUND_MS)).toBe(true);
    const port = Number(new URL(first.postgres).port);
    const foreignServer = createServer();
    await new Promise<void>((resolve, reject) => {
      foreignServer.once('error', reject).listen(port, '127.0.0.1', resolve);
    });
    try {
      const moved = await up(folder);
      expect(moved.postgres).not.toBe(first.postgres);
      expect(await query(moved.postgres, 'select answer from kept')).toEqual([{ answer: 42 }]);
    } finally {
      await new Promise((resolve) => foreignServer.close(resolve));
    }
  });

  it('down without a running stack says so and ends with 0', async () => {
    await millrace('down', `-dir=${folder}`);
    const outcome = await millrace('down', `-dir=${folder}`);
    expect(outcome).toMatchObject({ code: 0, stderr: '' });
    expect(outcome.stdout).toContain('nothing is running');
  });

  itFull('up refuses a foreign database in the place of its own before it writes', async () => {
    // The recorded identity is swapped while nothing runs, so the freshly started servers do not
    // match it.
    const path = join(folder, 'identity.json');
    const recorded = readFileSync(path, 'utf8');
    writeFileSync(path, JSON.stringify({ ...JSON.parse(recorded), postgresSystemId: '2' }));
    try {
      const outcome = await millrace('up', `-dir=${folder}`);
      expect(outcome.code).toBe(3);
      expect(outcome.stderr).toContain('[wrong_server]');
      expect(runningServers(folder)).toEqual([]);
    } finally {
      writeFileSync(path, recorded, { mode: 0o600 });
    }
  });
});

describeFull('ephemeral stack', () => {
  it('an ephemeral stack runs beside another one, ends when its owner is killed, and leaves no folder', async () => {
    const before = new Set(readdirSync(tmpdir()));
    const child = startUp(own, ['-ephemeral', '-kafka-heap=300MiB']);
    const { brokers, postgres } = await child.addresses();
    const mine = readdirSync(tmpdir())
      .filter((name) => /^millrace-\w{6}$/.test(name) && !before.has(name))
      .map((name) => join(tmpdir(), name))
      .find((folder) => readState(folder)?.brokers.some((node) => brokers.endsWith(`:${node.port}`)));
    expect(mine).toBeDefined();
    const servers = runningServers(mine as string);
    expect(servers).toHaveLength(2);
    const kafka = servers.find(({ name }) => name === 'kafka-1') as ServerState;
    const words = readFileSync(`/proc/${kafka.process.pid}/cmdline`, 'utf8').split('\0');
    expect(words.filter((word) => word.startsWith('-Xmx'))).toEqual(['-Xmx300m']);
    await query(postgres, 'create table t as select 1');
    child.kill('SIGKILL');
    expect(await waitForEnd(processesOf(servers), DEATH_BOUND_MS)).toBe(true);
    await until('the end of the folder', () => !existsSync(mine as string));
  });

  it('an ephemeral stack ends on SIGTERM with exit 0', async () => {
    const child = startUp(own, ['-ephemeral']);
    const { brokers } = await child.addresses();
    await child.drain();
    expect(await clusterAt(brokers)).toBeUndefined();
  });

  it('up refuses -ephemeral with a folder', async () => {
    const outcome = await millrace('up', '-ephemeral', `-dir=${folderOf('x')}`);
    expect(outcome.code).toBe(2);
  });
});

describeFull('interrupted start', () => {
  it('an up that is killed leaves no process, and the folder can be started again', async () => {
    let folder = '';
    let servers: readonly ServerState[] = [];
    for (let turn = 1, isReady = true; isReady; turn++) {
      folder = folderOf(`cut-${turn}`);
      const child = startUp(own, [`-dir=${folder}`]);
      // The kill comes when the broker's process exists, long before it is ready, unless this test
      // stalls in between. In that case the loop tries again.
      await until('the process of the broker', () => existsSync(join(folder, 'run', 'kafka-1.pid')), 240_000);
      servers = runningServers(folder);
      child.kill('SIGKILL');
      await child.ended;
      isReady = await child.addresses().then(
        () => true,
        () => false,
      );
      expect(turn).toBeLessThan(4);
      if (isReady) await millrace('down', `-dir=${folder}`);
    }
    expect(await waitForEnd(processesOf(servers), DEATH_BOUND_MS)).toBe(true);
    await until('the end of the servers', () => runningServers(folder).length === 0);
    await up(folder);
    expect(runningServers(folder)).toHaveLength(2);
    await millrace('down', `-dir=${folder}`);
  });

  it('up formats a half-formatted folder again', async () => {
    const folder = folderOf('half');
    for (const name of ['run', 'logs', 'postgres.part', 'kafka-1'])
      mkdirSync(join(folder, name), { recursive: true });
    writeFileSync(join(folder, 'postgres.part', 'PG_VERSION'), '18\n');
    await up(folder);
    expect(existsSync(join(folder, 'postgres.part'))).toBe(false);
    await millrace('down', `-dir=${folder}`);
  });
});

describeFull('foreign folders', () => {
  it('up refuses a folder with other files', async () => {
    const folder = folderOf('others');
    mkdirSync(folder);
    writeFileSync(join(folder, 'thesis.txt'), 'mine');
    const outcome = await millrace('up', `-dir=${folder}`);
    expect(outcome.code).toBe(2);
    expect(outcome.stderr).toContain('[strange_folder]');
    expect(readdirSync(folder)).toEqual(['thesis.txt']);
  });

  it('up refuses a folder below a file', async () => {
    const file = folderOf('file');
    writeFileSync(file, '');
    const outcome = await millrace('up', `-dir=${join(file, 'below')}`);
    expect(outcome.code).toBe(2);
    expect(outcome.stderr).toContain('[not_writable]');
    rmSync(file);
  });

  it('up refuses a port that another process holds', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    const outcome = await millrace('up', `-dir=${folderOf('port')}`, `-postgres-port=${port}`);
    server.close();
    expect(outcome.code).toBe(3);
    expect(outcome.stderr).toContain('[busy_port]');
  });

  it('up without Java reports that Java is missing', async () => {
    const env = { PATH: folderOf('nothing'), HOME: base };
    const outcome = await own.run(['up', `-dir=${folderOf('java')}`], { env });
    expect(outcome.code).toBe(3);
    expect(outcome.stderr).toContain('[missing_tool]');
  });
});

describe('doctor', () => {
  it('the doctor finds the shared stack fit and reports it in one document', async () => {
    const { brokers, postgres } = await sharedStack();
    const outcome = await millrace('doctor', `-brokers=${brokers}`, `-postgres=${postgres}`, '-json');
    const document = JSON.parse(outcome.stdout);
    expect(document.checks.filter((check: { verdict: string }) => check.verdict === 'fail')).toEqual([]);
    const ids = document.checks.map((check: { id: string }) => check.id);
    for (const id of ['node', 'librdkafka', 'broker-listeners', 'postgres-wal-level', 'postgres-slots']) {
      expect(ids).toContain(id);
    }
    expect(outcome.code).toBe(0);
  });

  itFull('the doctor exits 1 and names the server that does not answer', async () => {
    const outcome = await millrace('doctor', '-brokers=127.0.0.1:1');
    expect(outcome.code).toBe(1);
    expect(outcome.stdout).toMatch(/^fail +broker-listeners +no broker answers .*127\.0\.0\.1:1;/m);
  });
});
