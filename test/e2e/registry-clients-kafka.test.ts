/** The examples of docs/how-to/client-library.md as a user runs them: each Kafka client for Node.js
 *  with the packed client library, on a real broker and a real registry. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { TopicReader } from '../../src/demo/contracts/topic.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { kafkaClients } from '../clients/kit.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { createTopic } from '../fixtures/topic.ts';
import { until } from '../wait.ts';
import { installPackage } from './package-kit.ts';

const EXAMPLES = ['confluent', 'kafkajs', 'node-rdkafka', 'platformatic'] as const;
/** node-rdkafka sends header values as UTF-8 text, which a guid is not. */
const PREFIX_ONLY = 'node-rdkafka';

const own = launcher();
const project = mkdtempSync(join(tmpdir(), 'millrace-kafka-clients-'));
const running = new Set<ChildProcess>();
/** Time limit of the installation of the clients, one of which is compiled. */
const INSTALL_LIMIT_MS = 1_200_000;
let brokers = '';
let url = '';

beforeAll(async () => {
  const clients = await kafkaClients();
  installPackage(project);
  for (const [name, folder] of clients) {
    const link = join(project, 'node_modules', name);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(folder, link);
  }
  cpSync(join(packageRoot(), 'examples/registry-clients'), project, { recursive: true });
  const stack = await sharedStack();
  brokers = stack.brokers;
  url = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
}, INSTALL_LIMIT_MS);
afterAll(() => {
  for (const child of running) child.kill('SIGKILL');
  rmSync(project, { recursive: true, force: true });
});

interface Example {
  /** Printed records so far. */
  records(): readonly string[];
  /** Output of an example that ended by itself; undefined while it runs. */
  failure(): string | undefined;
  stop(): Promise<void>;
}

function start(name: string, topic: string, header: string): Example {
  const args = [join(project, `${name}.mjs`), url, brokers, topic, header];
  const child = spawn(process.execPath, args, { cwd: project, stdio: ['ignore', 'pipe', 'pipe'] });
  running.add(child);
  const ended = once(child, 'close').then(() => running.delete(child));
  let stdout = '';
  let all = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
    all += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    all += text;
  });
  return {
    // Clients also log there.
    records: () => stdout.split('\n').filter((line) => line.startsWith('{ id:')),
    failure: () => (running.has(child) ? undefined : all),
    async stop() {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

async function valuesOf(topic: string): Promise<readonly Buffer[]> {
  const reader = await TopicReader.open(brokers);
  const values: Buffer[] = [];
  try {
    await reader.read([topic], (_, { value }) => {
      values.push(Buffer.from(value as Uint8Array));
    });
  } finally {
    await reader.close();
  }
  return values;
}

it('the examples compile with the types of each Kafka client', () => {
  const compiler = join(packageRoot(), 'node_modules/typescript-native/bin/tsc');
  const strict = ['--strict', '--exactOptionalPropertyTypes', '--skipLibCheck', '--types', 'node'];
  const flags = [
    '--allowJs',
    '--checkJs',
    '--noEmit',
    '--module',
    'nodenext',
    '--target',
    'es2022',
    ...strict,
  ];
  const files = EXAMPLES.map((name) => `${name}.mjs`);
  const { status, stdout } = spawnSync(process.execPath, [compiler, ...flags, ...files], {
    cwd: project,
    encoding: 'utf8',
  });
  expect([status, stdout]).toEqual([0, '']);
});

it.each(['prefix', 'headers'])(
  'every Kafka client for Node.js sends framed records that all others read: schema ids in %s',
  async (header) => {
    const topic = `parcels-${header}-${own.suffix}`;
    await createTopic(brokers, topic, 1);
    const expected = EXAMPLES.map((name) => `{ id: 9007199254740993n, state: 'sent by ${name}' }`);
    const examples = EXAMPLES.map((name) => start(name, topic, name === PREFIX_ONLY ? 'prefix' : header));
    for (const [i, example] of examples.entries()) {
      const isOver = () => example.records().length >= expected.length || example.failure() !== undefined;
      await until(`the records of every client in ${EXAMPLES[i]}`, isOver);
      expect(example.failure(), EXAMPLES[i]).toBeUndefined();
      expect([...example.records()].sort(), EXAMPLES[i]).toEqual(expected);
    }
    await Promise.all(examples.map((example) => example.stop()));

    const registered = await fetch(`${url}/subjects/${topic}-value/versions/latest`);
    const { id } = (await registered.json()) as { readonly id: number };
    const prefix = Buffer.alloc(5);
    prefix.writeUInt32BE(id, 1);
    const values = await valuesOf(topic);
    const prefixed = values.filter((value) => value.subarray(0, prefix.length).equals(prefix));
    expect([values.length, prefixed.length]).toEqual([4, header === 'prefix' ? 4 : 1]);
  },
);
