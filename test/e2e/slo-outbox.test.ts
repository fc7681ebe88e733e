/** millrace slo -rules=outbox on running orders, relay and payments processes: every metric of its
 *  rules is served with the labels that the rules use, and rules that do not depend on the machine
 *  are met. */

import { afterAll, beforeAll, expect, it } from 'vitest';
import { parseExposition, serves } from '../../src/slo/exposition.ts';
import { readRules } from '../../src/slo/rules.ts';
import { connectPool } from '../fixtures/database.ts';
import { scrape } from '../fixtures/metrics.ts';
import { startOrders } from '../fixtures/orders.ts';
import { startPayments } from '../fixtures/payments.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { startRelay } from '../fixtures/relay.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { startTool } from '../fixtures/tool.ts';
import { until } from '../wait.ts';

const own = launcher();
const { brokers, postgres } = await sharedStack();
const database = `slo_${own.suffix.replaceAll('-', '_')}`;
const admin = await connectPool(postgres, { connections: 1, name: 'slo test' });
const processes: Running[] = [];
const addresses: string[] = [];

beforeAll(async () => {
  await admin.query(`CREATE DATABASE ${database}`);
  const url = new URL(postgres);
  url.pathname = `/${database}`;
  const shared = [`-postgres=${url.href}`, '-migrate', '-listen=127.0.0.1:0'];
  const topic = [`-brokers=${brokers}`, `-topic=slo-${own.suffix}`];
  const starts = [
    () => startOrders(own, shared),
    () => startRelay(own, [...shared, ...topic]),
    () => startPayments(own, [...shared, ...topic, `-group=slo-${own.suffix}`]),
  ];
  for (const start of starts) {
    const child = start();
    processes.push(child);
    addresses.push(await child.ready());
  }
});

afterAll(async () => {
  await Promise.all(processes.map((one) => one.drain()));
  await admin.query(`DROP DATABASE IF EXISTS ${database} WITH (FORCE)`);
  await admin.close();
});

const pages = () =>
  Promise.all(addresses.map(async (address) => parseExposition(await scrape(address), address)));

it('slo has data for every outbox rule while orders flow, and the rules name only served metrics', async () => {
  const load = startTool(own, 'load', [
    `-target=http://${addresses[0]}`,
    '-rate=100',
    '-duration=1m',
    '-retry-within=500ms',
    '-log-level=warn',
  ]);
  await until('the first charges', async () => {
    const seen = (await pages()).flatMap((page) => page.samples.get('payments_charges_total') ?? []);
    return seen.some(({ value }) => value > 0) ? true : undefined;
  });
  const { code, stdout, stderr } = await own.run([
    'slo',
    '-rules=outbox',
    `-scrape=${addresses.join()}`,
    '-for=7s',
    '-every=1s',
    '-json',
    '-log-level=warn',
    '-timeout=20s',
  ]);
  await load.drain();
  expect(stderr).not.toContain('error:');
  const report = JSON.parse(stdout) as { rules: ReadonlyArray<{ id: string; verdict: string }> };
  const verdicts = new Map(report.rules.map(({ id, verdict }) => [id, verdict]));
  expect([...verdicts].filter(([, verdict]) => verdict === 'no_data')).toEqual([]);
  // 100/s is below the goal of 5000/s. Rules that depend on the load of the machine may have either
  // verdict.
  expect(verdicts.get('orders_rate')).toBe('missed');
  expect(code).toBe(1);
  for (const id of [
    'orders_answered',
    'relay_lag_flat',
    'relay_order_kept',
    'payments_parks_nothing',
    'inbox_remembers',
  ])
    expect([id, verdicts.get(id)]).toEqual([id, 'met']);

  const served = await pages();
  for (const { of, to } of readRules('outbox').rules) {
    for (const { metric, where } of [...of, ...to]) {
      expect(
        served.some((page) => serves(page, metric)),
        metric,
      ).toBe(true);
      const names = new Set(
        served.flatMap((page) =>
          [...(page.samples.get(metric) ?? []), ...(page.samples.get(`${metric}_bucket`) ?? [])].flatMap(
            ({ labels }) => Object.keys(labels),
          ),
        ),
      );
      for (const label of Object.keys(where)) expect(names, `${metric} ${label}`).toContain(label);
    }
  }
});
