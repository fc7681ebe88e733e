/** `millrace chaos` on given servers: a run that holds, and one whose invariant is broken. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { TAKEOVER_MS } from '../../src/chaos/faults.ts';
import { pageIn, RUN_MS, reportOf, runChaos, startChaos } from '../fixtures/chaos.ts';
import { connectPool, createTables } from '../fixtures/database.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { itFull } from '../tier.ts';

const own = launcher();
const { brokers, postgres } = await sharedStack();
const given = [`-brokers=${brokers}`, `-postgres=${postgres}`];

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
      const flags = [
        '-seed=411',
        '-faults=crash',
        '-crash-point=publish',
        '-dup-rate=0.3',
        `-report=${plot}`,
      ];
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
      const { coverage } = report;
      expect(coverage?.injected_duplicates).toBeGreaterThan(0);
      // The rows that were published and not marked were published again.
      expect(coverage?.redelivered).toBeGreaterThan(0);
      expect(coverage?.repeats).toBeGreaterThan(0);
      expect(coverage?.answers_over_grpc).toBeGreaterThan(0);
      expect(coverage?.answers_over_grpc).toBeLessThan(coverage?.answers as number);
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

  itFull(
    'a dedup TTL that is shorter than a redelivery is broken: the second charge was attempted, exit 1',
    async () => {
      // The records of the crash are redelivered when the session of the killed member has expired,
      // after 6 s.
      const flags = ['-seed=414', '-faults=crash', '-crash-point=offset', '-dedup-ttl=1s', '-unsafe-ttl'];
      const { code, stdout, stderr } = await runChaos(own, [...given, ...flags]);
      expect(code, stderr).toBe(1);
      const { reasons, replay, reconciliation } = reportOf(stdout);
      expect(reconciliation.deltas.map((delta) => delta.class)).toEqual(['charge_attempted_again']);
      expect(reasons).toEqual([expect.stringMatching(/^charge_attempted_again: \d+, /)]);
      expect(reconciliation.suppressed['order_charged']).toBeGreaterThan(0);
      expect(reconciliation.distinct_charges).toBe(reconciliation.distinct_orders);
      expect(replay).toContain(' -dedup-ttl=1000ms -unsafe-ttl=true ');
    },
    RUN_MS,
  );

  itFull.each(['poll', 'wal'])(
    'a relay in %s mode and a member of payments that return after a successor took over leave no delta',
    async (relay) => {
      const flags = ['-seed=4', '-faults=pause', '-duration=30s', '-fault-every=12s', `-relay=${relay}`];
      const { code, stdout, stderr } = await runChaos(own, [...given, ...flags]);
      expect(code, stderr).toBe(0);
      const { outcomes } = reportOf(stdout);
      const long = outcomes.filter(({ startMs, endMs }) => endMs - startMs > TAKEOVER_MS.session);
      expect(long.map(({ fault }) => fault.lane)).toEqual(expect.arrayContaining(['relay', 'payments']));
      const targets = outcomes.map(({ fault }) => fault.target);
      expect(targets).toEqual(expect.arrayContaining(['relay', 'relay-2', 'payments', 'payments-2']));
    },
    RUN_MS,
  );

  itFull(
    'a run whose payments injected no duplicate is broken, although there is no delta',
    async () => {
      const schema = `uninjected_${own.suffix}`;
      const pool = await connectPool(postgres, { schema });
      await createTables(pool, schema, 'payments');
      await pool.query(
        `CREATE FUNCTION uncounted() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN IF NEW.injected THEN RETURN NULL; END IF; RETURN NEW; END $$`,
      );
      await pool.query(
        'CREATE TRIGGER uncounted BEFORE INSERT ON payments_suppressed FOR EACH ROW EXECUTE FUNCTION uncounted()',
      );
      const flags = [`-schema=${schema}`, '-seed=415', '-faults=kill', '-dup-rate=1'];
      const { code, stdout, stderr } = await runChaos(own, [...given, ...flags]);
      expect(code, stderr).toBe(1);
      const { reasons, reconciliation, coverage } = reportOf(stdout);
      expect(reconciliation.deltas).toEqual([]);
      expect(coverage?.injected_duplicates).toBe(0);
      expect(reasons).toEqual([
        `no duplicate was injected at the consumer, although -dup-rate=1 and ${reconciliation.distinct_charges} orders were charged`,
      ]);
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
