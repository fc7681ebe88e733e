/** `millrace rollout` with a user's own fleet: processes in plain JavaScript on node-rdkafka
 *  (examples/fleet), with metrics, paths and a topic of their own. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '../../src/shell/package.ts';
import { markedEnvironment, markedProcesses } from '../fixtures/marked.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { runRollout, startRollout } from '../fixtures/rollout.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { asAdmin, createTopic } from '../fixtures/topic.ts';
import { until } from '../wait.ts';

const own = launcher();
const { brokers } = await sharedStack();
const parcels = join(packageRoot(), 'examples/fleet/parcels.mjs');
/** A wrapper as of a package manager: the instance is its child. */
const wrapped = `sh -c 'node ${parcels} {role} {subject} {schema_version}; exit $?'`;

const fields = [
  { name: 'id', type: 'long' },
  { name: 'state', type: 'string' },
];
const schemas = [fields, [...fields, { name: 'weight', type: 'int' }]].map((some) =>
  JSON.stringify({ type: 'record', name: 'Parcel', fields: some }),
);
const files = schemas.map((schema, at) => {
  const path = join(own.dir, `parcel-${at + 1}.avsc`);
  writeFileSync(path, schema);
  return path;
});

const pageFlags = [
  '-errors-metric=parcels_failed_total{reason!="other"}',
  '-consumed-metric=parcels_read_total',
  '-lag-metric=parcels_lag',
  '-produced-metric=parcels_sent_total',
];
const base = [
  `-brokers=${brokers}`,
  '-mode=FORWARD',
  '-rate=100',
  '-producers=1',
  '-consumers=1',
  '-partitions=2',
  '-duration=2s',
  '-sample-every=200ms',
  '-settle-timeout=3m',
  '-log-level=warn',
  '-json',
];
const fromFiles = [`-from-version=${files[0]}`, `-to-version=${files[1]}`];
const commands = (line: string): readonly string[] => [`-old-command=${line}`, `-new-command=${line}`];
const fleet = [...base, ...commands(wrapped), '-ready-path=/healthz', '-ready-timeout=5m'];
/** A failed rollout keeps its logs, here in the folder of this file. */
const environment = (mark: string): NodeJS.ProcessEnv => ({ ...markedEnvironment(mark), TMPDIR: own.dir });
const document = (stdout: string): Record<string, unknown> => JSON.parse(stdout) as Record<string, unknown>;

describe('an own fleet', () => {
  it('producers first under FORWARD upgrades every instance without an unreadable record', async () => {
    const flags = [...fleet, ...pageFlags, ...fromFiles, '-order=producers-first', '-groups=1'];
    const { code, stdout, stderr } = await runRollout(own, flags);
    expect(code, stderr).toBe(0);
    expect(document(stdout)).toMatchObject({
      verdict: 'upgraded',
      errors: 0,
      upgraded: ['producer-1', 'consumer-g1-1'],
    });
    const { produced, consumed } = document(stdout) as Record<string, number>;
    expect(produced).toBeGreaterThan(0);
    expect(consumed).toBeGreaterThan(0);
  });

  it('a wrong order on an existing topic with registered versions is rolled back, and the topic stays', async () => {
    const registry = startRegistry(own, ['-store=memory']);
    const url = `http://${await registry.ready()}`;
    const topic = `parcels-${own.suffix}`;
    const subject = `${topic}-value`;
    await createTopic(brokers, topic, 2);
    const call = async (method: string, path: string, body?: unknown): Promise<unknown> => {
      const answer = await fetch(`${url}${path}`, {
        method,
        headers: { 'content-type': 'application/json' },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      expect(answer.status).toBe(200);
      return answer.json();
    };
    await call('PUT', `/config/${subject}`, { compatibility: 'FORWARD' });
    for (const schema of schemas) await call('POST', `/subjects/${subject}/versions`, { schema });
    const flags = [
      ...fleet.filter((flag) => flag !== '-mode=FORWARD'),
      ...pageFlags,
      `-registry=${url}`,
      `-topic=${topic}`,
      `-subject=${subject}`,
      '-from-version=1',
      '-to-version=latest',
      `-group-names=billing-${own.suffix}`,
      '-order=consumers-first',
    ];
    const { code, stdout, stderr } = await runRollout(own, flags);
    expect(code, stderr).toBe(1);
    const seen = document(stdout);
    expect(seen).toMatchObject({ verdict: 'rolled-back', mode: 'FORWARD', upgraded: ['consumer-g1-1'] });
    expect(seen['errors']).toBeGreaterThan(0);
    expect(await call('GET', `/subjects/${subject}/versions`)).toEqual([1, 2]);
    expect((await asAdmin(brokers, (admin) => admin.listTopics())).map((one) => one.topic)).toContain(topic);
  });
});

describe('an own fleet that cannot run', () => {
  /** Serves the pages of an instance, and nothing else. */
  const page = (body: string): string =>
    `node -e 'require("http").createServer((q, s) => s.end(${JSON.stringify(body)})).listen({port}, "127.0.0.1")'`;

  it.each<[string, readonly string[], number, RegExp]>([
    [
      'a program that does not exist',
      commands('no-such-program {role}'),
      2,
      /no-such-program is in no folder of PATH/,
    ],
    [
      'a mistyped value',
      commands('node app.mjs {prot}'),
      2,
      /unknown value \{prot\}; did you mean \{port\}\?/,
    ],
    [
      'a broken selector',
      [...commands('node app.mjs'), '-errors-metric=failed{reason}'],
      2,
      /-errors-metric=failed\{reason\} has labels that cannot be read from reason; give a metric such as/,
    ],
    [
      'an instance that exits early',
      commands(`node -e 'console.error("no configuration"); process.exit(7)'`),
      5,
      /consumer-g\d-1-old ended with code 7 before it was ready: no configuration; see \S+\.log/,
    ],
    [
      'an instance that never gets ready',
      [...commands(`sh -c 'sleep 1000 & wait'`), '-ready-timeout=2s'],
      5,
      /consumer-g\d-1-old was not ready within 2000 ms: http:\S+ does not answer \(ECONNREFUSED\); see/,
    ],
    [
      'a page without the metric',
      [
        ...commands(page('parcels_failed_total 0\nparcels_read_total 1\n')),
        '-errors-metric=parcels_faild_total',
      ],
      5,
      /is ready, but its page http:\S+ cannot be read: it has no metric parcels_faild_total \(-errors-metric\)/,
    ],
    [
      'a page of another format',
      commands(page('{"errors": 0}')),
      5,
      /cannot be read: it is not a Prometheus metrics page: line 1 is not a sample; name what it serves with/,
    ],
  ])('a fleet with %s is one clear error, and nothing is left running', async (_, flags, exit, why) => {
    const mark = `${own.suffix}-${exit}-${flags.length}-${flags[0]?.length}`;
    const all = [
      ...base.filter((flag) => flag !== '-json'),
      ...flags,
      ...fromFiles,
      '-order=producers-first',
    ];
    const { code, stdout, stderr } = await runRollout(own, all, { env: environment(mark) });
    expect(stdout + stderr).toMatch(why);
    expect(code).toBe(exit);
    if (exit === 2) expect(stderr).not.toContain('start: every instance');
    await until('no process of the fleet', () => markedProcesses(mark).size === 0);
  });

  it('an instance that crashes during the rollout fails it, with the last lines of its log', async () => {
    const crashing = `sh -c 'node ${parcels} {role} {subject} {schema_version} & sleep 3; echo out of memory; kill -9 $!; exit 3'`;
    const mark = `${own.suffix}-crash`;
    const flags = [...base, ...commands(crashing), ...pageFlags, ...fromFiles];
    const { code, stdout } = await runRollout(
      own,
      [
        ...flags.filter((flag) => flag !== '-duration=2s'),
        '-duration=1h',
        '-ready-path=',
        '-order=producers-first',
      ],
      { env: environment(mark) },
    );
    expect(code).toBe(5);
    expect(document(stdout)['reason']).toMatch(/ended with code 3(.*out of memory)/);
    await until('no process of the fleet', () => markedProcesses(mark).size === 0);
  });
});

describe('the end of a rollout', () => {
  it.each<[NodeJS.Signals, number | null]>([
    ['SIGTERM', 5],
    ['SIGINT', 130],
    ['SIGKILL', null],
  ])(
    'no process of the fleet is left after %s of rollout, not even below a wrapper',
    async (signal, code) => {
      const mark = `${own.suffix}-${signal}`;
      const flags = [...fleet, ...pageFlags, ...fromFiles, '-order=producers-first'];
      const rollout = startRollout(
        own,
        [...flags.filter((flag) => flag !== '-duration=2s'), '-duration=1h'],
        {
          env: environment(mark),
        },
      );
      const workers = (): number =>
        [...markedProcesses(mark).values()].filter((line) => line.startsWith(`node ${parcels}`)).length;
      await until('a running fleet', () => workers() === 3);
      rollout.kill(signal as 'SIGTERM');
      expect(await rollout.ended).toEqual({ code, signal: code === null ? signal : null });
      await until('no process of the fleet', () => markedProcesses(mark).size === 0);
    },
  );
});
