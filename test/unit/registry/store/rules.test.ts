import { beforeEach, describe, expect, it, vi } from 'vitest';
import { silentLogger } from '../../../../src/core/log.ts';
import { registryError } from '../../../../src/registry/errors.ts';
import type { LogRecord } from '../../../../src/registry/store/log.ts';
import { MemoryLog } from '../../../../src/registry/store/log.ts';
import { Registry } from '../../../../src/registry/store/registry.ts';
import type { RegisterInput } from '../../../../src/registry/store/service.ts';
import { encodeRecord } from '../../../../src/registry/store/state/records.ts';
import { untilDone } from '../../../../src/registry/worker/checks.ts';
import { realClock } from '../../../wait.ts';
import { avro, code, everything, type Kit, openKit, proto, SharedLog, TestLog, typed } from './store-kit.ts';

let registry: Registry;
let log: TestLog;
let put: Kit['put'];
let numbers: Kit['numbers'];
let replayed: Kit['replayed'];
const open = async (records?: readonly LogRecord[]): Promise<void> => {
  ({ registry, log, put, numbers, replayed } = await openKit(records));
};
beforeEach(() => open());

describe('compatibility', () => {
  const ask = (wanted: string | undefined, input: string | RegisterInput, subject = 'a') =>
    registry.compatibility(subject, wanted, typeof input === 'string' ? { text: input } : input, {});

  beforeEach(async () => {
    await registry.setConfig('a', { compatibility: 'NONE' });
    await put('a', typed('int'));
    await put('a', avro('y'));
    await registry.setConfig('a', { compatibility: 'BACKWARD' });
  });

  it.each([
    ['latest', avro('y', 'z'), true, [2]],
    [undefined, avro('y', 'z'), true, [2]],
    ['1', typed('long'), true, [1]],
    ['1', typed('boolean'), false, [1]],
    ['2', typed('boolean'), false, [2]],
    ['1', typed('int'), true, [1]],
    ['2', typed('int'), false, [2]],
  ])('a check compares with %j', (wanted, text, compatible, compared) => {
    const verdict = ask(wanted, text);
    expect(verdict).toMatchObject({ compatible, level: 'BACKWARD' });
    expect(verdict.compared.map(({ version }) => version)).toEqual(compared);
  });

  it('a transitive level compares with all versions, and a named version with one', async () => {
    await registry.setConfig('a', { compatibility: 'backward_transitive' });
    const text = JSON.stringify({
      type: 'record',
      name: 'Order',
      fields: [{ name: 'x', type: 'string', default: '' }],
    });
    expect(ask(undefined, text)).toMatchObject({ compatible: false, level: 'BACKWARD_TRANSITIVE' });
    expect(ask(undefined, text).compared).toHaveLength(2);
    expect(ask('2', text)).toMatchObject({ compatible: true });
    expect(await code(put('a', text))).toBe('incompatible');
  });

  it('an unknown subject has no version to compare with, unless the request names a version', async () => {
    expect(ask('latest', '"int"', 'none')).toMatchObject({ compatible: true, compared: [] });
    expect(ask(undefined, '"int"', 'none')).toMatchObject({ compatible: true, compared: [] });
    expect(await code(() => ask('1', '"int"', 'none'))).toBe('version_not_found');
    expect(await code(() => ask('3', '"int"'))).toBe('version_not_found');
    expect(await code(() => ask('x', '"int"'))).toBe('invalid_version');
    expect(await code(() => ask('latest', '{'))).toBe('invalid_schema');
  });

  it('another schema type is refused except under NONE', async () => {
    const refusal = await put('a', proto('int32 a = 1;')).then(String, String);
    expect(refusal).toContain('different schema type');
    await registry.setConfig('a', { compatibility: 'NONE' });
    expect(await put('a', proto('int32 a = 1;'))).toMatchObject({ version: { version: 3 } });
  });

  it('versions are compared within the group of a metadata property', async () => {
    await registry.setConfig('g', { compatibility: 'FULL_TRANSITIVE', compatibilityGroup: 'major' });
    const at = (major: string, text: string): RegisterInput => ({
      text,
      metadata: { properties: { major } },
    });
    await put('g', at('1', typed('int')));
    expect(await code(put('g', at('1', typed('string'))))).toBe('incompatible');
    expect(await put('g', at('2', typed('string')))).toMatchObject({ version: { version: 2 } });
    expect(await code(put('g', at('2', typed('int'))))).toBe('incompatible');
  });

  it("the subject's setting decides whether a lossy change passes", async () => {
    await put('l', typed('int'));
    await registry.setConfig('l', { lossy: 'REJECT' });
    expect(ask('latest', typed('float'), 'l').compatible).toBe(false);
    expect(await put('l', typed('float')).then(String, String)).toContain('lossy');
    await registry.setConfig('l', { lossy: null });
    expect(ask('latest', typed('float'), 'l').compatible).toBe(true);
  });

  it('a check that takes too many steps over all versions is refused by the name of the limit', async () => {
    const many = Array.from({ length: 1_100 }, (_, i) => i);
    const wide = {
      type: 'record',
      name: 'W',
      fields: many.map((i) => ({ name: `w${i}`, type: 'int', default: 0 })),
      aliases: many.map((i) => `V${i}`),
    };
    const empty = (name: string): object => ({ type: 'record', name, fields: [] });
    const table = (typeOf: (i: number) => unknown, ...more: readonly object[]): string =>
      JSON.stringify({
        type: 'record',
        name: 'R',
        fields: [...many.map((i) => ({ name: `f${i}`, type: typeOf(i) })), ...more],
      });
    await registry.setConfig('t', { compatibility: 'NONE' });
    for (const name of ['x', 'y', 'z'])
      await put(
        't',
        table((i) => empty(`V${i}`), { name, type: 'int' }),
      );
    await registry.setConfig('t', { compatibility: 'BACKWARD_TRANSITIVE' });
    const proposed = table((i) => (i === 0 ? wide : 'W'));
    // One version alone stays below the limit.
    await registry.setConfig('t', { compatibility: 'BACKWARD' });
    expect(ask(undefined, proposed, 't').compared).toHaveLength(1);
    await registry.setConfig('t', { compatibility: 'BACKWARD_TRANSITIVE' });
    expect(() => ask(undefined, proposed, 't')).toThrow(
      /^the check of this schema takes more than 2000000 steps over all .* \(the limit check-steps\); make the schema simpler/,
    );
    expect(await code(put('t', proposed))).toBe('check_too_long');
  });

  it('an unparsable stored schema is served, and nothing is compatible with it', async () => {
    const value = { id: 1, format: 'AVRO', text: '{"type":"mystery"}', references: [], deleted: false };
    await open([encodeRecord({ kind: 'schema', subject: 'a', version: 1, value })]);
    expect(registry.schema(1).content.text).toBe(value.text);
    expect(ask('latest', '"int"')).toMatchObject({ compatible: false });
    expect(await code(put('a', '"int"'))).toBe('incompatible');
    await registry.setConfig('a', { compatibility: 'NONE' });
    expect(await put('a', '"int"')).toMatchObject({ version: { version: 2, id: 2 } });
  });
});

describe('settings', () => {
  it('settings report the set value, the effective value, and the removed value', async () => {
    expect(registry.config(undefined, false)).toEqual({ compatibilityLevel: 'BACKWARD' });
    expect(await code(() => registry.config('a', false))).toBe('subject_level_not_set');
    expect(await registry.setConfig('a', { compatibility: 'full', alias: null })).toEqual({
      compatibilityLevel: 'FULL',
    });
    await registry.setConfig(':.c:', { compatibility: 'NONE', normalize: true });
    await registry.setConfig(':.c:a', { validateFields: false });
    expect(registry.config(':.c:a', false)).toEqual({ validateFields: false });
    expect(registry.config(':.c:a', true)).toEqual({
      compatibilityLevel: 'NONE',
      normalize: true,
      validateFields: false,
    });
    expect(await registry.deleteConfig('a')).toEqual({ compatibilityLevel: 'FULL' });
    expect(await code(registry.deleteConfig('a'))).toBe('subject_not_found');
    expect(await registry.setConfig(undefined, { compatibility: 'FORWARD' })).toEqual({
      compatibilityLevel: 'FORWARD',
    });
    expect(await registry.deleteConfig(undefined)).toEqual({ compatibilityLevel: 'FORWARD' });
    expect(registry.config(undefined, true)).toEqual({ compatibilityLevel: 'BACKWARD' });
  });

  it.each([
    [{ compatibility: 'SIDEWAYS' }],
    [{ compatibility: 5 }],
    [{ normalize: 'yes' }],
    [{ lossy: 'SOME' }],
  ])('the setting %j is refused', async (update) => {
    expect(await code(registry.setConfig('a', update))).toBe('invalid_level');
  });

  it.each([[{}], [{ unknown: 1 }]])('the settings %j change nothing', async (update) => {
    expect(await registry.setConfig('nothing', update)).toEqual({});
    expect(await code(registry.deleteConfig('nothing'))).toBe('subject_not_found');
  });

  it.each([
    [{ defaultMetadata: [] }, 'malformed_request'],
    [{ overrideMetadata: { properties: { a: 1 } } }, 'malformed_request'],
    [{ overrideRuleSet: { domainRules: [{ name: 'r' }] } }, 'invalid_rule_set'],
  ])('the settings document %j is refused', async (update, refusal) => {
    expect(await code(registry.setConfig('a', update))).toBe(refusal);
  });

  it('metadata and rules are completed from the settings', async () => {
    await registry.setConfig('a', {
      defaultMetadata: { properties: { team: 'core', tier: '1' } },
      overrideMetadata: { properties: { tier: '0' }, sensitive: ['tier'] },
      defaultRuleSet: { domainRules: [{ name: 'one', kind: 'CONDITION', type: 'CEL' }] },
    });
    const { version } = await put('a', { text: avro('x'), metadata: { properties: { team: 'mine' } } });
    expect(version.content).toMatchObject({
      metadata: { properties: { team: 'mine', tier: '0' }, sensitive: ['tier'] },
      ruleSet: { domainRules: [{ name: 'one' }] },
    });
    expect(await put('a', { text: avro('x'), metadata: { properties: { team: 'mine' } } })).toMatchObject({
      created: false,
    });
    expect(registry.lookup('a', { text: avro('x') }, {})).toMatchObject({ version: 1 });
  });

  it('an alias is resolved to its subject', async () => {
    await put('real', avro('x'));
    await registry.setConfig('nick', { alias: 'real' });
    expect(registry.version('nick', 'latest')).toMatchObject({ subject: 'real' });
    expect(await put('nick', avro('x', 'y'))).toMatchObject({ version: { subject: 'real', version: 2 } });
    expect(registry.config('nick', false)).toEqual({ alias: 'real' });
  });

  it.each([
    ['READWRITE', undefined, 'done'],
    ['READONLY', undefined, 'not_permitted'],
    ['READONLY_OVERRIDE', undefined, 'not_permitted'],
    ['READONLY', 'READWRITE', 'done'],
    ['READONLY_OVERRIDE', 'READWRITE', 'not_permitted'],
    ['READWRITE', 'READONLY', 'not_permitted'],
    ['FORWARD', undefined, 'not_permitted'],
  ])('a subject under global mode %s with own mode %s answers %s', async (global, own, answer) => {
    await put('a', avro('x'));
    await registry.setMode(undefined, global, false);
    if (own !== undefined) await registry.setMode('a', own, false);
    expect(await code(put('a', avro('x', 'y')))).toBe(answer);
    expect(await code(registry.deleteVersion('a', '1', false))).toBe(
      answer === 'done' || global === 'FORWARD' ? 'done' : answer,
    );
  });

  it('modes are set, shown and removed', async () => {
    expect(registry.mode(undefined, false)).toBe('READWRITE');
    expect(await code(() => registry.mode('a', false))).toBe('subject_mode_not_set');
    expect(await code(registry.setMode('a', 'SIDEWAYS', false))).toBe('invalid_mode');
    expect(await registry.setMode(':.c:', 'readonly', false)).toBe('READONLY');
    expect(registry.mode(':.c:x', true)).toBe('READONLY');
    await registry.setMode(':.c:x', 'READWRITE', false);
    expect(registry.mode(':.c:x', true)).toBe('READWRITE');
    expect(await registry.deleteMode(':.c:', true)).toBe('READONLY');
    expect(registry.mode(':.c:x', true)).toBe('READWRITE');
    expect(await code(registry.deleteMode(':.c:x', false))).toBe('subject_mode_not_set');
  });

  it('the mode IMPORT accepts ids and versions, and overwrites nothing', async () => {
    await put('busy', avro('x'));
    expect(await code(registry.setMode(undefined, 'IMPORT', false))).toBe('not_permitted');
    expect(await registry.setMode('i', 'IMPORT', false)).toBe('IMPORT');
    expect(await put('i', { text: avro('q'), id: 40, version: 7 })).toMatchObject({
      version: { id: 40, version: 7 },
    });
    expect(await put('i', { text: avro('q'), id: 40 })).toMatchObject({ created: false });
    expect(await code(put('i', { text: avro('q'), id: 41 }))).toBe('id_mismatch');
    expect(await code(put('i', { text: avro('r'), id: 40 }))).toBe('not_permitted');
    expect(await code(put('i', { text: avro('r'), id: 41, version: 7 }))).toBe('not_permitted');
    expect(await put('i', { text: typed('int'), id: 3, version: 2 })).toMatchObject({ version: { id: 3 } });
    expect(await code(put('i', avro('without')))).toBe('not_permitted');
    expect(numbers('i')).toEqual([2, 7]);
    expect(await registry.setMode('i', 'READWRITE', false)).toBe('READWRITE');
    expect(await put('i', avro('q', 's'))).toMatchObject({ version: { id: 41, version: 8 } });
    expect(await registry.setMode('i', 'IMPORT', true)).toBe('IMPORT');
    expect(everything(await replayed())).toEqual(everything(registry));
  });

  it('deleted versions of a subject are removed before an import', async () => {
    await put('a', avro('x'));
    await registry.deleteSubject('a', false);
    await registry.setMode('a', 'IMPORT', false);
    expect(registry.subjects({ prefix: '', deleted: 'also' })).toEqual([]);
    expect(await put('a', { text: avro('n'), id: 9, version: 1 })).toMatchObject({ version: { version: 1 } });
    expect(everything(await replayed())).toEqual(everything(registry));
  });
});

describe('writes', () => {
  it('a write that was not stored stays invisible and fails all requests of its batch', async () => {
    log.failure = registryError('store_failed', 'disk full');
    const both = [put('a', avro('x')), put('a', avro('x'))];
    expect(await Promise.all(both.map(code))).toEqual(['store_failed', 'store_failed']);
    expect(registry.subjects({ prefix: '', deleted: 'also' })).toEqual([]);
    log.failure = undefined;
    expect(await put('a', avro('y'))).toMatchObject({ version: { id: 1, version: 1 } });
  });

  it('the requests of a batch do not affect each other', async () => {
    const answers = await Promise.all([
      code(put('a', avro('x'))),
      code(put('a', typed('int'))),
      code(put('a', avro('x', 'y'))),
      code(put('a', '{')),
      code(registry.deleteVersion('a', '1', false)),
    ]);
    expect(answers).toEqual(['done', 'incompatible', 'done', 'invalid_schema', 'done']);
    expect(log.appends).toEqual([3]);
    expect(numbers('a')).toEqual([2]);
  });

  it('a record that the log does not accept fails its own request and no other of its batch', async () => {
    const limited = Object.assign(new TestLog(), { recordBytesMax: 2000 });
    const text = JSON.stringify('x'.repeat(3000));
    limited.records.push(
      encodeRecord({
        kind: 'schema',
        subject: 'old',
        version: 1,
        value: { id: 1, format: 'JSON', text, references: [], deleted: false },
      }),
    );
    registry = await Registry.open(limited, silentLogger, { clock: realClock });
    // The record escapes each quotation mark of the text, which has two characters for it already.
    const wide = JSON.stringify({ type: 'enum', name: 'E', symbols: ['A'], doc: '"'.repeat(600) });
    const small = (names: string): Array<Promise<string>> =>
      [...names].map((name) => code(registry.register(name, { text: avro(name) }, {})));
    const answers = await Promise.all([
      ...small('abcde'),
      code(registry.register('wide', { text: wide }, {})),
      code(registry.setConfig('wide', { defaultMetadata: { properties: { p: 'x'.repeat(2000) } } })),
      code(registry.deleteVersion('old', '1', false)),
      ...small('fghij'),
    ]);
    const done = Array.from({ length: 5 }, () => 'done');
    expect(answers).toEqual([...done, 'schema_too_large', 'schema_too_large', 'store_failed', ...done]);
    expect(limited.appends).toEqual([10]);
    expect(registry.subjects({ prefix: '', deleted: 'no' })).toEqual([...'abcdefghij', 'old']);
  });

  it('the registry reads the log again before it writes after an unknown outcome', async () => {
    log.failure = registryError('store_unknown', 'timed out');
    const kept = encodeRecord({
      kind: 'schema',
      subject: 'a',
      version: 1,
      value: { id: 1, format: 'AVRO', text: '"int"', references: [], deleted: false },
    });
    log.catchUp = async () => {
      log.caughtUp++;
      if (log.caughtUp < 2) throw registryError('store_timeout', 'not yet');
      log.failure = undefined;
      log.sink?.apply([kept]);
    };
    const first = code(put('a', '"int"'));
    const second = vi
      .waitFor(() => expect(log.caughtUp).toBe(1), { timeout: 60_000 })
      .then(() => put('a', '"long"'));
    expect(await first).toBe('store_unknown');
    expect(await second).toMatchObject({ version: { id: 2, version: 2 } });
    expect(log.caughtUp).toBe(2);
  });

  const theirs = (version: number): LogRecord =>
    encodeRecord({
      kind: 'schema',
      subject: 'a',
      version,
      value: { id: 77, format: 'AVRO', text: '"bytes"', references: [], deleted: false },
    });

  it('records of other processes that follow a write are not lost, and replace its values', async () => {
    const shared = new SharedLog();
    registry = await Registry.open(shared, silentLogger, { clock: realClock });
    await registry.setConfig('a', { compatibility: 'NONE' });
    const level = { kind: 'config', subject: 'a', value: { compatibilityLevel: 'FULL' } } as const;
    shared.theirs = [theirs(9), encodeRecord(level)];
    const { version } = await registry.register('a', { text: '"int"' }, {});
    shared.theirs = [encodeRecord(level)];
    await registry.setConfig('a', { compatibility: 'NONE' });
    expect(version).toMatchObject({ id: 1, version: 1 });
    expect(registry.versions('a', 'no').map((one) => one.version)).toEqual([1, 9]);
    expect(registry.config('a', false)).toMatchObject({ compatibilityLevel: 'FULL' });
    shared.theirs = [];
    await registry.setConfig('a', { compatibility: 'NONE' });
    const next = await registry.register('a', { text: '"long"' }, {});
    expect(next).toMatchObject({ version: { id: 78, version: 10 } });
  });

  it('the registry decides again if other processes wrote during its decision', async () => {
    let now = 0;
    // Every read of the clock advances it by a time slice, so that the batch yields after each
    // request.
    const clock = { ...realClock, wallNowMs: () => 1, monotonicMs: () => (now += 100) };
    registry = await Registry.open(log, silentLogger, { clock });
    await registry.setConfig('a', { compatibility: 'NONE' });
    setImmediate(() => log.sink?.apply([theirs(1)]));
    const both = await Promise.all([
      registry.register('a', { text: '"int"' }, {}),
      registry.register('a', { text: '"long"' }, {}),
    ]);
    expect(both.map(({ version }) => version.version)).toEqual([2, 3]);
    expect(registry.versions('a', 'no').map(({ id }) => id)).toEqual([77, 78, 79]);
  });

  it('a request that changes nothing is decided again after the unread writes of other processes', async () => {
    const shared = new SharedLog();
    registry = await Registry.open(shared, silentLogger, { clock: realClock });
    const level = async (value: string): Promise<void> => {
      await registry.setConfig('a', { compatibility: value });
    };
    await level('FULL');
    await registry.register('a', { text: '"int"' }, {});
    const config = { kind: 'config', subject: 'a', value: { compatibilityLevel: 'NONE' } } as const;
    shared.unread = [encodeRecord(config)];
    await level('FULL');
    expect(registry.config('a', false)).toEqual({ compatibilityLevel: 'FULL' });
    expect(String(shared.records.at(-1)?.value)).toContain('FULL');

    shared.unread = [encodeRecord({ kind: 'schema', subject: 'a', version: 1, value: null })];
    expect(await registry.register('a', { text: '"int"' }, {})).toMatchObject({
      created: true,
      version: { id: 2, version: 1 },
    });
    expect(await code(registry.deleteVersion('a', '9', false))).toBe('version_not_found');
    shared.unread = [theirs(9)];
    expect(await code(registry.deleteVersion('a', '9', false))).toBe('done');
  });

  it('a request to an alias that another process moved runs again for the new subject', async () => {
    const shared = new SharedLog();
    registry = await Registry.open(shared, silentLogger, { clock: realClock });
    for (const [subject, text] of [
      ['old', '"int"'],
      ['old', '"long"'],
      ['new', '"int"'],
    ] as const)
      await registry.register(subject, { text }, {});
    const alias = (to: string): LogRecord =>
      encodeRecord({ kind: 'config', subject: 'nick', value: { alias: to } });
    await registry.setConfig('nick', { alias: 'old' });
    const ask = async <T>(run: () => Promise<T>): Promise<T> => untilDone(() => registry.step(run));
    shared.unread = [alias('new')];
    const found = await ask(() => registry.register('nick', { text: '"int"' }, {}));
    expect(found).toMatchObject({ created: false, version: { subject: 'new' } });
    // The new subject has no second version.
    shared.unread = [alias('old')];
    expect(await ask(() => registry.deleteVersion('nick', '2', false))).toBe(2);
    expect(registry.versions('old', 'only').map(({ version }) => version)).toEqual([2]);
  });

  it('a request that changes nothing is refused while a shared log does not answer', async () => {
    const shared = new SharedLog();
    registry = await Registry.open(shared, silentLogger, { clock: realClock });
    await registry.setConfig('a', { compatibility: 'FULL' });
    await registry.register('a', { text: '"int"' }, {});
    const { length } = shared.records;
    shared.failure = registryError('store_timeout', 'the broker is silent');
    const answers = [
      registry.setConfig('a', { compatibility: 'FULL' }),
      registry.register('a', { text: '"int"' }, {}),
      registry.deleteVersion('a', '9', false),
    ];
    expect(await Promise.all(answers.map(code))).toEqual(['not_leader', 'not_leader', 'not_leader']);
    expect(shared.records).toHaveLength(length);
    // The state is served, and the requests succeed when the log answers.
    expect(registry.config('a', false)).toEqual({ compatibilityLevel: 'FULL' });
    shared.failure = undefined;
    expect(await code(registry.register('a', { text: '"int"' }, {}))).toBe('done');
  });

  it('the end of the log is read only for requests that change nothing, and only of a shared log', async () => {
    const shared = new SharedLog();
    const asked: number[] = [];
    for (const one of [log, shared]) {
      registry = await Registry.open(one, silentLogger, { clock: realClock });
      await registry.register('a', { text: '"int"' }, {});
      expect(one.caughtUp).toBe(0);
      await registry.register('a', { text: '"int"' }, {});
      // Both requests share a batch, and its append confirms the second.
      await Promise.all([
        registry.setConfig('a', { compatibility: 'FULL' }),
        registry.setConfig('a', { compatibility: 'FULL' }),
      ]);
      asked.push(one.caughtUp);
    }
    expect(asked).toEqual([0, 1]);
  });

  it('a follower and a closed registry refuse writes', async () => {
    log.role = () => ({ leader: false, url: 'http://leader' }) as never;
    expect(await code(put('a', '"int"'))).toBe('not_leader');
    await registry.close();
    expect(await code(put('a', '"int"'))).toBe('store_failed');
  });

  it('the registry works in memory alone', async () => {
    const memory = await Registry.open(new MemoryLog(), silentLogger, { clock: realClock });
    await memory.register('a', { text: '"int"' }, {});
    expect(memory.counts()).toEqual({
      contexts: 1,
      subjects: 1,
      versions: 1,
      schemas: 1,
      deletedVersions: 0,
    });
    await memory.fresh();
    await memory.close();
  });
});
