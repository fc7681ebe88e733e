/** `engine savepoint` and `engine -savepoint` on a real broker: the results of the old job and
 *  those of a new one that begins with the savepoint are together those of all events. */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { certificate } from '../../src/devstack/certificates.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchProducer, BrokerAdmin } from '../../src/io/kafka/port.ts';
import { batchOf } from '../contract/broker-world.ts';
import { consumedAt, runEngine, startEngine } from '../fixtures/engine.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { tokenIssuer } from '../fixtures/tokens.ts';
import { until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const ROUND = 20_000;
const SIZE_MS = 60_000;
const AT = 1_750_000_020_000;
const USERS = 1000;
const topic = `savepoint-${own.suffix}`;
let admin: BrokerAdmin;
let producer: BatchProducer;

/** Event n: 10 ms apart, two partitions. */
const eventOf = (n: number) => ({ user: `user-${n % USERS}`, at: AT + n * 10, amount: n });

async function send(round: number): Promise<void> {
  const rows = Array.from({ length: ROUND }, (_, i) => {
    const n = round * ROUND + i;
    return { partition: n % 2, value: Buffer.from(JSON.stringify(eventOf(n))) };
  });
  expect((await producer.produce(batchOf(rows, 4 << 20), [topic])).failed).toBe(0);
}

/** Rows of all windows of the first events: user, start, end, count and sum. */
function expected(events: number, fromEnd = 0): string[] {
  const rows = new Map<string, { count: number; sum: number }>();
  for (let n = 0; n < events; n++) {
    const { user, at, amount } = eventOf(n);
    const start = at - (at % SIZE_MS);
    if (start + SIZE_MS <= fromEnd) continue;
    const name = `${user},${start},${start + SIZE_MS}`;
    const row = rows.get(name) ?? { count: 0, sum: 0 };
    rows.set(name, { count: row.count + 1, sum: row.sum + amount });
  }
  return [...rows].map(([name, { count, sum }]) => `${name},${count},${sum}`).sort();
}

const folder = (name: string): string => join(own.dir, name);
const flags = (state: string, ...more: readonly string[]): readonly string[] => [
  ...[`-brokers=${stack.brokers}`, `-topic=${topic}`, `-state-dir=${folder(state)}`, `-size=${SIZE_MS}ms`],
  ...['-format=json', '-key=user', '-time=at:ms', '-value=amount', '-idle-timeout=0', '-allowed-skew=100ms'],
  ...['-snapshot-after=32KiB', '-checkpoint-interval=50ms', '-batch-rows=500', '-allowed-lateness=0'],
  ...more,
];

async function rowsOf(state: string): Promise<string[]> {
  const { code, stdout, stderr } = await runEngine(own, ['export', `-state-dir=${folder(state)}`]);
  expect(code, stderr).toBe(0);
  const [, ...rows] = stdout.trim().split('\n');
  return rows.map((row) => row.split(',').slice(0, 5).join()).sort();
}

const savepoint = (...more: readonly string[]) => runEngine(own, ['savepoint', ...more]);

beforeAll(async () => {
  const options = { brokers: stack.brokers, clientId: 'engine-savepoint', connectTimeoutMs: 60_000 };
  admin = await nodeRdkafkaDriver.admin(options);
  producer = await nodeRdkafkaDriver.producer(options);
  await admin.createTopics([{ topic, partitions: 2 }]);
  await send(0);
});
afterAll(async () => {
  await producer?.close();
  await admin?.close();
});

/** Runs the first job to the end of the topic, saves its state while it runs, and kills it. */
async function runFirst(state: string, out: string): Promise<void> {
  const one = startEngine(own, flags(state));
  const address = await one.ready();
  await until('all events', async () => ((await consumedAt(address)) === ROUND ? true : undefined));
  const saved = await savepoint(`-url=http://${address}`, `-out=${folder(out)}`);
  expect(saved, saved.stderr).toMatchObject({ code: 0 });
  expect(saved.stdout).toContain(`start a new job with -savepoint=${folder(out)}`);
  expect(existsSync(join(folder(state), 'pins')) && readdirSync(join(folder(state), 'pins'))).toEqual([]);
  await one.die();
}

describe('savepoint of a job', () => {
  it('a job that begins with the savepoint of a running engine has the results from there on, through a SIGKILL', async () => {
    await runFirst('first', 'saved');
    expect(readdirSync(folder('saved'))).toEqual(
      expect.arrayContaining(['savepoint.manifest', 'spill', 'keys']),
    );
    const before = await rowsOf('first');
    await send(1);
    const again = flags('second', `-savepoint=${folder('saved')}`);
    const killed = await runEngine(own, [...again, '-chaos=kill-after=5000']);
    expect(killed.signal).toBe('SIGKILL');
    const bounded = await runEngine(own, [...again, '-bounded', '-json', '-shards=3']);
    expect(bounded, bounded.stderr).toMatchObject({ code: 0 });
    expect(JSON.parse(bounded.stdout)).toMatchObject({ consumed: 2 * ROUND, droppedLate: 0, invalid: 0 });
    const after = await rowsOf('second');
    // No result of the old job is computed again, except those that fired after the savepoint.
    expect(after.length).toBeLessThan(expected(2 * ROUND).length);
    expect([...new Set([...before, ...after])].sort()).toEqual(expected(2 * ROUND));
  });

  it('a stopped engine is saved from its folder, a running one is not', async () => {
    const one = startEngine(own, flags('stopped'));
    const address = await one.ready();
    await until('the events', async () => ((await consumedAt(address)) >= ROUND ? true : undefined));
    const refused = await savepoint(`-state-dir=${folder('stopped')}`, `-out=${folder('saved-2')}`);
    expect(refused).toMatchObject({ code: 3, stderr: expect.stringContaining('give -url=http://HOST:PORT') });
    expect(existsSync(folder('saved-2'))).toBe(false);
    await one.drain();
    const saved = await savepoint(`-state-dir=${folder('stopped')}`, `-out=${folder('saved-2')}`, '-json');
    expect(saved, saved.stderr).toMatchObject({ code: 0 });
    expect(JSON.parse(saved.stdout)).toMatchObject({ topic, folder: folder('saved-2') });
    const resumed = await runEngine(
      own,
      flags('from-stopped', `-savepoint=${folder('saved-2')}`, '-bounded', '-json'),
    );
    expect(resumed, resumed.stderr).toMatchObject({ code: 0 });
    const both = [...(await rowsOf('stopped')), ...(await rowsOf('from-stopped'))];
    expect([...new Set(both)].sort()).toEqual(expected(2 * ROUND));
  });

  it('a SIGKILL during a savepoint leaves no savepoint, and the next one is complete', async () => {
    const out = folder('killed');
    const one = startEngine(own, ['savepoint', `-state-dir=${folder('stopped')}`, `-out=${out}`], 'saving');
    let isOver = false;
    void one.ended.then(() => {
      isOver = true;
    });
    await until('the first file, or the end', () => {
      const files = existsSync(`${out}.unfinished`) ? readdirSync(`${out}.unfinished`) : [];
      return isOver || files.length > 1 || existsSync(out) ? true : undefined;
    });
    one.kill('SIGKILL');
    await one.ended;
    // A process that was faster than the signal has made the whole savepoint.
    if (!existsSync(out)) {
      const missing = await runEngine(own, flags('none', `-savepoint=${out}`));
      expect(missing).toMatchObject({ code: 2, stderr: expect.stringContaining('[savepoint_missing]') });
      expect((await savepoint(`-state-dir=${folder('stopped')}`, `-out=${out}`)).code).toBe(0);
    }
    const resumed = await runEngine(own, flags('after-kill', `-savepoint=${out}`, '-bounded'));
    expect(resumed, resumed.stderr).toMatchObject({ code: 0 });
  });

  it('a damaged savepoint is refused with its file, and one of another job with its flags', async () => {
    const out = folder('saved-2');
    const jobs = await runEngine(own, [
      ...flags('other', `-savepoint=${out}`).filter((flag) => !flag.startsWith('-size')),
      '-size=2m',
    ]);
    expect(jobs.code, jobs.stderr).toBe(2);
    expect(jobs.stderr).toMatch(
      /the savepoint .* was made by another job: -size was 60000ms, is 120000ms.*\[job_changed\]/,
    );
    expect(readdirSync(folder('other'))).toEqual(['lock']);
    const name = readdirSync(out).find((one) => one.startsWith('changelog')) as string;
    const bytes = readFileSync(join(out, name));
    bytes[40] = (bytes[40] as number) ^ 255;
    writeFileSync(join(out, name), bytes);
    const damaged = await runEngine(own, flags('other', `-savepoint=${out}`));
    expect(damaged.code).toBe(1);
    expect(damaged.stderr).toContain(`${name} has changed since it was written`);
    expect(readdirSync(folder('other'))).toEqual(['lock']);
  });

  it('a secured engine is saved with a token over https, and by no reader of its windows', async () => {
    const file = (name: string, text: string): string => {
      writeFileSync(folder(name), text);
      return folder(name);
    };
    const authority = certificate({ subject: [['CN', 'test authority']], authority: true });
    const served = certificate({ subject: [['CN', 'engine']], issuer: authority, ips: ['127.0.0.1'] });
    const issuer = tokenIssuer({ aud: 'windows' });
    const one = startEngine(own, [
      ...flags('secured'),
      `-tls-cert=${file('cert.pem', served.cert)}`,
      `-tls-key=${file('key.pem', served.key)}`,
      `-auth-rules=${file('rules', 'jwt:ops admin windows\njwt:desk read windows\n')}`,
      `-auth-jwks=${file('keys.json', issuer.keys)}`,
      ...['-auth-jwt-issuer=issuer', '-auth-jwt-audience=windows', '-auth-jwt-algorithms=ES256'],
      ...['-auth-jwt-name=client', '-metrics-listen=127.0.0.1:0'],
    ]);
    const origin = await one.origin();
    const tokenOf = (client: string): string =>
      file(`token-${client}`, issuer.bearer({ client }).replace('Bearer ', ''));
    const save = (client: string, out: string) =>
      savepoint(
        `-url=${origin}`,
        `-url-ca=${file('ca.pem', authority.cert)}`,
        `-url-token-file=${tokenOf(client)}`,
        `-out=${folder(out)}`,
      );
    const saved = await until('a restored engine', async () => {
      const { code, stderr } = await save('ops', 'secured-1');
      if (code !== 0) throw new Error(stderr);
      return true;
    });
    expect(saved).toBe(true);
    const refused = await save('desk', 'secured-2');
    expect(refused).toMatchObject({ code: 3, stderr: expect.stringContaining('the right to admin windows') });
    expect(existsSync(folder('secured-2'))).toBe(false);
    await one.drain();
  });

  it('a state of another origin is not replaced, and wrong flags are refused', async () => {
    const other = await runEngine(own, flags('stopped', `-savepoint=${folder('saved')}`));
    expect(other).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('did not begin with the savepoint'),
    });
    expect(await savepoint(`-state-dir=${folder('stopped')}`)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('needs -out'),
    });
    expect(await runEngine(own, flags('stopped', '-out=x'))).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('-out changes nothing without savepoint'),
    });
    const both = await runEngine(own, flags('stopped', '-savepoint=x', '-start=latest'));
    expect(both).toMatchObject({ code: 2, stderr: expect.stringContaining('-start') });
    const nowhere = await savepoint('-url=http://127.0.0.1:1', `-out=${folder('nowhere')}`);
    expect(nowhere).toMatchObject({ code: 3, stderr: expect.stringContaining('[unreachable]') });
    expect(existsSync(folder('nowhere'))).toBe(false);
  });
});
