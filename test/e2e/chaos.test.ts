/** `millrace chaos`: a run that holds, one whose invariant is broken, and runs that are stopped. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { reportOf, runChaos, startChaos } from '../fixtures/chaos.ts';
import { connectPool, createTables } from '../fixtures/database.ts';
import { markedEnvironment, markedProcesses } from '../fixtures/marked.ts';
import { pageOf } from '../fixtures/metrics.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { describeFull, itFull } from '../tier.ts';
import { until } from '../wait.ts';

const own = launcher();
const { brokers, postgres } = await sharedStack();
const given = [`-brokers=${brokers}`, `-postgres=${postgres}`];
const RUN_MS = 600_000;

/** Waits until a run has reached this phase, and returns its page. */
const pageIn = (address: string, phase: string): Promise<ReadonlyMap<string, number>> =>
  until(
    `a run in the phase ${phase}`,
    async () => {
      const page = await pageOf(address);
      return page.get(`chaos_phase{phase="${phase}"}`) === 1 && page;
    },
    RUN_MS,
  );

async function schemasLike(pattern: string): Promise<number> {
  const pool = await connectPool(postgres, { connections: 1 });
  try {
    const { rows } = await pool.query<{ n: bigint }>(
      'SELECT count(*) AS n FROM pg_namespace WHERE nspname LIKE $1',
      [pattern],
    );
    return Number(rows[0]?.n);
  } finally {
    await pool.close();
  }
}

describe('a chaos run on given servers', () => {
  it(
    'a relay that dies between publish and mark leaves no delta, and the run shows its state on /metrics',
    async () => {
      const plot = join(own.dir, 'chaos.html');
      const flags = ['-seed=411', '-faults=crash', '-crash-point=publish', `-report=${plot}`];
      const run = startChaos(own, [...given, ...flags]);
      const page = await pageIn(await run.address(), 'faults');
      expect(page.get('chaos_faults_planned')).toBe(1);
      const { code } = await run.ended;
      expect(code, run.log()).toBe(0);
      const report = reportOf(run.stdout());
      expect(report).toMatchObject({ holds: true, reasons: [], seed: 411, unplanned_ends: [] });
      expect(report.outcomes).toMatchObject([
        { applied: true, fault: { kind: 'crash', point: 'publish', target: 'relay' } },
      ]);
      const { produced_intents: intents, distinct_orders, distinct_charges, deltas } = report.reconciliation;
      expect(intents).toBeGreaterThan(0);
      expect([distinct_orders, distinct_charges, deltas]).toEqual([intents, intents, []]);
      // The rows that were published and not marked were published again.
      expect(report.reconciliation.suppressed['seen']).toBeGreaterThan(0);
      expect(report.load).toMatchObject({ unknown: 0, replayed: expect.any(Number) });
      expect(readFileSync(plot, 'utf8')).toContain('crash at publish of relay');
      // The schema of the run is gone.
      expect(await schemasLike('chaos\\_411\\_%')).toBe(0);
    },
    RUN_MS,
  );

  itFull(
    'an inbox that forgets its messages charges twice: exit 1, the double charge and the replay command',
    async () => {
      const schema = `forgetful_${own.suffix}`;
      const pool = await connectPool(postgres, { schema });
      await createTables(pool, schema, 'payments');
      // UNIQUE would hide the double charge.
      await pool.query('ALTER TABLE charges DROP CONSTRAINT charges_order_id_key');
      await pool.query(
        `CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN DELETE FROM inbox WHERE msg_id = NEW.msg_id; RETURN NULL; END $$`,
      );
      await pool.query('CREATE TRIGGER forget AFTER INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION forget()');
      const flags = [`-schema=${schema}`, '-seed=412', '-faults=crash', '-crash-point=offset'];
      const { code, stdout, stderr } = await runChaos(own, [...given, ...flags]);
      expect(code, stderr).toBe(1);
      const { holds, reasons, replay, reconciliation } = reportOf(stdout);
      expect(holds).toBe(false);
      expect(reconciliation.deltas.map((delta) => delta.class)).toContain('double_charge');
      expect(reasons.join('\n')).toContain('double_charge: ');
      expect(replay).toContain('millrace chaos -seed=412 -duration=3000ms -rate=60 ');
      expect(replay).toContain(' -faults=crash -crash-point=offset ');
      // A schema that the user named is kept, also for an inspection.
      const { rows } = await pool.query('SELECT order_id FROM charges GROUP BY order_id HAVING count(*) > 1');
      expect(rows.length).toBeGreaterThan(0);
      await pool.query(`DROP SCHEMA ${schema} CASCADE`);
      await pool.close();
    },
    RUN_MS,
  );

  itFull('a schema with rows is refused before anything is started', async () => {
    const schema = `used_${own.suffix}`;
    const pool = await connectPool(postgres, { schema });
    await createTables(pool, schema, 'payments');
    await pool.query('INSERT INTO charges VALUES (gen_random_uuid(), gen_random_uuid(), 1)');
    const { code, stderr } = await runChaos(own, [...given, `-schema=${schema}`]);
    expect(code).toBe(2);
    expect(stderr).toContain(`the table ${schema}.charges has rows`);
    await pool.query(`DROP SCHEMA ${schema} CASCADE`);
    await pool.close();
  });
});

describeFull('a chaos run that is stopped', () => {
  it(
    'SIGINT during a fault ends the processes and servers of a run, and removes their folder',
    async () => {
      const mark = `chaos-int-${own.suffix}`;
      const flags = ['-faults=pause,net-half-open,idle-transaction', '-duration=1h', '-fault-every=1s'];
      const run = startChaos(own, flags, { env: markedEnvironment(mark) });
      const page = await pageIn(await run.address(), 'faults');
      expect(page.get('chaos_faults_planned')).toBeGreaterThan(100);
      await until(
        'a fault that has ended',
        async () =>
          [...(await pageOf(await run.address()))].some(
            ([name, value]) => name.startsWith('chaos_faults_total') && value > 0,
          ),
        RUN_MS,
      );
      const broker = [...markedProcesses(mark).values()].find((line) => line.includes('kafka.Kafka'));
      const folder = /log4j2\.configurationFile=file:\/\/(\S+)\/run\//.exec(broker ?? '')?.[1];
      expect(existsSync(folder as string)).toBe(true);
      process.kill(run.pid, 'SIGINT');
      expect(await run.ended).toEqual({ code: 130, signal: null });
      await until('no process of the run', () => markedProcesses(mark).size === 0);
      await until('no folder of the run', () => !existsSync(folder as string));
      expect(run.log()).toContain('the run was stopped; replay: millrace chaos -seed=1 ');
    },
    RUN_MS,
  );

  it(
    'SIGKILL of a run leaves no process behind',
    async () => {
      const mark = `chaos-kill-${own.suffix}`;
      const flags = [...given, '-faults=kill', '-duration=1h'];
      const run = startChaos(own, flags, { env: markedEnvironment(mark) });
      await pageIn(await run.address(), 'load');
      await until('the load client', () =>
        [...markedProcesses(mark).values()].some((line) => line.includes(' load ')),
      );
      await run.die();
      await until('no process of the run', () => markedProcesses(mark).size === 0);
    },
    RUN_MS,
  );
});

describeFull('flags of chaos', () => {
  it.each([
    [['-faults=flood'], '-faults'],
    [['-crash-point=between'], '-crash-point'],
    [['-relay=push'], '-relay'],
    [['-dup-rate=2'], '-dup-rate'],
    [['-report=run.txt'], '-report=run.txt has no known ending'],
    [['-faults=slot-drop'], 'the fault slot-drop needs -relay=wal'],
    [['-postgres=postgres://a@127.0.0.1/b'], '-postgres needs -brokers'],
    [['-brokers=127.0.0.1:1'], '-brokers needs -postgres'],
    [
      ['-brokers=127.0.0.1:1', '-postgres=postgres://a@127.0.0.1/b', '-faults=broker-kill'],
      'the fault broker-kill needs servers that this run starts',
    ],
    [['-brokers=127.0.0.1:1', '-postgres=postgres://a@127.0.0.1/b', '-broker-count=3'], '-broker-count'],
    [['-report=/proc/none/run.json'], 'cannot write the report /proc/none/run.json'],
    [['-unsafe-ttl'], '-dedup-ttl'],
    [['-schema=Not-Plain'], '-schema'],
  ])('chaos %j is refused with exit 2 and one line', async (flags, text) => {
    const { code, stderr, stdout } = await runChaos(own, flags);
    expect(code, stderr).toBe(2);
    const lines = stderr.split('\n').filter((line) => line.startsWith('error: '));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain(text);
    expect(JSON.parse(stdout)).toHaveProperty('error');
  });

  it('-plan prints the planned faults and the replay command, and starts nothing', async () => {
    const { code, stdout } = await runChaos(own, ['-plan', '-seed=9', '-duration=60s']);
    expect(code).toBe(0);
    const { plan, replay } = reportOf(stdout);
    expect(plan.length).toBeGreaterThan(20);
    expect(replay).toContain('millrace chaos -seed=9 -duration=60000ms ');
  });
});
