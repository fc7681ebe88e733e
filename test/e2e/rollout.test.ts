/** `millrace rollout`: real producers and consumers on a real broker, upgraded under load. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { freePort } from '../../src/devstack/ports.ts';
import { orderSchema } from '../../src/gen/order-versions.ts';
import { pageOf } from '../fixtures/metrics.ts';
import { launcher } from '../fixtures/process.ts';
import { rolloutOnTerminal, runRollout, startRollout } from '../fixtures/rollout.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { itFull } from '../tier.ts';
import { until } from '../wait.ts';

const own = launcher();
const { brokers } = await sharedStack();
const small = [
  `-brokers=${brokers}`,
  '-rate=200',
  '-producers=1',
  '-consumers=1',
  '-groups=2',
  '-duration=3s',
  '-sample-every=200ms',
  '-partitions=2',
  '-settle-timeout=2m',
  '-log-level=warn',
  '-json',
];
const document = (stdout: string): Record<string, unknown> => JSON.parse(stdout) as Record<string, unknown>;

describe('a live rollout', () => {
  itFull('consumers first under BACKWARD upgrades every instance without an unreadable record', async () => {
    const plot = join(own.dir, 'plot.svg');
    const { code, stdout, stderr } = await runRollout(own, [
      ...small,
      '-from-version=3',
      '-to-version=4',
      '-order=consumers-first',
      `-plot=${plot}`,
    ]);
    expect(code, stderr).toBe(0);
    expect(document(stdout)).toMatchObject({ verdict: 'upgraded', errors: 0, accepted: true });
    const { produced, consumed, upgraded } = document(stdout) as Record<string, number>;
    expect(upgraded).toHaveLength(3);
    // Each of the two groups reads every record; a rebalance may repeat some.
    expect(consumed).toBeGreaterThanOrEqual((produced as number) * 2);
    expect(readFileSync(plot, 'utf8')).toContain('consumer-g1-1 runs the new version');
  });

  it('producers first under BACKWARD counts unreadable records and returns to the old version', async () => {
    const { code, stdout, stderr } = await runRollout(own, [
      ...small,
      '-from-version=3',
      '-to-version=4',
      '-order=producers-first',
    ]);
    expect(code, stderr).toBe(1);
    const { verdict, errors, upgraded } = document(stdout);
    expect(verdict).toBe('rolled-back');
    expect(errors).toBeGreaterThan(0);
    expect(upgraded).toEqual(['producer-1']);
  });

  itFull(
    'a change that the mode refuses is exit 4, and runs on a subject set to NONE when asked',
    async () => {
      const change = ['-from-version=5', '-to-version=6', '-mode=BACKWARD'];
      expect((await runRollout(own, [...small, ...change])).code).toBe(4);
      const { code, stdout, stderr } = await runRollout(own, [...small, ...change, '-refused=run']);
      expect(code, stderr).toBe(0);
      expect(document(stdout)).toMatchObject({
        verdict: 'upgraded',
        order: 'producers-first',
        accepted: false,
        errors: 0,
      });
    },
  );

  itFull('rollout serves its instances, rates, lag and errors on /metrics while it runs', async () => {
    // The instances must not take the address that is meant for rollout.
    const env = { ...process.env, MILLRACE_LISTEN: `127.0.0.1:${await freePort()}` };
    const flags = [...small.filter((flag) => flag !== '-duration=3s'), '-duration=1h'];
    const rollout = startRollout(own, flags, { env });
    const address = await rollout.address();
    expect(address).toBe(env.MILLRACE_LISTEN);
    // Instances count in batches, so a short sample may hold records of one direction only.
    const pageWith = (direction: string): Promise<ReadonlyMap<string, number>> =>
      until(`a fleet with records ${direction}`, async () => {
        const seen = await pageOf(address);
        return (seen.get(`rollout_records_per_second{direction="${direction}"}`) ?? 0) > 0 && seen;
      });
    await pageWith('produced');
    const page = await pageWith('consumed');
    expect(page.get('rollout_instances{role="consumer",version="old"}')).toBe(2);
    expect(page.get('rollout_instances{role="producer",version="old"}')).toBe(1);
    expect(page.get('rollout_instances{role="producer",version="new"}')).toBe(0);
    expect(page.get('rollout_lag_records')).toBeGreaterThanOrEqual(0);
    expect(page.get('rollout_errors')).toBe(0);
    rollout.kill('SIGTERM');
    expect(await rollout.ended).toEqual({ code: 5, signal: null });
  });

  itFull(
    'a terminal shows a table of the instances, and Ctrl-C leaves the cursor on a free line',
    async () => {
      const flags = [...small.filter((flag) => !/^-(duration|json)/.test(flag)), '-duration=1h'];
      const { terminal, type, ended } = rolloutOnTerminal(flags, 50, 14);
      await until('a running fleet', () =>
        terminal.shown().some((line) => /^producer-1 .* running /.test(line)),
      );
      const shown = terminal.shown();
      expect(shown.at(-5)).toMatch(/^instance +version +state +lag +errors$/);
      expect(shown.slice(-4, -1).map((line) => line.split(' ')[0])).toEqual([
        'consumer-g1-1',
        'consumer-g2-1',
        'producer-1',
      ]);
      // A table that is redrawn in place is shown once.
      expect(shown.filter((line) => line.startsWith('instance '))).toHaveLength(1);
      type('\u0003');
      expect(await ended).toBe(130);
      expect(terminal.shown().join('\n')).toContain('done: interrupted');
      expect(terminal.isFree()).toBe(true);
    },
  );

  itFull('SIGTERM ends the fleet and leaves no process', async () => {
    const rollout = startRollout(own, [...small.filter((flag) => flag !== '-duration=3s'), '-duration=1h']);
    const address = await rollout.address();
    await until('a running fleet', async () => (await fetch(`http://${address}/ready`)).status === 200);
    expect((await fetch(`http://${address}/ready`)).status).toBe(200);
    const children = childrenOf(rollout.pid);
    expect(children.length).toBeGreaterThanOrEqual(3);
    rollout.kill('SIGTERM');
    expect(await rollout.ended).toEqual({ code: 5, signal: null });
    expect(children.filter(isAlive)).toEqual([]);
  });
});

const childrenOf = (pid: number): readonly number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').map(Number);

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe('a plan', () => {
  it('the plan of two schema files names the safe order and exits with 1 for the other order', async () => {
    const [from, to] = [5, 6].map((version) => {
      const path = join(own.dir, `order-${version}.avsc`);
      writeFileSync(path, orderSchema(version as 5 | 6, 'avro'));
      return path;
    });
    const flags = ['-plan', `-from-version=${from}`, `-to-version=${to}`, '-mode=FORWARD', '-log-level=warn'];
    const safe = await runRollout(own, flags);
    expect(safe.code).toBe(0);
    expect(safe.stdout).toMatch(/^order: producers-first\n/);
    expect((await runRollout(own, [...flags, '-order=consumers-first'])).code).toBe(1);
  });
});
