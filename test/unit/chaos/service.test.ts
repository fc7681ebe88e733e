/** Services of a chaos run under virtual time, with processes that the test ends. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ManagedService } from '../../../src/bin/chaos/service.ts';
import type { UnplannedEnd } from '../../../src/chaos/verdict.ts';
import type { StartedCommand } from '../../../src/shell/children/started-command.ts';
import { VirtualClock } from '../../../src/sim/clock.ts';
import { until } from '../../wait.ts';

const dir = mkdtempSync(join(tmpdir(), 'millrace-chaos-service-'));
let server: Server;
beforeAll(async () => {
  server = createServer((_, answer) => void answer.writeHead(200).end());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
afterAll(() => {
  server.close();
  rmSync(dir, { recursive: true, force: true });
});

interface Fake {
  readonly args: readonly string[];
  readonly signals: string[];
  log(text: string): void;
  end(code: number | null, signal?: string): void;
}

interface World {
  readonly clock: VirtualClock;
  readonly service: ManagedService;
  /** Processes in the order of their start. */
  readonly started: Fake[];
  readonly ends: Array<Omit<UnplannedEnd, 'atMs'>>;
  last(): Fake;
}

/** Line of a process that reached its crash point. */
const crashLine = (point: string, unfinished: number): string =>
  `${JSON.stringify({ msg: 'crash point reached', point, unfinished })}\n`;

let logs = 0;

/** @param onSignal reaction of a process, beside SIGKILL, which ends it
 *  @param shim page of the processes */
function world(
  onSignal: (signal: string, one: Fake) => void = () => {},
  shim?: NonNullable<ConstructorParameters<typeof ManagedService>[0]['shim']>,
): World {
  const clock = new VirtualClock();
  const started: Fake[] = [];
  const ends: World['ends'] = [];
  const spawn = (_name: string, args: readonly string[]): StartedCommand => {
    const logPath = join(dir, `${logs++}.log`);
    let text = '';
    const log = (more: string): void => {
      text += more;
      writeFileSync(logPath, text);
    };
    log('');
    let settle: (how: { code: number | null; signal: string | null }) => void = () => {};
    const ended = new Promise<{ code: number | null; signal: string | null }>((resolve) => {
      settle = resolve;
    });
    const one: Fake = {
      args,
      signals: [],
      log,
      end: (code, signal) => settle({ code, signal: signal ?? null }),
    };
    started.push(one);
    return {
      pid: started.length,
      logPath,
      ended,
      stdout: () => '',
      address: async () => `127.0.0.1:${(server.address() as AddressInfo).port}`,
      kill: (signal) => {
        one.signals.push(signal);
        if (signal === 'SIGKILL') one.end(null, 'SIGKILL');
        else onSignal(signal, one);
      },
    };
  };
  const service = new ManagedService({
    name: 'relay',
    args: ['-a'],
    env: {},
    processes: { spawn },
    shim,
    clock,
    onUnplannedEnd: (end) => ends.push(end),
  });
  service.start();
  return { clock, service, started, ends, last: () => started.at(-1) as Fake };
}

const never = new AbortController().signal;

describe('service of a chaos run', () => {
  it('a process that ends by itself is recorded and started again after a pause', async () => {
    const { clock, started, ends, last } = world();
    last().end(3);
    await clock.advance(499);
    expect(ends).toMatchObject([{ service: 'relay', code: 3, signal: null }]);
    expect(started).toHaveLength(1);
    await clock.advance(1);
    expect(started.map(({ args }) => args)).toEqual([
      ['relay', '-a'],
      ['relay', '-a'],
    ]);
  });

  it('a kill is planned: it is not recorded, and the service has no process until it is restarted', async () => {
    const { clock, service, started, ends } = world();
    expect(await service.kill(never)).toBe(1);
    await clock.advance(10_000);
    expect([started.length, ends]).toEqual([1, []]);
    await service.restart();
    expect(started).toHaveLength(2);
  });

  it('a kill of a process that ends by itself at the same time is reported', async () => {
    const { service, last } = world();
    last().end(70);
    await expect(service.kill(never)).rejects.toThrow('relay had ended with code 70');
  });

  it('a crash with nothing in flight is repeated until a crash interrupts work', async () => {
    const unfinished = [0, 0, 4];
    const { clock, service, started, ends } = world((signal, one) => {
      if (signal === 'SIGTERM') one.end(0);
    });
    const crash = service.crashAt('publish', 7, never);
    for (const count of unfinished) {
      const before = started.length;
      await until('a process with the crash point', async () => {
        await clock.advance(50);
        return started.length > before || started.at(-1)?.args.includes('-crash-point=publish');
      });
      started.at(-1)?.log(crashLine('publish', count));
      started.at(-1)?.end(null, 'SIGKILL');
      await clock.advance(50);
    }
    expect(await crash).toBe(4);
    expect(started).toHaveLength(4);
    expect(started[0]?.signals).toEqual(['SIGTERM']);
    expect(started[1]?.args).toEqual(['relay', '-a', '-crash-point=publish', '-crash-after=7']);
    expect(ends).toEqual([]);
  });

  it('a process that ends before its crash point is recorded and replaced by one with the same point', async () => {
    const { clock, service, ends, last } = world((signal, one) => {
      if (signal === 'SIGTERM') one.end(0);
    });
    const crash = service.crashAt('mark', 1, never);
    await clock.advance(50);
    last().end(3);
    await clock.advance(600);
    expect(ends).toMatchObject([{ code: 3 }]);
    expect(last().args).toContain('-crash-point=mark');
    last().log(crashLine('mark', 2));
    last().end(null, 'SIGKILL');
    await clock.advance(100);
    expect(await crash).toBe(2);
    await service.restart();
    expect(last().args).toEqual(['relay', '-a']);
  });

  it('a crash that never comes ends with its signal, and the restart replaces the crashing process', async () => {
    const { clock, service, last } = world((signal, one) => {
      if (signal === 'SIGTERM') one.end(0);
    });
    const over = new AbortController();
    const crash = service.crashAt('commit', 1, over.signal).catch((thrown: Error) => thrown.message);
    await clock.advance(50);
    over.abort();
    await clock.advance(50);
    expect(await crash).toBe('relay did not reach the crash point');
    const crashing = last();
    await service.restart();
    expect(crashing.signals).toEqual(['SIGTERM']);
    expect(last().args).toEqual(['relay', '-a']);
  });

  it('a paused process that ended meanwhile is reported when it is continued', async () => {
    const { service, last } = world();
    const { resume } = await service.pause(never);
    expect(last().signals).toEqual(['SIGSTOP']);
    last().end(null, 'SIGKILL');
    await Promise.resolve();
    expect(resume).toThrow('relay ended while it was stopped');
    expect(last().signals).toEqual(['SIGSTOP', 'SIGCONT']);
  });

  it('a halted service has no process until it is restarted, and its end is planned', async () => {
    const { clock, service, started, ends } = world((signal, one) => {
      if (signal === 'SIGTERM') one.end(0);
    });
    await service.halt();
    await clock.advance(10_000);
    expect([started.length, ends]).toEqual([1, []]);
    await service.restart();
    expect(started).toHaveLength(2);
  });

  it('an abandoned service starts no further process', async () => {
    const { clock, service, started, ends, last } = world();
    service.abandon();
    last().end(1);
    await clock.advance(10_000);
    await service.restart();
    expect([started.length, ends]).toEqual([1, []]);
  });

  it('a service is stopped by SIGTERM, and its exit is returned', async () => {
    const { service } = world((signal, one) => {
      if (signal === 'SIGTERM') one.end(0);
    });
    expect(await service.stop()).toEqual({ code: 0, signal: null });
    expect(await service.stop()).toBeUndefined();
  });

  describe('a service with a stepped clock', () => {
    /** @param reads true for a process that reads its clock */
    const shimOf = (
      reads: boolean,
    ): {
      environment: Record<string, string>;
      steps: number[];
      clockReads: number;
      stepClock(ms: number): void;
    } => ({
      environment: {},
      steps: [],
      clockReads: 0,
      stepClock(ms) {
        this.steps.push(ms);
        if (reads && ms !== 0) this.clockReads++;
      },
    });

    it('the step is confirmed by a process that reads it, and ends when it is taken back', async () => {
      const shim = shimOf(true);
      const { service, started } = world(() => {}, shim);
      const { pid, back } = await service.stepClock(-5000, never);
      expect([pid, shim.steps]).toEqual([1, [-5000]]);
      back();
      expect(shim.steps).toEqual([-5000, 0]);
      // The running process was stepped, and none was started for it.
      expect(started).toHaveLength(1);
    });

    it('a process that never reads its clock is not stepped, and its clock is right again', async () => {
      const shim = shimOf(false);
      const { clock, service } = world(() => {}, shim);
      const step = service.stepClock(5000, never);
      const refused = expect(step).rejects.toThrow('relay did not read its stepped clock');
      await clock.advance(61_000);
      await refused;
      expect(shim.steps).toEqual([5000, 0]);
    });
  });
});
