/** Crash matrix: under a steady load, each process is killed at each of its crash points and at a
 *  random moment; then PostgreSQL and the broker are killed. At the end intents, orders and charges
 *  are equal, row by row.
 *
 *  MILLRACE_CRASH_ROUNDS=n repeats the matrix n times under one load (default 1);
 *  MILLRACE_CRASH_RATE sets the load's requests per second. */

import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { freePort } from '../../src/devstack/ports.ts';
import type { StackServers } from '../../src/devstack/servers.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { connectPool } from '../fixtures/database.ts';
import { startOrders } from '../fixtures/orders.ts';
import { ownStack, restartServer } from '../fixtures/own-stack.ts';
import { startPayments } from '../fixtures/payments.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { startRelay } from '../fixtures/relay.ts';
import { startTool } from '../fixtures/tool.ts';
import { pause, until } from '../wait.ts';
import {
  countOf,
  type Kill,
  killAtPoint,
  killAtRandom,
  now,
  openTransactions,
  type Victim,
} from './crash-kit.ts';

const ROUNDS = Number(process.env['MILLRACE_CRASH_ROUNDS'] ?? 1);
const RATE = Number(process.env['MILLRACE_CRASH_RATE'] ?? 150);
const RELAY_MODES = ['poll', 'wal'] as const;
const RELAY_POINTS = [
  ['commit', 10],
  ['publish', 10],
  ['mark', 10],
] as const;
const EXPECTED = [
  'orders respond',
  'orders random',
  ...RELAY_MODES.flatMap((mode) =>
    [...RELAY_POINTS.map(([point]) => point), 'random'].map((point) => `relay ${mode} ${point}`),
  ),
  'payments effect',
  'payments offset',
  'payments random',
  'postgres SIGQUIT',
  'kafka-1 SIGKILL',
];
const ROUND_MS = 90_000;
const DRAINED_WITHIN_MS = 120_000;
/** Number of last log lines of each process that a failure shows. */
const LOG_TAIL_LINES = 12;

const own = launcher();
const servers = ownStack('crash');
const restarted: StackServers[] = [];
let pool: SqlPool | undefined;
afterAll(async () => {
  await pool?.close();
  for (const server of restarted) await server.end();
  await servers.close();
});

/** Deterministic pseudo-random numbers, so that a seed identifies a run. The timing still depends
 *  on the machine. */
function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const PENDING = 'outbox WHERE published_at IS NULL';
const UNCHARGED = `outbox x WHERE x.published_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM charges c WHERE c.order_id = x.aggregate_id)`;

interface Victims {
  readonly orders: Victim;
  readonly relays: Readonly<Record<'poll' | 'wal', Victim>>;
  readonly payments: Victim;
}

function victimsOf(
  db: SqlPool,
  at: { readonly brokers: string; readonly postgres: string },
  port: number,
): Victims {
  const postgres = `-postgres=${at.postgres}`;
  const rowsOr = async (sql: string, evidence: string, applicationName: string) => {
    const open = await openTransactions(db, applicationName);
    if (open !== undefined) return open;
    const rows = await countOf(db, sql);
    return rows === 0 ? undefined : { unfinished: rows, evidence };
  };
  const relay = (mode: 'poll' | 'wal'): Victim => ({
    name: 'relay',
    start: (more, name) =>
      startRelay(
        own,
        [postgres, `-brokers=${at.brokers}`, `-relay=${mode}`, '-migrate', '-partitions=3', ...more],
        name,
      ),
    unfinished: () => rowsOr(PENDING, 'committed rows that are not marked', 'millrace relay'),
  });
  return {
    orders: {
      name: 'orders',
      start: (more, name) =>
        startOrders(
          own,
          [postgres, `-listen=127.0.0.1:${port}`, '-grpc-listen=127.0.0.1:0', '-migrate', ...more],
          name,
        ),
      unfinished: () => openTransactions(db, 'millrace orders'),
    },
    relays: { poll: relay('poll'), wal: relay('wal') },
    payments: {
      name: 'payments',
      start: (more, name) =>
        startPayments(
          own,
          [postgres, `-brokers=${at.brokers}`, '-migrate', '-partitions=3', '-session-timeout=6s', ...more],
          name,
        ),
      unfinished: () => rowsOr(UNCHARGED, 'marked rows without a charge', 'millrace payments'),
    },
  };
}

/** Processes that run now and are drained at the end, by name. */
const running = new Map<string, Running>();

async function start(victim: Victim): Promise<Running> {
  const one = victim.start([]);
  running.set(victim.name, one);
  await one.ready();
  return one;
}

async function drain(name: string): Promise<void> {
  const one = running.get(name);
  running.delete(name);
  await one?.drain();
}

/** Kills the process at each point and at a random moment, and leaves a healthy process running. */
async function killAtEach(
  victim: Victim,
  points: ReadonlyArray<readonly [point: string, after: number]>,
  random: () => number,
): Promise<Kill[]> {
  const kills: Kill[] = [];
  for (const [point, after] of points) kills.push(await killAtPoint(victim, point, after));
  const healthy = await start(victim);
  kills.push(await killAtRandom(victim, healthy, random));
  await start(victim);
  return kills;
}

/** Kills a server while the process has unfinished work that needs the server. */
async function killServer(folder: string, server: 'postgres' | 'kafka-1', victim: Victim): Promise<Kill> {
  const one = running.get(victim.name) as Running;
  for (let repeated = 0; ; repeated++) {
    one.kill('SIGSTOP');
    const found = await victim.unfinished();
    if (found === undefined) {
      one.kill('SIGCONT');
      await pause(25);
      continue;
    }
    const signal = server === 'postgres' ? 'SIGQUIT' : 'SIGKILL';
    const restarting = restartServer(folder, server, signal);
    one.kill('SIGCONT');
    restarted.push(await restarting);
    return { process: server, point: signal, atSeconds: now(), repeated, ...found };
  }
}

it(
  'SIGKILL of each process at each crash point and of the servers neither loses nor doubles an effect',
  () =>
    withLogTails(async () => {
      const stack = await servers.start(undefined);
      const db = await connectPool(stack.postgres, { connections: 4, name: 'crash test' });
      pool = db;
      const port = await freePort();
      const victims = victimsOf(db, stack, port);
      mkdirSync(own.dir, { recursive: true });
      const ledger = join(own.dir, 'ledger.jsonl');
      for (const victim of [victims.orders, victims.relays.poll, victims.payments]) await start(victim);
      const load = startTool(own, 'load', [
        `-target=http://127.0.0.1:${port}`,
        `-rate=${RATE}`,
        '-duration=0',
        '-retry-rate=0.15',
        '-retry-within=1s',
        '-timeout=5s',
        '-give-up=60s',
        '-drain-timeout=60s',
        `-ledger=${ledger}`,
        '-json',
      ]);
      await until(
        'the first charges',
        async () => ((await countOf(db, 'charges')) > 20 ? true : undefined),
        DRAINED_WITHIN_MS,
      );

      const kills: Kill[] = [];
      for (let round = 0; round < ROUNDS; round++) {
        const random = randomOf(1 + round);
        for (const name of ['orders', 'relay', 'payments']) await drain(name);
        const relays = async (): Promise<Kill[]> => {
          const all: Kill[] = [];
          for (const mode of RELAY_MODES) {
            if (running.has('relay')) await drain('relay');
            const some = await killAtEach(victims.relays[mode], RELAY_POINTS, random);
            all.push(...some.map((kill) => ({ ...kill, process: `relay ${mode}` })));
          }
          return all;
        };
        const killed = await Promise.all([
          killAtEach(victims.orders, [['respond', 20]], random),
          relays(),
          killAtEach(
            victims.payments,
            [
              ['effect', 1],
              ['offset', 1],
            ],
            random,
          ),
        ]);
        kills.push(...killed.flat());
        kills.push(await killServer(stack.folder, 'postgres', victims.orders));
        await waitForMoreRows(db, 'orders');
        kills.push(await killServer(stack.folder, 'kafka-1', lastRelay(victims)));
        await waitForMoreRows(db, 'charges');
      }

      await load.drain();
      await until(
        'an empty outbox',
        async () => ((await countOf(db, PENDING)) === 0 ? true : undefined),
        DRAINED_WITHIN_MS,
      );
      await until(
        'a charge for each order',
        async () => ((await countOf(db, UNCHARGED)) === 0 ? true : undefined),
        DRAINED_WITHIN_MS,
      );
      for (const name of ['orders', 'relay', 'payments']) await drain(name);

      const verdict = await own.run([
        'reconcile',
        `-postgres=${stack.postgres}`,
        `-ledger=${ledger}`,
        '-json',
      ]);
      const found = JSON.parse(verdict.stdout) as Record<string, unknown>;
      console.table(kills);
      expect(found, verdict.stderr).toMatchObject({ holds: true, deltas: [], unanswered_intents: 0 });
      expect(found['distinct_orders']).toBe(found['produced_intents']);
      expect(found['distinct_charges']).toBe(found['produced_intents']);
      expect(kills.every(({ unfinished }) => unfinished > 0)).toBe(true);
      expect(kills.map(({ process, point }) => `${process} ${point}`).sort()).toEqual(
        Array.from({ length: ROUNDS }, () => EXPECTED)
          .flat()
          .sort(),
      );
      // Messages interrupted between acknowledgement and mark, or between charge and offset, were
      // redelivered and suppressed.
      expect(
        await countOf(db, `payments_suppressed WHERE NOT injected AND reason IN ('seen', 'same_batch')`),
      ).toBeGreaterThan(0);
    }),
  ROUNDS * ROUND_MS + 400_000,
);

const lastRelay = ({ relays }: Victims): Victim => relays[RELAY_MODES.at(-1) as 'poll' | 'wal'];

/** Appends the last log lines of the running processes to the error of a failure. */
async function withLogTails(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (thrown) {
    const logs = [...running].map(([name, { logPath }]) => {
      const lines = readFileSync(logPath, 'utf8').trim().split('\n');
      return `${name}:\n${lines.slice(-LOG_TAIL_LINES).join('\n')}`;
    });
    throw new Error(`${(thrown as Error).message}\n${logs.join('\n')}`, { cause: thrown });
  }
}

/** Waits until the table has more rows, which needs every server. */
async function waitForMoreRows(db: SqlPool, table: string): Promise<void> {
  let before: number | undefined;
  await until(
    `more rows of ${table}`,
    async () => {
      const count = await countOf(db, table);
      before ??= count;
      return count > before;
    },
    DRAINED_WITHIN_MS,
  );
}
