/** Runs the example of a service with an outbox and an inbox (examples/shipping) as a process, and
 *  kills it in the middle. */

import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once as event } from 'node:events';
import { afterAll, expect } from 'vitest';
import { connectPool } from '../fixtures/database.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { settingsOf } from '../fixtures/topic.ts';
import { arrival, until } from '../wait.ts';
import { leftOpen } from './orders-kit.ts';

const STATUSES = ['1-packed', '2-handed-over', '3-delivered'];
const parcels = Array.from({ length: 200 }, () => randomUUID());
const lines = STATUSES.flatMap((status) => parcels.map((parcel) => `${parcel} ${status}`));

/** Servers of a run, and the environment with the settings of their clients. */
export interface ServiceStack {
  readonly brokers: string;
  readonly postgres: string;
  readonly env: Readonly<Record<string, string>>;
}

const running = new Set<ChildProcess>();
afterAll(() => {
  for (const child of running) child.kill('SIGKILL');
});

/** Starts the example. It ends with the test file at the latest. */
export function startService(cwd: string, args: readonly string[], env: NodeJS.ProcessEnv) {
  const child = spawn(process.execPath, [...args], { cwd, env, stdio: ['pipe', 'ignore', 'pipe'] });
  running.add(child);
  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  // A killed process breaks the pipe of its stdin.
  child.stdin?.on('error', () => {});
  const ended = event(child, 'close').then(() => running.delete(child));
  return { child, ended, stderr: () => stderr };
}

/** Runs the example without the table that its consumer needs, and expects the process to end with
 *  the error of the consumer. */
export async function endsWithItsConsumer(file: string, cwd: string): Promise<void> {
  const stack = await sharedStack();
  const schema = `shipping_${randomUUID().slice(0, 8)}`;
  const args = [file, stack.brokers, stack.postgres, schema, `parcel.events-${schema}`];
  const first = startService(cwd, args, process.env);
  first.child.stdin?.end();
  await first.ended;
  expect(first.child.exitCode, first.stderr()).toBe(0);
  const pool = await connectPool(stack.postgres, { name: 'shipping test' });
  await pool.query(`DROP TABLE ${schema}.history_parked`);
  await pool.close();
  // Its stdin stays open: only the error of the consumer can end it.
  const second = startService(cwd, args, process.env);
  await arrival('the end of the service', second.ended, second.stderr);
  expect(second.child.exitCode, second.stderr()).toBe(1);
  const lines = second.stderr().match(/^\{.*\}$/gm) ?? [];
  expect(lines.map((line) => JSON.parse(line) as unknown)).toContainEqual(
    expect.objectContaining({
      level: 'error',
      part: 'consumer',
      group: 'shipping-history_inbox',
      error: expect.stringContaining('[tables_missing]'),
    }),
  );
}

/** Runs the example, kills it twice while effects are in progress, and expects each move of each
 *  parcel once and in order.
 *  @param file the example
 *  @param cwd folder from which the example resolves `millrace`
 *  @param on servers; default: the shared stack */
export async function survivesKills(file: string, cwd: string, on?: ServiceStack): Promise<void> {
  const stack = on ?? (await sharedStack());
  const env = { ...process.env, ...on?.env };
  const schema = `shipping_${randomUUID().slice(0, 8)}`;
  const topic = `parcel.events-${schema}`;
  const args = [file, stack.brokers, stack.postgres, schema, topic];
  const pool = await connectPool(stack.postgres, { name: 'shipping test' });
  const count = async (what: string): Promise<number> => {
    const { rows } = await pool.query<{ n: bigint }>(`SELECT count(*) AS n FROM ${schema}.${what}`);
    return Number((rows[0] as { n: bigint }).n);
  };
  const contains = async (what: string, rows: number): Promise<boolean> => (await count(what)) >= rows;
  const present = async (table: string): Promise<boolean> =>
    (await pool.query<{ at: string | null }>('SELECT to_regclass($1)::text AS at', [`${schema}.${table}`]))
      .rows[0]?.at !== null;

  const unfinished: number[] = [];
  for (const [from, to] of [
    [0, lines.length / 2],
    [lines.length / 2, lines.length],
  ] as const) {
    const run = startService(cwd, args, env);
    await until('the tables of the service', () => present('history_parked'));
    // Once the first line has its effect, the consumer has joined: from then on each part has
    // effects in progress.
    for (const line of lines.slice(0, from + 1)) run.child.stdin?.write(`${line}\n`);
    await until('a first effect', () => contains('history', from + 1));
    const before = await count('parcel_outbox');
    // This lock blocks all further effects, so that the kill interrupts some.
    const release = await leftOpen(pool, (session) =>
      session.query(`LOCK TABLE ${schema}.history IN SHARE MODE`),
    );
    for (const line of lines.slice(from + 1, to)) run.child.stdin?.write(`${line}\n`);
    await until('events whose effects wait', () => contains('parcel_outbox', before + 20));
    run.child.kill('SIGKILL');
    await run.ended;
    unfinished.push(to - (await count('history')));
    await release();
  }
  expect(Math.min(...unfinished)).toBeGreaterThan(0);

  const last = startService(cwd, args, env);
  for (const line of lines) last.child.stdin?.write(`${line}\n`);
  await until('all effects', () => contains('history', lines.length));
  last.child.stdin?.end();
  await last.ended;
  expect([last.child.exitCode, last.stderr()]).toEqual([0, '']);

  const { rows } = await pool.query<{ parcel: string; statuses: string[] }>(
    `SELECT parcel::text AS parcel, array_agg(status ORDER BY place) AS statuses FROM ${schema}.history GROUP BY parcel`,
  );
  expect(new Set(rows.map((row) => row.parcel))).toEqual(new Set(parcels));
  expect(rows.filter((row) => row.statuses.join() !== STATUSES.join())).toEqual([]);
  expect(await count('parcel_outbox')).toBe(lines.length);
  expect(await count('parcel_outbox WHERE published_at IS NULL')).toBe(0);
  expect(await count('history_inbox')).toBe(lines.length);
  expect(await count('history_parked')).toBe(0);
  if (on === undefined) expect((await settingsOf(stack.brokers, topic)).get('segment.ms')).toBe('3600000');
  await pool.close();
}
