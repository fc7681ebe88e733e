import { describe, expect, test } from 'vitest';
import { brokerDriver, httpDriver, kernels, runsNative, sqlDriver } from '../../../src/bin/shell/drivers.ts';
import { findMillraceError } from '../../../src/core/errors.ts';
import type { LogFields, Logger } from '../../../src/core/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { findAddon } from '../../../src/native/load.ts';

function contextOf(native: string, address: unknown = {}) {
  const lines: Array<{ level: string; fields: LogFields }> = [];
  const at = (level: string) => (fields: LogFields) => void lines.push({ level, fields });
  const log: Logger = {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    child: () => log,
  };
  const metrics = new Metrics();
  const loaded = (): number => metrics.gauge('native_addon_loaded', '').value();
  return { context: { settings: { native }, log, metrics, address }, lines, loaded };
}

describe('the choice of drivers', () => {
  test('off: the twins and node-rdkafka, said in the log and in the metric', async () => {
    const { context, lines, loaded } = contextOf('off');
    expect(runsNative(context)).toBe(false);
    expect(kernels(context).name).toBe('reference');
    expect((await brokerDriver(context)).name).toBe('node-rdkafka');
    expect(loaded()).toBe(0);
    expect(lines).toEqual([
      {
        level: 'info',
        fields: { port: 'kernels', driver: 'reference', mode: 'reference', reason: 'MILLRACE_NATIVE=off' },
      },
      {
        level: 'info',
        fields: { port: 'broker', driver: 'node-rdkafka', mode: 'reference', reason: 'MILLRACE_NATIVE=off' },
      },
    ]);
  });

  test('a command that serves nothing is not chatty about it', async () => {
    const { context, lines } = contextOf('off', undefined);
    await brokerDriver({ ...context, address: undefined });
    expect(lines.map((line) => line.level)).toEqual(['debug']);
  });

  test('on: the addon or an error, never the twins', () => {
    const { context, loaded } = contextOf('on');
    expect(runsNative(context)).toBe(true);
    let outcome: string | undefined;
    try {
      outcome = kernels(context).name;
    } catch (thrown) {
      outcome = findMillraceError(thrown)?.code;
    }
    expect([outcome, loaded()]).toEqual(findAddon() === undefined ? ['layout_mismatch', 0] : ['native', 1]);
  });

  test('auto: the addon where it is built, else the twins and a warning', () => {
    const { context, lines, loaded } = contextOf('auto');
    const built = findAddon() !== undefined;
    expect(kernels(context).name).toBe(built ? 'native' : 'reference');
    expect(loaded()).toBe(built ? 1 : 0);
    expect(lines[0]?.level).toBe(built ? 'info' : 'warn');
  });

  test('SQL and HTTP have one driver each', async () => {
    const { context } = contextOf('off');
    expect((await sqlDriver(context)).name).toBe('pg');
    expect((await httpDriver(context)).name).toBe('node:http');
  });
});
