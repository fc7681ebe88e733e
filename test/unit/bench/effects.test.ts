/** Measuring tools of the effects benches: slopes, quantiles, and CPU time from /proc. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it } from 'vitest';
import { quantile } from '../../../bench/effects/arrivals.ts';
import { uuidV7At } from '../../../bench/effects/backlog.ts';
import { CpuMeter, cpuSeconds, processAt } from '../../../bench/effects/cpu.ts';
import { slope } from '../../../bench/effects/load.ts';

describe('bench arithmetic', () => {
  it.each([
    [[], 0],
    [[7], 0],
    [[5, 5, 5, 5], 0],
    [[0, 10, 20, 30], 10],
    [[30, 20, 10, 0], -10],
    [[1, 0, 1, 0, 1], 0],
  ])('the slope of %j is %d', (values, expected) => {
    expect(slope(values)).toBeCloseTo(expected, 9);
  });

  it.each([
    [[3, 1, 2], 0.5, 2],
    [[3, 1, 2], 1, 3],
    [[3, 1, 2], 0, 1],
    [Array.from({ length: 1000 }, (_, i) => 1000 - i), 0.99, 990],
  ])('a quantile is the expected element of case %#', (values, q, expected) => {
    expect(quantile(values, q)).toBe(expected);
  });

  it('an empty series has no quantile', () => {
    expect(quantile([], 0.5)).toBeNaN();
  });

  it('the ids of a bench run are UUIDv7 in the order of time', () => {
    const ids = Array.from({ length: 500 }, (_, n) => uuidV7At(n, 500, 1_700_000_000_000, 1_700_000_500_000));
    expect(new Set(ids).size).toBe(500);
    expect([...ids].sort()).toEqual(ids);
    for (const id of ids)
      expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(Number.parseInt((ids[0] as string).replace('-', '').slice(0, 12), 16)).toBe(1_700_000_000_000);
  });
});

/** Works until this much CPU time has been used, in µs. */
function work(us: number): void {
  const spent = (): number => process.cpuUsage().user + process.cpuUsage().system;
  const end = spent() + us;
  while (spent() < end) for (let i = 0; i < 1e5; i++);
}
const BUSY = `(${work.toString()})(300_000)`;

describe('CPU time', () => {
  it('the CPU time of a process grows with its work, and includes its children on request', async () => {
    const self = cpuSeconds(process.pid);
    const family = cpuSeconds(process.pid, true);
    const child = spawn(process.execPath, ['-e', BUSY], { stdio: 'ignore' });
    await once(child, 'close');
    const spent = cpuSeconds(process.pid, true) - family;
    expect(spent).toBeGreaterThan(0.25);
    expect(cpuSeconds(process.pid) - self).toBeLessThan(spent);
    work(200_000);
    expect(cpuSeconds(process.pid) - self).toBeGreaterThan(0.15);
  });

  it('the CPU time of a missing process is zero, and a meter knows only its names', () => {
    expect(cpuSeconds(2 ** 30)).toBe(0);
    let seconds = 1;
    const meter = new CpuMeter(new Map([['one', () => seconds]]));
    seconds = 3;
    expect(meter.seconds('one')).toBe(2);
    expect(meter.seconds('two')).toBeNaN();
  });

  it('the process that listens on a port is found by the port', async () => {
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    expect(processAt(port)).toBe(process.pid);
    server.close();
    await once(server, 'close');
    expect(processAt(port)).toBeUndefined();
  });
});
