/** Test kit of effects: a schema with a table of effects, and a provider that acts and then may not
 *  answer. */
import { randomBytes } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { systemClock, systemRandom } from '../../src/io/clock/system.ts';
import type { SqlPool, SqlValue } from '../../src/io/postgres/sql/port.ts';
import { withSettings } from '../../src/outbox/database/connection.ts';
import type { EffectHandler } from '../../src/outbox/effects/handler.ts';
import { EffectRunner, type EffectRunnerOptions } from '../../src/outbox/effects/runner.ts';
import {
  effectsOneRunningSql,
  effectsRunnerEndsSql,
  effectsTableSql,
} from '../../src/outbox/effects/table.ts';
import { connectPool } from '../fixtures/database.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

export interface EffectRow {
  readonly effect_id: string;
  readonly key: string;
  readonly state: string;
  readonly attempts: number;
  readonly reason: string | null;
  readonly error: string | null;
  readonly result: string | null;
}

export interface EffectsWorld {
  readonly url: string;
  readonly schema: string;
  readonly pool: SqlPool;
  rows(): Promise<readonly EffectRow[]>;
  /** Waits until every row is in one of these states. */
  settled(...states: readonly string[]): Promise<readonly EffectRow[]>;
  /** Starts a runner; `stop` drains it. */
  runner(
    handlers: Readonly<Record<string, EffectHandler>>,
    over?: Partial<EffectRunnerOptions>,
  ): { readonly runner: EffectRunner; readonly metrics: Metrics; stop(): Promise<void> };
}

export async function effectsWorld(): Promise<EffectsWorld> {
  const { postgres } = await sharedStack();
  const schema = `effects_${randomBytes(5).toString('hex')}`;
  const url = withSettings(postgres, { schema });
  const pool = await connectPool(url, { connections: 8, name: schema });
  const stops: Array<() => Promise<void>> = [];
  afterAll(async () => {
    for (const stop of stops) await stop();
    await pool.query(`DROP SCHEMA ${schema} CASCADE`);
    await pool.close();
  });
  await pool.query(`CREATE SCHEMA ${schema}`);
  await pool.query(effectsTableSql('effects'));
  await pool.query(effectsRunnerEndsSql('effects'));
  await pool.query(effectsOneRunningSql('effects'));
  const rows = async (): Promise<readonly EffectRow[]> =>
    (
      await pool.query<EffectRow & Record<string, unknown>>(
        'SELECT effect_id::text AS effect_id, key, state, attempts, reason, error, result::text AS result FROM effects ORDER BY id',
      )
    ).rows;
  return {
    url,
    schema,
    pool,
    rows,
    settled: (...states) =>
      until(`effects that are ${states.join(' or ')}`, async () => {
        const found = await rows();
        return found.every(({ state }) => states.includes(state)) && found;
      }),
    runner(handlers, over = {}) {
      const drain = new AbortController();
      const metrics = new Metrics();
      const runner = new EffectRunner({
        pool,
        table: 'effects',
        handlers,
        clock: systemClock,
        random: systemRandom,
        metrics,
        log: silentLogger,
        drain: drain.signal,
        pollMs: 20,
        ...over,
      });
      const ended = runner.run();
      const stop = async (): Promise<void> => {
        drain.abort();
        await ended;
      };
      stops.push(stop);
      return { runner, metrics, stop };
    },
  };
}

/** Statement or COMMIT that the server has executed. */
export interface Executed {
  /** `COMMIT` at the end of a transaction. */
  readonly text: string;
  readonly params: readonly SqlValue[];
  readonly rowCount: number;
}

/** Pool of which a test may lose answers: an error of `lose` is thrown instead of the answer. */
export function lossyPool(pool: SqlPool, lose: (executed: Executed) => Error | undefined): SqlPool {
  const answer = <T>(value: T, executed: Executed): T => {
    const lost = lose(executed);
    if (lost !== undefined) throw lost;
    return value;
  };
  return {
    catalog: pool,
    query: async (text, params = [], limits) => {
      const result = await pool.query(text, params, limits);
      return answer(result, { text, params, rowCount: result.rowCount }) as never;
    },
    transaction: async (work) =>
      answer(await pool.transaction(work), { text: 'COMMIT', params: [], rowCount: 0 }),
    copyIn: (table, columns, rows) => pool.copyIn(table, columns, rows),
    systemIdentifier: () => pool.systemIdentifier(),
    close: async () => {},
  };
}

/** Value of a counter with these labels; 0 without a sample. */
export function sampleOf(metrics: Metrics, metric: string, labels: Readonly<Record<string, string>>): number {
  const found = metrics.snapshot().find(({ name }) => name === metric);
  const sample = found?.samples.find((one) =>
    Object.entries(labels).every(([name, value]) => one.labels[name] === value),
  );
  return sample?.value ?? 0;
}

export interface Provider {
  readonly url: string;
  /** Ids of the calls, in the order of their arrival. */
  readonly calls: string[];
  /** Ids that were acted on, once each, as a provider with idempotency keys does. */
  readonly acts: string[];
  /** Behaviour at a call: the provider acts in any case, and then answers, cuts the connection, or
   *  stays silent. */
  after: (id: string, calls: number) => 'answer' | 'cut' | 'silence';
}

/** Starts a payment provider that recognizes the header Idempotency-Key. */
export async function startProvider(): Promise<Provider> {
  const calls: string[] = [];
  const acts: string[] = [];
  const provider: { -readonly [K in keyof Provider]: Provider[K] } = {
    url: '',
    calls,
    acts,
    after: () => 'answer',
  };
  const server: Server = createServer((request, response) => {
    const id = String(request.headers['idempotency-key']);
    calls.push(id);
    if (!acts.includes(id)) acts.push(id);
    const what = provider.after(id, calls.filter((one) => one === id).length);
    if (what === 'answer') response.end(JSON.stringify({ charge: id }));
    if (what === 'cut') request.socket.destroy();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  afterAll(() => {
    server.closeAllConnections();
    server.close();
  });
  provider.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  return provider;
}

/** Calls the provider with the effect's id. */
export const pay =
  (provider: Provider): EffectHandler['call'] =>
  async ({ id }, signal) => {
    const response = await fetch(provider.url, {
      method: 'POST',
      headers: { 'idempotency-key': id },
      signal,
    });
    return response.json();
  };
