/** Coverage of the effects commands and of the engine: a test starts a process with each flag, and
 *  a test or a dashboard reads each metric. */
import { describe, expect, it } from 'vitest';
import { command as engine } from '../../src/bin/engine.ts';
import { command as load } from '../../src/bin/load.ts';
import { command as orders } from '../../src/bin/orders.ts';
import { command as payments } from '../../src/bin/payments.ts';
import { command as reconcile } from '../../src/bin/reconcile.ts';
import { command as relay } from '../../src/bin/relay.ts';
import { command as up } from '../../src/bin/up.ts';
import { read, repositoryFiles, withKits } from './root.ts';

const self = 'test/repository/surface.test.ts';
const files = repositoryFiles().filter((path) => path !== self);
const textOf = (pattern: RegExp): string =>
  files
    .filter((path) => pattern.test(path))
    .map(read)
    .join('\n');

/** Text of the single group of a pattern, for each match. */
const wordsOf = (text: string, pattern: RegExp): ReadonlySet<string> =>
  new Set([...text.matchAll(pattern)].map(([, word]) => word as string));

describe('flag coverage', () => {
  const tests = files
    .filter((path) => /^test\/e2e\/.*\.test\.ts$/.test(path))
    .map((path) => [...withKits(path).values()].join('\n'))
    .map((text) => ({
      flags: wordsOf(text, /(?<![\w-])-([a-z][a-z-]*)/g),
      commands: wordsOf(text, /(?:'|\/bin\/)([a-z]+)(?:\.ts)?'/g),
    }));
  /** True if a test that names the command also sets the flag. */
  const isGiven = (command: string, flag: string): boolean =>
    tests.some(({ flags, commands }) => flags.has(flag) && commands.has(command));

  it.each(
    [engine, orders, relay, payments, load, reconcile, up].map((command) => [command.name, command] as const),
  )('a test starts a process with each flag of %s', (name, { settings }) => {
    const flags = Object.keys(settings);
    expect(flags.length).toBeGreaterThan(5);
    expect(flags.filter((flag) => !isGiven(name, flag))).toEqual([]);
  });

  it('the check distinguishes a flag from longer flags and from flags of other commands', () => {
    expect(isGiven('orders', 'outbox-partition-rows')).toBe(true);
    expect(isGiven('orders', 'outbox-partition')).toBe(false);
    expect(isGiven('reconcile', 'outbox-partition-rows')).toBe(false);
  });
});

describe('metric coverage', () => {
  const sources =
    /^src\/((outbox|engine)\/.*|bin\/(engine|orders|relay|payments|load|reconcile)(\/.*)?|shell\/.*)\.ts$/;
  const names = [...wordsOf(textOf(sources), /\b(?:counter|gauge|histogram)\(\s*'(\w+)'/g)];
  const seen = wordsOf(textOf(/^(test|docker)\//), /\b([a-z]\w*)\b/g);

  it('a test or a dashboard reads each metric of the effects commands and of the engine', () => {
    expect(names.length).toBeGreaterThan(110);
    for (const name of [
      'relay_marks_missing_total',
      'inbox_moved_keys_total',
      'load_latency_seconds',
      'engine_future_clamped_total',
    ])
      expect(names).toContain(name);
    const ends = ['', '_bucket', '_sum', '_count'];
    expect(names.filter((name) => !ends.some((end) => seen.has(name + end)))).toEqual([]);
  });
});
