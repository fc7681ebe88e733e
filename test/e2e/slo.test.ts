/** millrace slo on a running registry, producer and consumers: every metric of its rules is served,
 *  good and bad runs get different verdicts, and the exit codes are correct. */
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ask } from '../../src/demo/contracts/model.ts';
import { append } from '../../src/demo/contracts/topic.ts';
import { freePort } from '../../src/devstack/ports.ts';
import { orderSchema } from '../../src/gen/order-versions.ts';
import { parseExposition, type ScrapedPage, serves } from '../../src/slo/exposition.ts';
import { readRules } from '../../src/slo/rules.ts';
import { startConsumer } from '../fixtures/consumer.ts';
import { scrape } from '../fixtures/metrics.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { startTool } from '../fixtures/tool.ts';
import { itFull } from '../tier.ts';
import { until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const subject = `slo-${own.suffix}-value`;
const topic = `slo-${own.suffix}`;
const schema = join(own.dir, 'order.avsc');

/** Metrics of the requirements' table by their names there, with the labels that identify a series.
 */
const REQUIRED: Readonly<
  Record<string, { readonly metric: string; readonly kind: string; readonly labels: readonly string[] }>
> = {
  deserialize_errors_total: {
    metric: 'deserialize_errors_total',
    kind: 'counter',
    labels: ['subject', 'reason'],
  },
  'registry requests per second, at the registry': {
    metric: 'http_requests_total',
    kind: 'counter',
    labels: ['route', 'status'],
  },
  'registry requests per second, at a client': {
    metric: 'registry_client_requests_total',
    kind: 'counter',
    labels: ['operation', 'status'],
  },
  'cache hit ratio': { metric: 'schema_cache_lookups_total', kind: 'counter', labels: ['cache', 'result'] },
  'serde latency, encode and frame': { metric: 'serde_overhead_seconds', kind: 'histogram', labels: ['le'] },
  'serde latency, decode': { metric: 'serde_decode_seconds', kind: 'histogram', labels: ['le'] },
  'per-consumer reader-schema version': {
    metric: 'consumer_reader_schema_version',
    kind: 'gauge',
    labels: ['subject'],
  },
  'produce throughput': { metric: 'produced_records_total', kind: 'counter', labels: [] },
  'consumer lag': { metric: 'consumer_lag_records', kind: 'gauge', labels: ['topic', 'partition'] },
};

const processes: Running[] = [];
const addresses: string[] = [];
async function ready(child: Running): Promise<string> {
  processes.push(child);
  const address = await child.ready();
  addresses.push(address);
  return address;
}

interface Report {
  readonly ok: boolean;
  readonly rules: ReadonlyArray<{
    readonly id: string;
    readonly verdict: string;
    readonly value: number | null;
    readonly note: string;
  }>;
}
async function slo(...flags: readonly string[]) {
  const { code, stdout, stderr } = await own.run([
    'slo',
    '-json',
    '-log-level=warn',
    '-timeout=20s',
    ...flags,
  ]);
  const report = stdout === '' ? undefined : (JSON.parse(stdout) as Report);
  return { code, stderr, report, verdict: (id: string) => report?.rules.find((rule) => rule.id === id) };
}

beforeAll(async () => {
  writeFileSync(schema, orderSchema(1, 'avro'));
  const registry = await ready(startRegistry(own, ['-store=memory']));
  const shared = [
    `-brokers=${stack.brokers}`,
    `-registry=http://${registry}`,
    '-format=avro',
    `-subject=${subject}`,
    '-partitions=2',
  ];
  await ready(startTool(own, 'producer', [...shared, `-schema=${schema}`, '-rate=3000']));
  // Consumers read with another version than the producer writes, so they request the writer's
  // version.
  expect(
    (
      await ask(`http://${registry}`, 'POST', `/subjects/${subject}/versions`, {
        schema: orderSchema(2, 'avro'),
      })
    ).status,
  ).toBe(200);
  for (const name of ['consumer', 'second-consumer'])
    await ready(
      startConsumer(own, [...shared, `-group=slo-${own.suffix}-${name}`, '-session-timeout=6s'], name),
    );
  await until('a measured lag', async () => {
    for (const address of addresses.slice(2)) {
      const text = await scrape(address);
      if (!/^consumer_lag_records\{/m.test(text)) return undefined;
    }
    return true;
  });
});
afterAll(async () => {
  await Promise.all(processes.map((one) => one.drain()));
});

describe('millrace slo', () => {
  itFull('the SLO rules name only metrics that the processes serve', async () => {
    const pages = await Promise.all(
      addresses.map(async (address) => parseExposition(await scrape(address), address)),
    );
    const named = readRules('registry').rules.flatMap(({ of, to }) => [...of, ...to]);
    for (const { metric, where } of named) {
      expect(
        pages.some((page) => serves(page, metric)),
        metric,
      ).toBe(true);
      // The labels are spelled as in the rules, too.
      const samples = pages.flatMap((page) => [
        ...(page.samples.get(metric) ?? []),
        ...(page.samples.get(`${metric}_bucket`) ?? []),
      ]);
      for (const [label, values] of Object.entries(where)) {
        for (const value of values)
          expect(
            samples.map(({ labels }) => labels[label]),
            `${metric} ${label}`,
          ).toContain(value);
      }
    }
  });

  it('slo has data for every rule and a verdict that does not depend on the machine', async () => {
    const { code, report, verdict, stderr } = await slo(
      `-scrape=${addresses.join()}`,
      '-for=7s',
      '-every=1s',
    );
    expect(stderr).toContain('listening on');
    expect(report?.rules.filter((rule) => rule.verdict === 'no_data')).toEqual([]);
    for (const id of [
      'lookup_once',
      'registry_requests_bounded',
      'broken_consumers',
      'cache_hit_ratio',
      'lookup_warm_p99',
      'replay_decodes',
      'registry_request_rate',
      'reader_version',
    ])
      expect(verdict(id)).toMatchObject({ id, verdict: 'met' });
    // The requested rate is far below the goal: the rule must be missed, with a plausible measured
    // rate.
    const throughput = verdict('produce_throughput');
    expect(throughput?.verdict).toBe('missed');
    expect(throughput?.value).toBeGreaterThan(100);
    expect(throughput?.value).toBeLessThan(40_000);
    expect(code).toBe(1);
    expect(report?.ok).toBe(false);
  });

  itFull('slo exits 0 if the selected rules are met, and prints a table too', async () => {
    const only = '-only=lookup_once,registry_requests_bounded,broken_consumers,replay_decodes';
    const { code, stdout, stderr } = await own.run([
      'slo',
      `-scrape=${addresses.join()}`,
      '-for=0',
      only,
      '-log-level=warn',
      '-timeout=20s',
    ]);
    expect([code, code === 0 ? '' : stdout + stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/^verdict +rule +measured +limit +note\n/);
    expect(stdout).toMatch(/^met +broken_consumers +0 records +<= 0 records$/m);
    expect(stdout).toMatch(/4 met, 0 missed, 0 without data, over \d/);
  });

  itFull('slo has a separate verdict for a metric that no process serves', async () => {
    const registryAlone = `-scrape=${addresses[0]}`;
    const missing = await slo(registryAlone, '-for=0', '-only=broken_consumers');
    expect(missing.code).toBe(1);
    expect(missing.verdict('broken_consumers')).toMatchObject({
      verdict: 'no_data',
      value: null,
      note: 'no process serves deserialize_errors_total',
    });
    expect((await slo(registryAlone, '-for=0', '-only=broken_consumers', '-allow-missing')).code).toBe(0);
  });

  itFull('slo reports a record that no consumer can read', async () => {
    await append(stack.brokers, topic, [{ key: null, value: Buffer.from('no frame at all') }]);
    const consumers = `-scrape=${addresses.slice(2).join()}`;
    await until('a counted error', async () => {
      const { code } = await slo(consumers, '-for=0', '-only=broken_consumers');
      return code === 1 ? true : undefined;
    });
    const { verdict, code } = await slo(consumers, '-for=0', '-only=broken_consumers,replay_decodes');
    expect(code).toBe(1);
    expect(verdict('broken_consumers')).toMatchObject({ verdict: 'missed' });
    expect(verdict('replay_decodes')).toMatchObject({ verdict: 'missed' });
  });

  itFull('each metric of the requirements is on a page with its labels, and a rule judges it', async () => {
    const serving = (pages: readonly ScrapedPage[], metric: string): number =>
      pages.filter((page) => (page.samples.get(metric) ?? []).length > 0).length;
    // Both groups read the record of the test before.
    const pages = await until('an error of each group', async () => {
      const all = await Promise.all(
        addresses.map(async (address) => parseExposition(await scrape(address), address)),
      );
      return serving(all, 'deserialize_errors_total') === 2 && all;
    });
    expect(serving(pages, 'consumer_reader_schema_version')).toBe(2);
    const judged = new Set(
      readRules('registry').rules.flatMap(({ of, to }) => [...of, ...to].map(({ metric }) => metric)),
    );
    for (const [name, { metric, labels, kind }] of Object.entries(REQUIRED)) {
      const samples = pages
        .filter((page) => page.kinds.get(metric) === kind)
        .flatMap((page) => page.samples.get(kind === 'histogram' ? `${metric}_bucket` : metric) ?? []);
      expect(samples.length, name).toBeGreaterThan(0);
      for (const label of labels)
        expect(
          samples.every((sample) => sample.labels[label] !== undefined),
          `${name}: ${label}`,
        ).toBe(true);
      expect(judged, name).toContain(metric);
    }
  });

  it('slo exits with 2 for a wrong call and with 3 for an unreachable process', async () => {
    const rules = join(own.dir, 'rules.json');
    writeFileSync(rules, '{"rules":[{"id":"a"}]}');
    for (const [flags, code, message] of [
      [[], 2, '-scrape is required'],
      [['-scrape=nowhere'], 2, 'is not an address'],
      [['-scrape=127.0.0.1:1', `-rules=${rules}`], 2, 'rule 1 has no text in "says"'],
      [['-scrape=127.0.0.1:1', '-only=no_such'], 2, '-only=no_such is no rule'],
      [[`-scrape=127.0.0.1:${await freePort()}`], 3, '/metrics cannot be read: ECONNREFUSED'],
    ] as const) {
      const answer = await slo(...flags);
      expect(answer.code).toBe(code);
      expect(answer.stderr).toContain(message);
    }
    const server = createServer((_request, response) => response.end('<html>'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const page = await slo(`-scrape=127.0.0.1:${(server.address() as AddressInfo).port}`);
    expect([page.code, page.stderr]).toEqual([
      3,
      expect.stringContaining('is not a Prometheus metrics page'),
    ]);
    server.close();
  });

  itFull('slo judges the samples that it has when it gets SIGTERM', async () => {
    const child = startTool(
      own,
      'slo',
      [`-scrape=${addresses.join()}`, '-for=10m', '-every=1s', '-only=lookup_once', '-timeout=20s'],
      'stopped',
    );
    await child.ready();
    await child.drain();
    expect(child.stdout()).toContain('1 met, 0 missed');
  });
});
