/** Results for a user: the default sink and a topic as the sink, exported and queried over HTTP. */
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { hashPassword } from '../../src/access/index.ts';
import { consumedAt, exportedRows, runEngine, startEngine } from '../fixtures/engine.ts';
import { generateEvents } from '../fixtures/gen.ts';
import { scrape } from '../fixtures/metrics.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { tokenIssuer } from '../fixtures/tokens.ts';
import { until } from '../wait.ts';
import { oracleOf, rowText } from './engine-kit.ts';

const own = launcher();
const stack = await sharedStack();
const EVENTS = 20_000;
const topic = `results-${own.suffix}`;
const RULES = { sizeMs: 1000n, skewMs: 500n, latenessMs: 500n };

const stateDir = (name: string): string => join(own.dir, `state-${name}`);
const args = (name: string, ...more: readonly string[]): readonly string[] => [
  `-brokers=${stack.brokers}`,
  `-topic=${topic}`,
  '-size=1s',
  '-allowed-skew=500ms',
  '-allowed-lateness=500ms',
  // No partition becomes idle, so the firings do not depend on arrival times.
  '-idle-timeout=0',
  `-state-dir=${stateDir(name)}`,
  ...more,
];

const exported = (name: string, ...more: readonly string[]): Promise<string[]> =>
  exportedRows(own, [`-brokers=${stack.brokers}`, `-state-dir=${stateDir(name)}`, ...more]);

let expected: string[];
let expectedFinal: string[];

beforeAll(async () => {
  await generateEvents(own, { brokers: stack.brokers, topic }, [
    `-count=${EVENTS}`,
    '-per-ms=2',
    '-accounts=500',
    '-partitions=2',
  ]);
  const oracle = await oracleOf(stack.brokers, topic, RULES);
  expected = [...oracle.rows()].map(rowText).sort();
  expectedFinal = [...oracle.rows(true)].map(rowText).sort();
  expect(expectedFinal.length).toBeGreaterThan(1000);
});

describe('default sink', () => {
  it.each(['auto', 'off'])(
    'the default sink with -native=%s is the folder fired, exported consistently',
    async (native) => {
      const name = `default-${native}`;
      const run = await runEngine(own, args(name, '-bounded', `-native=${native}`));
      expect({ code: run.code, error: run.code === 0 ? '' : run.stderr }).toEqual({ code: 0, error: '' });
      expect(existsSync(join(stateDir(name), 'fired', 'CURRENT'))).toBe(true);
      expect((await exported(name, `-native=${native}`)).sort()).toEqual(expected);
      const again = await runEngine(own, args(name, '-bounded', `-native=${native}`));
      expect(again.code).toBe(0);
      expect((await exported(name, `-native=${native}`)).sort()).toEqual(expected);
    },
  );

  it('the default sink with -retain has the newest windows alone', async () => {
    const run = await runEngine(own, args('retained', '-bounded', '-retain=1s'));
    expect({ code: run.code, error: run.code === 0 ? '' : run.stderr }).toEqual({ code: 0, error: '' });
    const startOf = (row: string): number => Number(row.split(',')[1]);
    const newest = Math.max(...expected.map(startOf));
    const rows = await exported('retained');
    const kept = new Set(rows);
    expect(rows.filter((row) => !expected.includes(row))).toEqual([]);
    expect(expected.filter((row) => startOf(row) === newest && !kept.has(row))).toEqual([]);
    expect(rows.length).toBeLessThan(expected.length);
    expect(Math.min(...rows.map(startOf))).toBeGreaterThan(Math.min(...expected.map(startOf)));
  });

  it('the default sink marks no window final that a bounded run fired early', async () => {
    const bounded = await runEngine(own, args('drained', '-bounded'));
    expect(bounded.code).toBe(0);
    const engine = startEngine(own, args('drained'), 'drained');
    const address = await engine.address();
    const finals = new Set(expectedFinal);
    const accounts = [...new Set(expected.map((row) => row.split(',')[0] as string))].slice(0, 50);
    for (const id of accounts) {
      const answer = await until('an answer', async () => {
        const got = await fetch(`http://${address}/windows/${id}?open=true&limit=10000`);
        return got.ok ? ((await got.json()) as object[]).map(rowText) : undefined;
      });
      const mine = expected.filter((row) => row.startsWith(`${id},`));
      expect(answer.sort()).toEqual(mine.map((row) => `${row},${finals.has(row)}`).sort());
    }
    await engine.drain();
  }, 300_000);

  it('the default sink returns every window of an account page by page, also after a restart', async () => {
    const [accountId] = (expectedFinal[0] as string).split(',') as [string];
    const wanted = expectedFinal
      .filter((row) => row.startsWith(`${accountId},`))
      .sort((a, b) => Number(a.split(',')[1]) - Number(b.split(',')[1]));
    for (const life of [1, 2]) {
      const engine = startEngine(own, args('pages', '-checkpoint-interval=100ms'), `engine-${life}`);
      const address = await engine.address();
      const all = async (query: string): Promise<string[]> => {
        const rows: string[] = [];
        for (let path: string | undefined = `/windows/${accountId}?${query}`; path !== undefined; ) {
          const answer: Response = await fetch(`http://${address}${path}`);
          expect(answer.status).toBe(200);
          rows.push(...((await answer.json()) as object[]).map(rowText));
          path = /^<(.*)>; rel="next"$/.exec(answer.headers.get('link') ?? '')?.[1];
        }
        return rows;
      };
      // Open windows are complete once every event is read; fired windows may be complete earlier.
      await until('the end of the topic', async () => (await consumedAt(address)) === EVENTS);
      await until('all fired windows', async () =>
        (await all('limit=3')).length === wanted.length ? true : undefined,
      );
      expect(await all('limit=3')).toEqual(wanted);
      const open = await all('limit=4&open=true');
      expect(open.slice(0, wanted.length)).toEqual(wanted.map((row) => `${row},true`));
      const whole = expected.filter((row) => row.startsWith(`${accountId},`));
      expect(open).toHaveLength(whole.length);
      expect(open.slice(wanted.length).every((row) => row.endsWith(',false'))).toBe(true);
      const description = (await (await fetch(`http://${address}/openapi.json`)).json()) as {
        openapi: string;
      };
      expect(description.openapi).toBe('3.1.0');
      await engine.drain();
    }
  });

  it('an engine with access rules answers only clients that may read windows', async () => {
    const file = (name: string, text: string): string => {
      writeFileSync(join(own.dir, name), text);
      return join(own.dir, name);
    };
    const hashed = await hashPassword('a right password');
    const users = file('users', `desk:${hashed}\nshop:${hashed}\n`);
    const rules = file('rules', 'basic:desk read windows\nbasic:shop read orders\njwt:board read windows\n');
    const issuer = tokenIssuer({ aud: 'windows' });
    const gated = [
      `-auth-rules=${rules}`,
      `-auth-basic=${users}`,
      `-auth-jwks=${file('keys.json', issuer.keys)}`,
      '-auth-jwt-issuer=issuer',
      '-auth-jwt-audience=windows',
      '-auth-jwt-algorithms=ES256',
      '-auth-jwt-name=client',
      '-auth-jwt-leeway=5s',
      '-auth-failure-rate=1000',
      '-client-rate=1000',
    ];
    const engine = startEngine(own, args('gated', ...gated), 'gated');
    const address = await engine.address();
    const statusOf = async (path: string, user?: string): Promise<number> => {
      const credentials = Buffer.from(`${user}:a right password`).toString('base64');
      const headers = user === undefined ? {} : { authorization: `Basic ${credentials}` };
      return (await fetch(`http://${address}${path}`, { headers })).status;
    };
    await until('a restored engine', async () => (await statusOf('/watermark', 'desk')) === 200);
    for (const path of ['/watermark', '/windows/7']) {
      expect(await statusOf(path)).toBe(401);
      expect(await statusOf(path, 'shop')).toBe(403);
      expect(await statusOf(path, 'desk')).toBe(200);
    }
    for (const path of ['/openapi.json', '/metrics', '/health']) expect(await statusOf(path)).toBe(200);
    const withToken = async (claims: object): Promise<number> => {
      const headers = { authorization: issuer.bearer(claims) };
      return (await fetch(`http://${address}/watermark`, { headers })).status;
    };
    expect(await withToken({ client: 'board' })).toBe(200);
    expect(await withToken({ client: 'board', aud: 'orders' })).toBe(401);
    const metrics = await scrape(address);
    expect(metrics).toMatch(/^engine_auth_decisions_total\{.*\} [1-9]/m);
    expect(metrics).toMatch(/^# TYPE engine_auth_reloads_total counter$/m);
    await engine.drain();
    const alone = await runEngine(own, args('alone', `-auth-basic=${users}`, '-log-level=error'));
    expect(alone).toMatchObject({ code: 2, stderr: expect.stringContaining('without -auth-rules') });
    const plain = await runEngine(
      own,
      args('plain', `-auth-rules=${rules}`, '-auth-mtls', '-log-level=error'),
    );
    expect(plain).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('-auth-mtls needs -tls-client-ca'),
    });
  });

  it.each(['auto', 'off'])(
    'the default sink with -native=%s exports the durable rows while its engine runs',
    async (native) => {
      const name = `running-${native}`;
      const folder = join(stateDir(name), 'fired');
      const kinds = [`-native=${native}`, '-log-level=info'];
      const engine = startEngine(own, args(name, ...kinds, '-batch-rows=500'), name);
      const address = await engine.address();
      const durable = async (): Promise<number> => {
        const text = await scrape(address);
        return Number(/^engine_sink_rows_total(?:\{.*\})? (\d+)/m.exec(text)?.[1]);
      };
      const final = new Set(expectedFinal);
      await until('the first results', async () => ((await durable()) > 0 ? true : undefined), 60_000);
      // The engine removes the copy of a reader that died.
      const dead = join(`${folder}.copies`, 'dead');
      mkdirSync(dead, { recursive: true });
      writeFileSync(join(dead, 'lock'), JSON.stringify({ pid: 0, start: '', host: hostname() }));
      writeFileSync(join(dead, 'wanted'), '');
      for (let last: readonly string[] = []; last.length < final.size; ) {
        const before = await durable();
        const rows = await exported(name, ...kinds);
        const after = await durable();
        expect(new Set(rows).size).toBe(rows.length);
        expect(rows.filter((row) => !final.has(row))).toEqual([]);
        expect(rows.length).toBeGreaterThanOrEqual(before);
        expect(rows.length).toBeLessThanOrEqual(after);
        const exportedNow = new Set(rows);
        expect(last.filter((row) => !exportedNow.has(row))).toEqual([]);
        last = rows;
      }
      await until('removal of the dead copy', async () => {
        const left = readdirSync(`${folder}.copies`, { recursive: true });
        if (left.length > 0) throw new Error(`copies has ${left.join(', ')}`);
        return true;
      });
      engine.kill('SIGSTOP');
      const unanswered = await runEngine(own, [
        'export',
        `-state-dir=${stateDir(name)}`,
        `-native=${native}`,
        '-export-wait=500ms',
        '-log-level=error',
      ]);
      expect(unanswered).toMatchObject({
        code: 3,
        stdout: '',
        stderr: expect.stringContaining('[kv_locked]'),
      });
      expect(unanswered.stderr).toContain('-export-wait');
      engine.kill('SIGCONT');
      await engine.drain();
      expect((await exported(name, ...kinds)).sort()).toEqual(expectedFinal);
      expect(readdirSync(`${folder}.copies`)).toEqual([]);
    },
  );

  it('the default sink never becomes an expiring store, nor an expiring store the sink', async () => {
    const postgres = [`-sink=postgres:${stack.postgres}`, `-sink-table=results_${own.suffix}`, '-migrate'];
    const beside = await runEngine(own, args('roles', '-bounded', '-retain=1s', ...postgres));
    expect(beside.code).toBe(0);
    const refused = await runEngine(own, args('roles', '-bounded', '-log-level=error'));
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('has expired windows') });
  });
});

describe('topic sink', () => {
  it('a topic sink is created by -migrate, holds every result once, and is exported', async () => {
    const sink = `-sink=kafka:results-out-${own.suffix}`;
    const missing = await runEngine(own, args('topic', '-bounded', sink, '-log-level=error'));
    expect(missing).toMatchObject({ code: 2, stderr: expect.stringContaining('-migrate') });
    for (let turn = 0; turn < 2; turn++) {
      const run = await runEngine(own, args(`topic-${turn}`, '-bounded', sink, '-migrate', '-partitions=2'));
      expect({ code: run.code, error: run.code === 0 ? '' : run.stderr }).toEqual({ code: 0, error: '' });
    }
    // Both runs wrote all results, so the topic has every record twice.
    expect((await exported('topic-0', sink)).sort()).toEqual(expected);
  });

  it('a topic sink is refused where it is the topic that is read or has no valid name', async () => {
    for (const [sink, line] of [
      [`kafka:${topic}`, /is the topic that is read/],
      ['kafka:a b', /is not the name of a topic/],
      ['kafka:', /is not the name of a topic/],
      ['rocksdb:', /choose from rocksdb/],
      ['postgres:shop', /no database URL after the colon/],
    ] as const) {
      const run = await runEngine(own, args('bad', '-bounded', `-sink=${sink}`, '-log-level=error'));
      expect(run).toMatchObject({ code: 2, stderr: expect.stringMatching(line) });
    }
    const nothing = await runEngine(own, ['export', `-state-dir=${stateDir('none')}`, '-log-level=error']);
    expect(nothing).toMatchObject({ code: 1, stderr: expect.stringContaining('there is no store') });
    const brokers = await runEngine(own, ['export', '-sink=kafka:x', '-log-level=error']);
    expect(brokers).toMatchObject({ code: 2, stderr: expect.stringContaining('-brokers is required') });
  });
});
