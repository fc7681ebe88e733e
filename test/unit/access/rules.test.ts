/** The rules file, its patterns, the token buckets, and files that are reloaded. */
import { mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Buckets } from '../../../src/access/bucket.ts';
import { Glob } from '../../../src/access/glob.ts';
import { Rules } from '../../../src/access/rules.ts';
import { WatchedFile } from '../../../src/access/watched-file.ts';
import { clientOf } from '../../../src/core/connections.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { stepsOf } from '../../steps.ts';
import { logLines, testClock } from './access-kit.ts';

describe('patterns', () => {
  it.each([
    ['orders', 'orders', true],
    ['orders', 'orders-value', false],
    ['orders-*', 'orders-', true],
    ['orders-*', 'orders', false],
    ['*', '', true],
    ['*', 'anything/at:all', true],
    ['*-value', 'orders-value', true],
    ['*-value', 'orders-value2', false],
    ['a*b*c', 'a-b-b-c', true],
    ['a*b*c', 'a-b-b-', false],
    ['?', '本', true],
    ['?', '🚚', true],
    ['?', '', false],
    ['a?c', 'abc', true],
    ['a\\*', 'a*', true],
    ['a\\*', 'ab', false],
    ['a\\\\', 'a\\', true],
    ['[ab]', 'a', false],
    ['.', 'x', false],
    ['**', 'x', true],
  ])('the pattern %s matches %s: %s', (pattern, name, matches) => {
    expect(Glob.parse(pattern)?.matches(name)).toBe(matches);
  });

  it('a pattern that ends in a lone backslash is refused', () => {
    expect(Glob.parse('a\\')).toBeUndefined();
  });

  it('a pattern costs no more than its length times the text', () => {
    const glob = Glob.parse(`${'*a'.repeat(200)}b`) as Glob;
    const steps = stepsOf(() => expect(glob.matches('a'.repeat(5000))).toBe(false));
    expect(steps).toBeGreaterThan(5000);
    expect(steps).toBeLessThan(400 * 5000);
  });
});

const read = (subject: string) => ({ operation: 'read', subject }) as const;

describe('access rules', () => {
  const rules = Rules.parse(
    [
      '# who        may          what',
      '',
      'basic:alice  read,write   orders-*   # and a remark',
      'basic:alice  read         :.staging:*',
      'jwt:*        read         shared',
      '"mtls:CN=batch job,O=""Acme""" all :*:*',
      'authenticated read        known-*',
      'anonymous    read         public-?',
      'basic:root   admin        *',
    ].join('\n'),
    'rules',
  );

  it('access rules allow the operations and subjects that they name, and nothing else', () => {
    const alice = rules.principal('basic:alice');
    expect(alice.may(read('orders-value'))).toBe(true);
    expect(alice.may({ operation: 'write', subject: 'orders-value' })).toBe(true);
    expect(alice.may({ operation: 'delete', subject: 'orders-value' })).toBe(false);
    expect(alice.may({ operation: 'admin', subject: 'orders-value' })).toBe(false);
    expect(alice.may(read('payments'))).toBe(false);
    expect(alice.may(read('known-1'))).toBe(true);
    expect(alice.may(read('shared'))).toBe(false);
    expect(rules.principal('jwt:alice').may(read('orders-value'))).toBe(false);
    expect(rules.principal('jwt:anyone').may(read('shared'))).toBe(true);
  });

  it('access rules apply only to the context they name', () => {
    const alice = rules.principal('basic:alice');
    expect(alice.may(read(':.staging:anything'))).toBe(true);
    expect(alice.may({ operation: 'write', subject: ':.staging:orders-value' })).toBe(false);
    expect(alice.may(read(':.other:orders-value'))).toBe(false);
    expect(alice.may(read(':.:orders-value'))).toBe(true);
    expect(alice.mayReadContext('.')).toBe(true);
    expect(alice.mayReadContext('.staging')).toBe(true);
    expect(alice.mayReadContext('.other')).toBe(false);
    const batch = rules.principal('mtls:CN=batch job,O="Acme"');
    expect(batch.may({ operation: 'delete', subject: ':.other:x' })).toBe(true);
  });

  it('a rule for anonymous applies to every caller, and a principal without a rule gets no more', () => {
    expect(rules.principal('anonymous').may(read('public-1'))).toBe(true);
    expect(rules.principal('anonymous').may(read('known-1'))).toBe(false);
    expect(rules.principal('anonymous').may(read('public-12'))).toBe(false);
    expect(rules.principal('basic:alice').may(read('public-1'))).toBe(true);
    expect(Rules.parse('', 'rules').principal('basic:alice').may({ operation: 'read' })).toBe(false);
  });

  it('an operation that reaches all contexts needs a rule that covers all contexts', () => {
    const root = rules.principal('basic:root');
    const batch = rules.principal('mtls:CN=batch job,O="Acme"');
    expect(root.may({ operation: 'admin' })).toBe(false);
    expect(root.may({ operation: 'admin', subject: 'any' })).toBe(true);
    expect(root.may({ operation: 'admin', subject: ':.:' })).toBe(true);
    expect(root.may({ operation: 'admin', subject: ':.staging:' })).toBe(false);
    expect(batch.may({ operation: 'admin' })).toBe(true);
    expect(batch.may({ operation: 'admin', subject: ':.staging:' })).toBe(true);
    expect(rules.principal('basic:alice').may({ operation: 'admin', subject: ':.staging:' })).toBe(false);
    expect(rules.principal('basic:alice').may({ operation: 'read' })).toBe(true);
    expect(rules.principal('basic:alice').may(read(':.staging:'))).toBe(true);
    expect(rules.principal('basic:alice').may(read(':.other:'))).toBe(false);
  });

  it('an id is readable through any of the subjects that use it', () => {
    const alice = rules.principal('basic:alice');
    const by = (...anyOf: string[]) => ({ operation: 'read', anyOf }) as const;
    expect(alice.may(by('payments', 'orders-value'))).toBe(true);
    expect(alice.may(by('payments', 'users'))).toBe(false);
    expect(alice.may(by())).toBe(false);
  });

  it.each([
    ['basic:a read', 'rules:1: a rule has three columns, not 2'],
    ['\n\nalice read *', 'rules:3: "alice" is not a principal'],
    ['basic: read *', '"basic:" is not a principal'],
    ['basic:a reads *', '"reads" is not an operation'],
    ['basic:a read,,write *', '"" is not an operation'],
    ['basic:a read :.ctx', 'names a context and no subjects'],
    ['basic:a read :*:', 'names a context and no subjects'],
    ['basic:a read a\\', 'ends in a lone backslash'],
    ['"basic:a read *', 'a quote is not closed'],
    ['"basic:a"b read *', 'a quote is not closed'],
    [`basic:a read ${'x'.repeat(2000)}`, 'a pattern has 2000 characters'],
    ['basic:a read * extra', 'three columns, not 4'],
  ])('the rules file %j is refused with its line', (text, message) => {
    expect(() => Rules.parse(text, 'rules')).toThrow(message);
    expect(() => Rules.parse(text, 'rules')).toThrow(expect.objectContaining({ code: 'bad_file' }) as Error);
  });

  it('the number of access rules is limited', () => {
    expect(() => Rules.parse('basic:a read *\n'.repeat(10_001), 'rules')).toThrow('more than 10000 rules');
  });
});

describe('token buckets', () => {
  it('token buckets admit a burst, then the rate, and report how long to wait', () => {
    const clock = testClock();
    const buckets = new Buckets({ perSecond: 2, burst: 3, bucketsMax: 10, clock });
    expect([1, 2, 3].map(() => buckets.take('a'))).toEqual([0, 0, 0]);
    expect(buckets.take('a')).toBeCloseTo(0.5);
    expect(buckets.take('b')).toBe(0);
    clock.advance(499);
    expect(buckets.take('a')).toBeGreaterThan(0);
    clock.advance(2);
    expect(buckets.take('a')).toBe(0);
    buckets.refund('a');
    expect(buckets.take('a')).toBe(0);
  });

  it('token buckets are limited in number and evict the least recently used client', () => {
    const clock = testClock();
    const buckets = new Buckets({ perSecond: 1, burst: 1, bucketsMax: 3, clock });
    for (const key of ['a', 'b', 'c', 'a', 'd']) buckets.take(key);
    expect(buckets.size).toBe(3);
    expect(buckets.take('a')).toBeGreaterThan(0);
    expect(buckets.take('b')).toBe(0);
    for (let i = 0; i < 1000; i++) buckets.take(`x${i}`);
    expect(buckets.size).toBe(3);
  });

  it.each([
    ['192.0.2.7', '192.0.2.7'],
    ['::ffff:192.0.2.7', '192.0.2.7'],
    ['0:0:0:0:0:ffff:192.0.2.7', '192.0.2.7'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:DB8:1:2::6', '2001:db8:1:2::/64'],
    ['2001:db8::6', '2001:db8:0:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['', ''],
  ])('the address %s belongs to the client %s', (address, client) => {
    expect(clientOf(address)).toBe(client);
  });
});

describe('watched file', () => {
  const dir = mkdtempSync(join(tmpdir(), 'registry-security-'));
  afterAll(() => rmSync(dir, { recursive: true, force: true }));
  let tick = 0;
  const write = (name: string, text: string | Uint8Array): string => {
    const path = join(dir, name);
    writeFileSync(path, text);
    utimesSync(path, 1000 + tick, 1000 + tick++);
    return path;
  };
  const open = (path: string) => {
    const log = logLines();
    const metrics = new Metrics();
    const reloads = metrics.counter('reloads_total', '', ['file', 'outcome']);
    let changes = 0;
    const file = new WatchedFile({
      path,
      flag: 'auth-rules',
      bytesMax: 1000,
      parse: Rules.parse,
      onChange: () => changes++,
      log,
      reloads,
    });
    return { file, log, changes: () => changes, reloads };
  };

  it('a watched file is reloaded when it changes, and only then', () => {
    const path = write('a', 'basic:a read *');
    const { file, changes } = open(path);
    const first = file.current;
    file.check();
    expect(file.current).toBe(first);
    expect(changes()).toBe(0);
    write('a', 'basic:b read *');
    file.check();
    expect(file.current.principal('basic:b').may({ operation: 'read' })).toBe(true);
    expect(file.current.principal('basic:a').may({ operation: 'read' })).toBe(false);
    expect(changes()).toBe(1);
    file.check(true);
    expect(changes()).toBe(2);
  });

  it('a watched file counts 0 failures from its start, so that an alert sees the first increase', () => {
    const { reloads } = open(write('c', 'basic:a read *'));
    expect(reloads.snapshot().samples).toEqual([
      { labels: { file: 'auth-rules', outcome: 'failed' }, value: 0 },
    ]);
  });

  it('a watched file keeps its last valid content when it becomes invalid or disappears, logs once and recovers', () => {
    const path = write('b', 'basic:a read *');
    const { file, log, reloads } = open(path);
    const first = file.current;
    write('b', 'basic:a reads *');
    for (let i = 0; i < 3; i++) file.check();
    expect(file.current).toBe(first);
    rmSync(path);
    for (let i = 0; i < 3; i++) file.check();
    expect(file.current).toBe(first);
    const errors = log.lines.filter(({ level }) => level === 'error');
    expect(errors.map(({ fields }) => String(fields['error']))).toEqual([
      expect.stringContaining(':1: "reads" is not an operation'),
      expect.stringContaining('ENOENT'),
    ]);
    expect(reloads.value(reloads.series('auth-rules', 'failed'))).toBe(2);
    write('b', 'basic:c read *');
    file.check();
    expect(file.current).not.toBe(first);
  });

  it.each([
    ['missing', undefined, 'ENOENT'],
    ['large', 'x'.repeat(1001), 'over the limit of 1000'],
    ['binary', new Uint8Array([0xff, 0xfe, 0x00]), 'is not UTF-8'],
  ])('a watched file that is %s stops the start', (name, content, why) => {
    const path = content === undefined ? join(dir, name) : write(name, content);
    expect(() => open(path)).toThrow(why);
  });
});
