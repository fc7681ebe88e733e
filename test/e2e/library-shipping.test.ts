/** The example of another service as it stands in docs/outbox.md, on a real broker and database, killed in the middle. */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once as event } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { packageRoot } from '../../src/bin/shell/package.ts';
import { pgDriver } from '../../src/io/sql/pg.ts';
import { until } from './engine-kit.ts';
import { leftOpen } from './orders-kit.ts';
import { settingsOf } from './payments-kit.ts';
import { sharedStack } from './stack.ts';

const EXAMPLE = join(packageRoot(), 'examples', 'shipping', 'shipping.mjs');
const stack = await sharedStack();
const schema = `shipping_${randomUUID().slice(0, 8)}`;
const topic = `parcel.events-${schema}`;
const pool = await pgDriver.connect({
  url: stack.postgres,
  connectionsMax: 2,
  applicationName: 'shipping test',
  connectTimeoutMs: 60_000,
});
const living = new Set<ChildProcess>();
afterAll(async () => {
  for (const child of living) child.kill('SIGKILL');
  await pool.close();
});

function start() {
  const child = spawn(process.execPath, [EXAMPLE, stack.brokers, stack.postgres, schema, topic], {
    cwd: packageRoot(),
    stdio: ['pipe', 'ignore', 'pipe'],
  });
  living.add(child);
  let told = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    told += text;
  });
  // A process that is killed leaves its stdin broken.
  child.stdin?.on('error', () => {});
  const ended = event(child, 'close').then(() => living.delete(child));
  return { child, ended, told: () => told };
}

const STATUSES = ['1-packed', '2-handed-over', '3-delivered'];
const parcels = Array.from({ length: 200 }, () => randomUUID());
const lines = STATUSES.flatMap((status) => parcels.map((parcel) => `${parcel} ${status}`));

const count = async (what: string): Promise<number> => {
  const { rows } = await pool.query<{ n: bigint }>(`SELECT count(*) AS n FROM ${schema}.${what}`);
  return Number((rows[0] as { n: bigint }).n);
};
const contains = async (what: string, rows: number): Promise<boolean> => (await count(what)) >= rows;
const holds = async (what: Promise<boolean>): Promise<true | undefined> => ((await what) ? true : undefined);
const present = async (table: string): Promise<boolean> =>
  (await pool.query<{ at: string | null }>('SELECT to_regclass($1)::text AS at', [`${schema}.${table}`]))
    .rows[0]?.at !== null;

describe('the example service', () => {
  it('stands in docs/outbox.md as it is', () => {
    const docs = readFileSync(join(packageRoot(), 'docs', 'outbox.md'), 'utf8');
    expect(docs).toContain(`\`\`\`js\n${readFileSync(EXAMPLE, 'utf8')}\`\`\``);
  });

  it('killed at any time, moves each parcel once, tells of each move once, and in order', async () => {
    const unfinished: number[] = [];
    for (const [from, to] of [
      [0, lines.length / 2],
      [lines.length / 2, lines.length],
    ] as const) {
      const run = start();
      await until('the tables', () => holds(present('history_parked')), 60_000);
      // Its consumer has joined once the first line has its effect: from here on each part has something in hand.
      for (const line of lines.slice(0, from + 1)) run.child.stdin?.write(`${line}\n`);
      await until('a first effect', () => holds(contains('history', from + 1)), 60_000);
      const before = await count('parcel_outbox');
      // No effect gets through from here on, so that there is one to lose.
      const release = await leftOpen(pool, (session) =>
        session.query(`LOCK TABLE ${schema}.history IN SHARE MODE`),
      );
      for (const line of lines.slice(from + 1, to)) run.child.stdin?.write(`${line}\n`);
      while ((await count('parcel_outbox')) < before + 20) await sleep(5);
      run.child.kill('SIGKILL');
      await run.ended;
      unfinished.push(to - (await count('history')));
      await release();
    }
    expect(Math.min(...unfinished)).toBeGreaterThan(0);

    const last = start();
    for (const line of lines) last.child.stdin?.write(`${line}\n`);
    await until('all effects', () => holds(contains('history', lines.length)), 90_000);
    last.child.stdin?.end();
    await last.ended;
    expect([last.child.exitCode, last.told()]).toEqual([0, '']);

    const { rows } = await pool.query<{ parcel: string; statuses: string[] }>(
      `SELECT parcel::text AS parcel, array_agg(status ORDER BY place) AS statuses FROM ${schema}.history GROUP BY parcel`,
    );
    expect(new Set(rows.map((row) => row.parcel))).toEqual(new Set(parcels));
    expect(rows.filter((row) => row.statuses.join() !== STATUSES.join())).toEqual([]);
    expect(await count('parcel_outbox')).toBe(lines.length);
    expect(await count('parcel_outbox WHERE published_at IS NULL')).toBe(0);
    expect(await count('history_inbox')).toBe(lines.length);
    expect(await count('history_parked')).toBe(0);
    expect((await settingsOf(stack.brokers, topic)).get('segment.ms')).toBe('3600000');
  });
});
