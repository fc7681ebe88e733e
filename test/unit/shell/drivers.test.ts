import { describe, expect, test } from 'vitest';
import { findAddon } from '../../../src/addon/load.ts';
import { coreError, findMillraceError, MillraceError } from '../../../src/core/errors.ts';
import type { LogFields, Logger } from '../../../src/core/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { loadUws } from '../../../src/io/http/uws/load.ts';
import {
  brokerDriver,
  type HttpChoice,
  httpDriver,
  kernels,
  runsNative,
  sqlDriver,
} from '../../../src/shell/drivers.ts';

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

describe('choice of drivers', () => {
  test('native=off uses the reference kernels and node-rdkafka, with a log line and a metric', async () => {
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

  test('the direct client is refused without the addon, and needs no property that it does not know', async () => {
    const { context } = contextOf('off');
    await expect(brokerDriver(context, 'direct')).rejects.toMatchObject({ code: 'bad_value' });
    if (findAddon() === null) return;
    const { context: on, lines } = contextOf('on');
    expect((await brokerDriver(on, 'direct')).name).toBe('direct');
    const settings = { native: 'on', 'broker-property': { 'client.rack': 'a' } };
    expect((await brokerDriver({ ...on, settings }, 'direct')).name).toBe('librdkafka');
    expect(lines.map(({ level, fields }) => [level, fields['reason']])).toEqual([
      ['info', 'requested'],
      ['warn', 'not the direct client: it does not know client.rack'],
    ]);
  });

  test('a command that serves nothing logs its driver only at debug level', async () => {
    const { context, lines } = contextOf('off', undefined);
    await brokerDriver({ ...context, address: undefined });
    expect(lines.map((line) => line.level)).toEqual(['debug']);
  });

  test('native=on uses the addon or fails, and never the reference kernels', () => {
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

  test('native=auto uses the addon if it is built, otherwise the reference kernels with a warning', () => {
    const { context, lines, loaded } = contextOf('auto');
    const built = findAddon() !== undefined;
    expect(kernels(context).name).toBe(built ? 'native' : 'reference');
    expect(loaded()).toBe(built ? 1 : 0);
    expect(lines[0]?.level).toBe(built ? 'info' : 'warn');
  });

  test('the only SQL driver is pg', async () => {
    expect((await sqlDriver(contextOf('off').context)).name).toBe('pg');
  });
});

describe('choice of the HTTP backend', () => {
  const fits = (): boolean => {
    try {
      loadUws();
      return true;
    } catch {
      return false;
    }
  };
  const choose = async (choice: Partial<HttpChoice>, load?: () => unknown) => {
    const { context, lines } = contextOf('off');
    const whole = { asked: 'auto', tls: false, loopback: true, needs: undefined, ...choice };
    const outcome = await httpDriver(context, whole, load).catch((thrown: unknown) =>
      findMillraceError(thrown),
    );
    const uws = context.metrics.gauge('http_backend_uws', '').value();
    return { name: outcome instanceof MillraceError ? outcome.toLine() : outcome?.name, uws, line: lines[0] };
  };

  test('auto serves plain loopback HTTP by uWebSockets.js if the command allows it', async () => {
    const chosen = await choose({ needs: [] });
    expect([chosen.name, chosen.uws]).toEqual(fits() ? ['uWebSockets.js', 1] : ['node:net', 0]);
    expect(chosen.line).toMatchObject({ level: fits() ? 'info' : 'warn', fields: { port: 'http' } });
  });

  test('node:http serves only on request', async () => {
    const chosen = await choose({ asked: 'node', needs: [], tls: true, loopback: false });
    expect([chosen.name, chosen.uws, chosen.line?.fields['reason']]).toEqual(['node:http', 0, 'requested']);
  });

  test.each<[string, Partial<HttpChoice>, string]>([
    ['without a statement', {}, 'most features'],
    ['with TLS', { needs: [], tls: true }, 'no TLS'],
    ['on an address that others reach', { needs: [], loopback: false }, 'not a loopback address'],
    ['with a need that uWebSockets.js lacks', { needs: ['header_bytes'] }, 'the command needs header_bytes'],
    [
      'with such a need and TLS',
      { needs: ['pipeline_waits'], tls: true },
      'the command needs pipeline_waits',
    ],
    ['when asked', { asked: 'net', tls: true }, 'requested'],
  ])('our own parser over node:net serves %s, and the log states why', async (_what, choice, why) => {
    const chosen = await choose(choice);
    expect([chosen.name, chosen.uws]).toEqual(['node:net', 0]);
    expect(chosen.line?.fields['reason']).toContain(why);
  });

  test('our own parser over node:net serves, with a warning, if uWebSockets.js has no binary for this Node.js', async () => {
    const missing = (): never => {
      throw coreError('addon_missing', 'uWebSockets.js does not load here');
    };
    const chosen = await choose({ needs: [] }, missing);
    expect([chosen.name, chosen.uws]).toEqual(['node:net', 0]);
    expect(chosen.line).toMatchObject({
      level: 'warn',
      fields: { reason: 'uWebSockets.js does not load here' },
    });
    expect((await choose({ asked: 'uws' }, missing)).name).toContain('[addon_missing]');
  });

  test('a requested uWebSockets.js that cannot serve is an error and not replaced', async () => {
    expect((await choose({ asked: 'uws', tls: true })).name).toContain('it serves no TLS');
    expect((await choose({ asked: 'uws', needs: ['pipeline_waits'] })).name).toMatch(
      /-http=uws cannot serve this: the command needs pipeline_waits: .*; run with -http=net.*\[bad_value\]/,
    );
    expect((await choose({ asked: 'uws' })).name).toMatch(fits() ? /^uWebSockets.js$/ : /addon_missing/);
  });
});
