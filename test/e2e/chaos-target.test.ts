/** `millrace chaos -target` with a service that has nothing of Millrace (examples/chaos): three
 *  processes, an outbox, a topic and a table of effects. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { TargetReport } from '../../src/chaos/report.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { RUN_MS, runTarget, startTarget } from '../fixtures/chaos.ts';
import { connectPool } from '../fixtures/database.ts';
import { markedEnvironment, markedProcesses } from '../fixtures/marked.ts';
import { type Launcher, launcher, type Outcome } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const own = launcher();
const { brokers, postgres } = await sharedStack();
const given = [`-brokers=${brokers}`, `-postgres=${postgres}`];
const folder = join(packageRoot(), 'examples/chaos');
const example = readFileSync(join(folder, 'chaos.yaml'), 'utf8');
const documentOf = ({ stdout, stderr }: Outcome): TargetReport => {
  expect(stdout, stderr).not.toBe('');
  return JSON.parse(stdout) as TargetReport;
};

/** The file of the example for names of its own on the shared servers.
 *  @param edit further changes */
function targetFile(name: string, edit: (text: string) => string = (text) => text): string {
  const unique = `${name}_${own.suffix}`;
  const text = example
    .replaceAll(/node (\w+)\.mjs/g, `node ${folder}/$1.mjs`)
    .replaceAll(/TOPIC: parcels|topic: parcels/g, (found) => found.replace('parcels', unique))
    .replace('topics: [parcels]', `topics: [${unique}]`)
    .replaceAll(/GROUP: labels|group: labels/g, (found) => found.replace('labels', unique))
    .replaceAll(/(FROM|JOIN) (parcels|outbox|labels)\b/g, `$1 ${unique}.$2`)
    .replace('[parcels, outbox, labels]', `[${unique}.parcels, ${unique}.outbox, ${unique}.labels]`);
  const path = join(own.dir, `${name}.yaml`);
  writeFileSync(path, edit(text));
  return path;
}

const schemaOf = (name: string): string => `${name}_${own.suffix}`;

/** Runs with a schema that is dropped afterwards. */
async function run(
  launch: Launcher,
  name: string,
  flags: readonly string[],
  env: Readonly<Record<string, string>> = {},
  edit?: (text: string) => string,
): Promise<Outcome> {
  try {
    return await runTarget(launch, targetFile(name, edit), flags, {
      env: { ...process.env, SHOP_SCHEMA: schemaOf(name), ...env },
    });
  } finally {
    const pool = await connectPool(postgres, { connections: 1 });
    await pool.query(`DROP SCHEMA IF EXISTS ${schemaOf(name)} CASCADE`);
    await pool.close();
  }
}

describe('a service of a user', () => {
  it(
    'a correct service on given servers holds through kills, pauses, network and database faults',
    async () => {
      const faults = 'kill,pause,net-cut,net-half-open,net-delay,backend-kill,idle-transaction,disk-full';
      const outcome = await run(own, 'good', [...given, '-seed=501', `-faults=${faults}`]);
      const report = documentOf(outcome);
      expect({ code: outcome.code, reasons: report.reasons }, outcome.stderr).toEqual({
        code: 0,
        reasons: [],
      });
      expect(report).toMatchObject({
        format: 'millrace-chaos-target-1',
        holds: true,
        violations: { count: 0 },
      });
      expect(report.load).toMatchObject({ unanswered: 0 });
      expect(report.load['acknowledged']).toBeGreaterThan(0);
      expect(new Set(report.outcomes.map(({ fault }) => fault.kind))).toEqual(new Set(faults.split(',')));
      expect(report.outcomes.every(({ applied }) => applied)).toBe(true);
      const killed = report.outcomes
        .filter(({ fault }) => fault.kind === 'kill')
        .map(({ fault }) => fault.target);
      expect(new Set(killed)).toEqual(new Set(['shop', 'feed', 'labels']));
    },
    RUN_MS,
  );

  it(
    'a service that prints a label for each delivery is found: exit 1, the double effects and the replay command',
    async () => {
      const plot = join(own.dir, 'double.html');
      const flags = [
        ...given,
        '-seed=502',
        '-duration=20s',
        '-fault-every=3s',
        '-faults=kill',
        '-settle-timeout=5s',
        `-report=${plot}`,
      ];
      const outcome = await run(own, 'double', flags, { FORGETS_UNIQUE: 'yes', TMPDIR: own.dir });
      const report = documentOf(outcome);
      expect(outcome.code, outcome.stderr).toBe(1);
      expect(report.holds).toBe(false);
      expect(report.violations.count).toBeGreaterThan(0);
      expect(report.violations.rows).toContainEqual(
        expect.objectContaining({ violation: 'several labels', key: expect.any(String) }),
      );
      expect(report.reasons.join('\n')).toContain('several labels');
      expect(report.replay).toMatch(/^millrace chaos -target=\S+double\.yaml -seed=502 .*-faults=kill /);
      expect(readFileSync(plot, 'utf8')).toContain('several labels');
    },
    RUN_MS,
  );

  it(
    'an example on servers of the run holds through every fault that it can have, broker and database included',
    async () => {
      const outcome = await runTarget(own, join(folder, 'chaos.yaml'), ['-seed=503', '-duration=10s']);
      const report = documentOf(outcome);
      expect({ code: outcome.code, reasons: report.reasons }, outcome.stderr).toEqual({
        code: 0,
        reasons: [],
      });
      const kinds = new Set(report.outcomes.map(({ fault }) => fault.kind));
      for (const kind of ['postgres-stop', 'broker-kill', 'net-cut', 'backend-kill', 'disk-full'] as const)
        expect(kinds).toContain(kind);
    },
    RUN_MS,
  );

  it(
    'SIGKILL of a run leaves no process of the user behind',
    async () => {
      const mark = `chaos-target-${own.suffix}`;
      const flags = [...given, '-faults=kill', '-duration=10m'];
      const env = { ...markedEnvironment(mark), SHOP_SCHEMA: schemaOf('left') };
      const started = startTarget(own, targetFile('left'), flags, { env });
      await until('three processes of the user', () =>
        ['shop', 'feed', 'labels'].every((name) =>
          [...markedProcesses(mark).values()].some((line) => line.includes(`${name}.mjs`)),
        ),
      );
      await started.die();
      await until('no process of the user', () => markedProcesses(mark).size === 0);
      const pool = await connectPool(postgres, { connections: 1 });
      await pool.query(`DROP SCHEMA IF EXISTS ${schemaOf('left')} CASCADE`);
      await pool.close();
    },
    RUN_MS,
  );
});

describe('a target that cannot run', () => {
  it.each<[string, (text: string) => string, number, string]>([
    ['no YAML', () => 'processes: [', 2, 'no_run.yaml: '],
    [
      'an unknown program',
      (text) => text.replace(/node \S+shop\.mjs/, 'no-such-program'),
      2,
      'is in no folder of PATH',
    ],
    ['a mistyped value', (text) => text.replace('{postgres}', '{postgers}'), 2, 'unknown value {postgers}'],
    [
      'a query that fails',
      (text) => text.replace('AS violation', 'AS violation, none'),
      2,
      'the query reconcile fails',
    ],
    [
      'a setup that fails',
      (text) => text.replace('tables.mjs {postgres}', 'none.mjs'),
      3,
      'setup[0] ended with code 1',
    ],
    [
      'a process that ends',
      (text) => text.replace('feed.mjs', 'none.mjs'),
      3,
      'feed ended with code 1 before the first fault',
    ],
    [
      'violations before the first request',
      (text) => text.replace(/reconcile: \|[\s\S]*/, 'reconcile: SELECT 1 AS old'),
      2,
      'finds 1 violations before the first request: {"old":1}',
    ],
  ])(
    'a target with %s is refused with one error line',
    async (_, edit, code, text) => {
      const outcome = await run(own, 'no_run', [...given], { TMPDIR: own.dir }, edit);
      expect(outcome.code, outcome.stderr).toBe(code);
      const lines = outcome.stderr.split('\n').filter((line) => line.startsWith('error: '));
      expect(lines).toHaveLength(1);
      expect(lines[0]).toContain(text);
    },
    RUN_MS,
  );

  it.each<[string, readonly string[], string]>([
    ['a crash point', ['-faults=crash'], 'the fault crash is a fault of orders, relay and payments'],
    ['injected duplicates', ['-dup-rate=0.1'], '-dup-rate changes nothing with -target'],
    ['a relay', ['-relay=wal'], '-relay changes nothing with -target'],
    ['one address of two', [`-postgres=${postgres}`], 'only the address of PostgreSQL is given'],
    [
      'a kill of given brokers',
      [...given, '-faults=broker-kill'],
      'the fault broker-kill needs servers that this run starts',
    ],
    ['too many requests', ['-rate=100000', '-duration=1h'], 'requests, over 5000000'],
  ])('chaos of a target with %s is refused with exit 2', async (_, flags, text) => {
    const { code, stderr } = await runTarget(own, join(folder, 'chaos.yaml'), flags);
    expect(code, stderr).toBe(2);
    expect(stderr).toContain(text);
  });

  it('-plan prints the planned faults of a target and starts nothing', async () => {
    const { code, stdout } = await runTarget(own, join(folder, 'chaos.yaml'), ['-plan', '-seed=9']);
    expect(code).toBe(0);
    const { plan, replay } = JSON.parse(stdout) as TargetReport;
    expect(plan.map(({ target }) => target)).toContain('labels');
    expect(replay).toContain('chaos.yaml -seed=9 ');
  });
});
