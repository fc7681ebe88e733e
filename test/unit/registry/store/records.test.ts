import { describe, expect, it } from 'vitest';
import type { LogRecord } from '../../../../src/registry/store/log.ts';
import {
  checkScope,
  checkSubject,
  isWithin,
  parseSubject,
  prefixTest,
  qualifyWith,
  scopesOf,
} from '../../../../src/registry/store/state/names.ts';
import {
  decodeRecord,
  encodeRecord,
  type StoreRecord,
} from '../../../../src/registry/store/state/records.ts';

const text = (bytes: Uint8Array | null): string | null =>
  bytes === null ? null : Buffer.from(bytes).toString();
const record = (key: unknown, value: unknown): LogRecord => ({
  key: Buffer.from(typeof key === 'string' ? key : JSON.stringify(key)),
  value: value === null ? null : Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)),
});
const code = (work: () => unknown): string => {
  try {
    work();
    return 'done';
  } catch (thrown) {
    return (thrown as { code?: string }).code ?? String(thrown);
  }
};

const NO_REFERENCES = { references: [], deleted: false };

/** Keys and values as the JVM registry writes them. Source: the property orders of its key and
 *  value classes (see records.ts), and the vectors in the tests of the registry of
 *  redpanda-data/redpanda. */
const EXACT: ReadonlyArray<readonly [StoreRecord, string, string | null]> = [
  [
    {
      kind: 'schema',
      subject: 'subject_0',
      version: 1,
      value: { id: 1, format: 'AVRO', text: '"int"', ...NO_REFERENCES },
    },
    '{"keytype":"SCHEMA","subject":"subject_0","version":1,"magic":1}',
    '{"subject":"subject_0","version":1,"id":1,"schema":"\\"int\\"","deleted":false}',
  ],
  [
    {
      kind: 'schema',
      subject: 's',
      version: 2,
      value: {
        id: 7,
        format: 'PROTOBUF',
        text: 'syntax = "proto3";\n',
        references: [{ name: 'a.proto', subject: 'a', version: 3 }],
        metadata: { properties: { major: '2' } },
        ruleSet: { domainRules: [] },
        deleted: true,
      },
    },
    '{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}',
    '{"subject":"s","version":2,"id":7,"schemaType":"PROTOBUF","references":[{"name":"a.proto","subject":"a","version":3}],"metadata":{"properties":{"major":"2"}},"ruleSet":{"domainRules":[]},"schema":"syntax = \\"proto3\\";\\n","deleted":true}',
  ],
  [
    { kind: 'schema', subject: 's', version: 1, value: null },
    '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
    null,
  ],
  [
    { kind: 'config', subject: null, value: { compatibilityLevel: 'NONE' } },
    '{"keytype":"CONFIG","subject":null,"magic":0}',
    '{"compatibilityLevel":"NONE"}',
  ],
  [
    {
      kind: 'config',
      subject: 's',
      value: { compatibilityGroup: 'major', compatibilityLevel: 'FULL', normalize: true },
    },
    '{"keytype":"CONFIG","subject":"s","magic":0}',
    '{"subject":"s","normalize":true,"compatibilityLevel":"FULL","compatibilityGroup":"major"}',
  ],
  [
    { kind: 'mode', subject: 's', value: 'READONLY' },
    '{"keytype":"MODE","subject":"s","magic":0}',
    '{"subject":"s","mode":"READONLY"}',
  ],
  [{ kind: 'mode', subject: null, value: null }, '{"keytype":"MODE","subject":null,"magic":0}', null],
  [
    { kind: 'deleteSubject', subject: 'subject_0', value: 2 },
    '{"keytype":"DELETE_SUBJECT","subject":"subject_0","magic":0}',
    '{"subject":"subject_0","version":2}',
  ],
  [
    { kind: 'clearSubject', subject: 'i', value: true },
    '{"keytype":"CLEAR_SUBJECT","subject":"i","magic":0}',
    '{"subject":"i"}',
  ],
  [
    { kind: 'context', context: '.ctx', value: true },
    '{"keytype":"CONTEXT","tenant":"default","context":".ctx","magic":0}',
    '{"tenant":"default","context":".ctx"}',
  ],
  [{ kind: 'noop' }, '{"keytype":"NOOP","magic":0}', null],
  [
    { kind: 'policy', subject: 's', value: { verdictPolicy: 'STRICT' } },
    '{"keytype":"NOOP","magic":0,"millrace":"POLICY","subject":"s"}',
    '{"subject":"s","verdictPolicy":"STRICT"}',
  ],
  [
    { kind: 'maxId', context: '.', value: 9 },
    '{"keytype":"NOOP","magic":0,"millrace":"MAX_ID","context":"."}',
    '{"context":".","maxId":9}',
  ],
  [
    {
      kind: 'burned',
      subject: 's',
      seq: 1,
      value: { version: 4, format: 'PROTOBUF', text: 'x', references: [], last: true },
    },
    '{"keytype":"NOOP","magic":0,"millrace":"BURNED","subject":"s","seq":1}',
    '{"subject":"s","version":4,"format":"PROTOBUF","text":"x","references":[],"last":true}',
  ],
  [
    { kind: 'mode', subject: 'q"{}:\'/\\é☃𝄞 x', value: 'IMPORT' },
    '{"keytype":"MODE","subject":"q\\"{}:\'/\\\\é☃𝄞 x","magic":0}',
    '{"subject":"q\\"{}:\'/\\\\é☃𝄞 x","mode":"IMPORT"}',
  ],
];

describe('records', () => {
  it.each(EXACT)('a record has the bytes of the existing registries: %j', (given, key, value) => {
    const encoded = encodeRecord(given);
    expect(text(encoded.key)).toBe(key);
    expect(text(encoded.value)).toBe(value);
    expect(decodeRecord(encoded)).toEqual({ record: given, keyIsExact: true });
  });

  /** Source: KeyFormatCase in the tests of Aiven-Open/karapace: the order that its older releases
   *  wrote. */
  it.each([
    [
      { subject: 'test', version: 1, magic: 1, keytype: 'SCHEMA' },
      { subject: 'test', version: 1, id: 1, schema: '"int"', deleted: false },
      'schema',
    ],
    [{ subject: null, magic: 0, keytype: 'CONFIG' }, { compatibilityLevel: 'FULL' }, 'config'],
    [
      { subject: 'test', magic: 0, keytype: 'DELETE_SUBJECT' },
      { subject: 'test', version: 2 },
      'deleteSubject',
    ],
    [{ magic: 0, keytype: 'NOOP' }, null, 'noop'],
    [
      { keytype: 'SCHEMA', subject: 'old', version: 1, magic: 0 },
      { subject: 'old', version: 1, id: 0, schema: '"int"' },
      'schema',
    ],
  ])('a key in another order or of an older kind is read: %j', (key, value, kind) => {
    expect(decodeRecord(record(key, value))).toMatchObject({ record: { kind }, keyIsExact: false });
  });

  it('a record keeps unknown properties and tolerates missing ones', () => {
    const key = { keytype: 'SCHEMA', subject: 's', version: 1, magic: 1 };
    const value = {
      subject: 's',
      version: 1,
      id: 3,
      md5: 'abc=',
      schema: '"int"',
      deleted: false,
      later: { a: [1] },
    };
    const decoded = decodeRecord(record(key, value));
    if (!('record' in decoded) || decoded.record.kind !== 'schema')
      throw new Error('the record is not a schema');
    expect(JSON.parse(text(encodeRecord(decoded.record).value) as string)).toEqual(value);
    const bare = decodeRecord(record(key, { ...value, references: null, metadata: null, schemaType: null }));
    expect(bare).toMatchObject({ record: { value: { format: 'AVRO', references: [] } } });
  });

  it.each([
    ['not JSON at all', '{}'],
    ['"text"', '{}'],
    ['[1]', '{}'],
    ['{"keytype":"SCHEMA","subject":"s","version":0,"magic":1}', '{"id":1,"schema":"x"}'],
    ['{"keytype":"SCHEMA","subject":"s","version":1.5,"magic":1}', '{"id":1,"schema":"x"}'],
    ['{"keytype":"SCHEMA","subject":5,"version":1,"magic":1}', '{"id":1,"schema":"x"}'],
    ['{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', '{"id":-1,"schema":"x"}'],
    ['{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', '{"id":4294967296,"schema":"x"}'],
    ['{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', '{"id":1,"schema":"x","references":[1]}'],
    ['{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', '{"id":1'],
    ['{"keytype":"MODE","subject":"s","magic":0}', '{"mode":"SIDEWAYS"}'],
    ['{"keytype":"ASSOC","tenant":"default"}', '{}'],
    ['{"keytype":"CONTEXT","tenant":"other","context":".c","magic":0}', '{}'],
    ['{"keytype":"NOOP","magic":0,"millrace":"TOMORROW"}', '{}'],
    ['{"keytype":"NOOP","magic":0,"millrace":"BURNED","subject":"s","seq":1}', '{"version":1}'],
    ['{}', '{}'],
    ['', ''],
  ])('an unusable record is reported with a reason: %s', (key, value) => {
    expect(decodeRecord(record(key, value))).toEqual({ unread: expect.any(String) });
  });
});

describe('names', () => {
  it.each([
    ['s', '.', 's'],
    ['', '.', ''],
    [':.ctx:s', '.ctx', 's'],
    [':.ctx:', '.ctx', ''],
    [':.ctx', '.ctx', ''],
    [':.:s', '.', 's'],
    [':.a.b:x:y', '.a.b', 'x:y'],
    [':s', '.', ':s'],
    ['a:.b:c', '.', 'a:.b:c'],
  ])('the subject %s is split into context and name', (subject, context, name) => {
    expect(parseSubject(subject)).toEqual({ context, name });
  });

  it.each([
    ['s', 's'],
    [':.:s', 's'],
    [':.ctx:s', ':.ctx:s'],
    ['/"{}\':', '/"{}\':'],
    ['é☃𝄞', 'é☃𝄞'],
    ['x'.repeat(1024), 'x'.repeat(1024)],
    [' ', ' '],
  ])('the subject %j is accepted', (subject, spelling) => {
    expect(checkSubject(subject)).toBe(spelling);
  });

  it.each([
    '',
    'a\u0000b',
    '\u007f',
    '\u0085',
    '__GLOBAL',
    '__EMPTY',
    ':.ctx:',
    ':.ctx:__GLOBAL',
    ':.__GLOBAL:s',
    ':*:s',
    'x'.repeat(1025),
    '\ud800',
  ])('the subject %j is refused', (subject) => {
    expect(code(() => checkSubject(subject))).toBe('invalid_subject');
  });

  it('the refusal of a name states its limit', () => {
    expect(() => checkSubject('x'.repeat(1025))).toThrow(
      /x…' is not valid. It has more than 1024 characters/,
    );
    expect(() => checkSubject('__GLOBAL')).toThrow(/'__GLOBAL' is not valid\.$/);
  });

  it.each([
    [undefined, null],
    [':.:', null],
    [':.__GLOBAL:', null],
    [':.ctx:', ':.ctx:'],
    [':.ctx', ':.ctx:'],
    ['s', 's'],
  ])('the scope %j is resolved', (subject, scope) => {
    expect(checkScope(subject)).toBe(scope);
  });

  it('a setting is searched from the subject outward', () => {
    expect(scopesOf(':.ctx:s')).toEqual([':.ctx:s', ':.ctx:', null]);
    expect(scopesOf('s')).toEqual(['s', null]);
    expect(scopesOf(null)).toEqual([null]);
  });

  it('prefixes and scopes select the subjects they should', () => {
    const all = ['a', 'ab', ':.c:a', ':.c:b', ':.cd:a'];
    expect(all.filter(prefixTest(''))).toEqual(all);
    expect(all.filter(prefixTest(':*:'))).toEqual(all);
    expect(all.filter(prefixTest(':*:a'))).toEqual(['a', 'ab', ':.c:a', ':.cd:a']);
    expect(all.filter(prefixTest('a'))).toEqual(['a', 'ab']);
    expect(all.filter(prefixTest(':.c:'))).toEqual([':.c:a', ':.c:b']);
    expect(all.filter((subject) => isWithin(subject, ':.c:'))).toEqual([':.c:a', ':.c:b']);
    expect(qualifyWith(':.c:x', 'a')).toBe(':.c:a');
    expect(qualifyWith(':.c:x', ':.d:a')).toBe(':.d:a');
  });
});
