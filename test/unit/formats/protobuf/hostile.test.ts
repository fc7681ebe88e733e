/** Hostile texts and descriptors: each is refused with one clear error, in steps that grow linearly
 *  with the text. */
import { describe, expect, it } from 'vitest';
import type { ResolvedReference } from '../../../../src/formats/content.ts';
import { ProtoWriter } from '../../../../src/formats/protobuf/descriptor/bytes.ts';
import { parseSchema, schemaText } from '../../../../src/formats/schema.ts';
import { stepsOf } from '../../../steps.ts';

const CHARS = 500_000;
/** Three times the steps of the worst of these texts, a thousand public imports. The longest texts
 *  take 9 million steps. */
const STEPS_MAX = 100_000_000;

function outcome(text: string, references: readonly ResolvedReference[] = [], normalize = true): string {
  let said = 'accepted';
  try {
    const schema = parseSchema('PROTOBUF', text, { references, normalize });
    schemaText(schema, 'serialized');
    schemaText(schema, 'ignore_extensions');
  } catch (thrown) {
    const { code, message } = thrown as { code?: string; message: string };
    said = `${code}: ${message}`;
    expect(message.length).toBeLessThan(2_000);
  }
  return said;
}

/** Outcome of a text of any length, with a bound on its steps. */
function counted(text: string, references: readonly ResolvedReference[] = []): string {
  let said = '';
  const steps = stepsOf(() => {
    said = outcome(text, references);
  });
  expect(steps).toBeLessThan(STEPS_MAX);
  return said;
}
const repeated = (part: (index: number) => string, most = CHARS): string => {
  let text = '';
  for (let index = 0; text.length < most; index++) text += part(index);
  return text;
};
const inMessage = (body: string): string => `syntax = "proto3"; message M { ${body} }`;

describe('hostile texts', () => {
  it.each<readonly [string, string, RegExp]>([
    [
      'nested messages',
      `${'message M { '.repeat(40_000)}`,
      /nested deeper than 64 blocks \(the limit schema-depth\) at 1:\d+/,
    ],
    ['nested aggregates', `option (o) = ${'{ a '.repeat(100_000)}`, /nested deeper/],
    ['nested lists', `option (o) = { a: ${'['.repeat(100_000)}`, /nested deeper/],
    ['nested groups', `message M { ${'optional group G = 1 { '.repeat(20_000)}`, /nested deeper/],
    ['open braces', '{'.repeat(CHARS), /invalid syntax: "\{" stands/],
    ['one long name', `message ${'a'.repeat(CHARS)} {}`, /a name is longer/],
    ['one long path', `message M { optional ${'a.'.repeat(CHARS / 2)}a x = 1; }`, /a name is longer/],
    [
      'one long package',
      `package ${'a.'.repeat(CHARS / 2)}a; message M { optional M m = 1; }`,
      /a name is longer/,
    ],
    ['one long number', inMessage(`int32 a = ${'9'.repeat(CHARS)};`), /a number is longer/],
    [
      'one long hexadecimal default',
      `message M { optional double a = 1 [default = 0x${'f'.repeat(CHARS)}]; }`,
      /a number is longer/,
    ],
    ['one long string', `option java_package = "${'x'.repeat(CHARS)}"; message M {}`, /^accepted$/],
    ['escapes', `option java_package = "${'\\n'.repeat(CHARS / 2)}"; message M {}`, /^accepted$/],
    ['strings side by side', `option java_package = ${'"" '.repeat(CHARS / 4)}; message M {}`, /^accepted$/],
    ['an open comment', `/*${'*'.repeat(CHARS)}`, /a comment has no end/],
    ['comments', `${'/**/'.repeat(CHARS / 4)} message M {}`, /^accepted$/],
    ['semicolons', ';'.repeat(CHARS), /declares no message/],
    ['many messages', repeated((i) => `message M${i}{}`), /declares more than 20000 things|accepted/],
    [
      'many fields',
      inMessage(repeated((i) => `int32 f${i}=${i + 1};`, 200_000)),
      /keeps for itself|^accepted$/,
    ],
    [
      'many fields of one JSON name',
      `message M { ${repeated((i) => `optional int32 a${'_'.repeat(i % 50)}b${i} = ${i + 20_000};`, 300_000)} }`,
      /accepted|things/,
    ],
    ['many enum values', `enum E { ${repeated((i) => `V${i}=${i};`, 200_000)} }`, /things|accepted|zero/],
    [
      'many aliases',
      `enum E { option allow_alias = true; ${repeated((i) => `V${i}=0;`, 200_000)} }`,
      /accepted|things/,
    ],
    [
      'many reserved ranges',
      inMessage(`reserved ${repeated((i) => `${i * 2 + 1},`, 100_000)}536870911;`),
      /accepted|things/,
    ],
    ['many reserved names', inMessage(repeated((i) => `reserved "n${i}";`, 300_000)), /accepted|things/],
    ['a huge range', inMessage('reserved 1 to max;'), /^accepted$/],
    [
      'huge enum ranges',
      'syntax = "proto3"; enum E { Z = 0; reserved -2147483648 to -1, 1 to max; }',
      /^accepted$/,
    ],
    [
      'many options',
      `syntax = "proto3"; message M { option deprecated = true; ${'option deprecated = true;'.repeat(5_000)} }`,
      /set twice/,
    ],
    [
      'a key many times',
      `import "google/protobuf/descriptor.proto"; message V { repeated int32 a = 1; } extend google.protobuf.FileOptions { optional V v = 50000; } option (v) = { ${'a: 1 '.repeat(9_000)} };`,
      /accepted|things/,
    ],
    [
      'many groups after messages',
      `message M { message A {} ${repeated((i) => `optional group G${i} = ${i + 20_000} {}`, 200_000)} }`,
      /accepted|things/,
    ],
    [
      'many extends',
      `message M { extensions 1 to max; } ${repeated((i) => `extend M { optional int32 e${i} = ${i + 20_000}; }`, 200_000)}`,
      /accepted|things/,
    ],
    ['many imports', repeated((i) => `import "${i}.proto";`), /is in no reference|things/],
    [
      'many maps',
      inMessage(repeated((i) => `map<string,M> m${i} = ${i + 20_000};`, 200_000)),
      /accepted|things/,
    ],
    ['a byte that no text has', 'message M { \u0000 }', /unexpected/],
    ['half a character', 'message M { optional string \ud800 = 1; }', /unexpected/],
    ['nothing', '', /declares no message/],
    ['blanks', ' \n\t'.repeat(1000), /declares no message/],
  ])('a hostile text is refused in bounded steps: %s', (_what, text, said) => {
    expect(counted(text)).toMatch(said);
  });

  it('a text beyond the limit is refused before it is parsed', () => {
    expect(counted(' '.repeat(600_000))).toMatch(/^schema_too_large/);
  });

  it.each(['__proto__', 'constructor', 'hasOwnProperty', 'toString'])(
    'the name %s is accepted or refused like any other',
    (name) => {
      const text = `syntax = "proto3"; package p.${name}; message ${name} { ${name} ${name} = 1; } enum E${name} { ${name}Z = 0; }`;
      expect(outcome(text)).toMatch(/^(accepted|invalid_schema: )/);
    },
  );

  it('any slice or single change of a valid text is accepted or refused with a clear error', () => {
    const good = `syntax = "proto3"; package p; option java_package = "x"; message M { reserved 5 to 9; map<string, N> m = 1 [deprecated = true]; oneof o { int32 a = 2; } message N { optional bytes b = 1; } enum E { Z = 0; } } service S { rpc R (M) returns (stream M) { option deprecated = true; } }`;
    for (let at = 0; at < good.length; at++) {
      outcome(good.slice(0, at));
      outcome(good.slice(at));
      for (const char of ['"', '{', '}', ';', '0', '\\', '.', '<'])
        outcome(good.slice(0, at) + char + good.slice(at + 1));
    }
  });
});

describe('hostile references', () => {
  const file = (
    name: string,
    text: string,
    references: readonly ResolvedReference[] = [],
  ): ResolvedReference => ({
    name,
    subject: name,
    version: 1,
    format: 'PROTOBUF',
    text,
    references,
  });

  it('references that form a lattice are read once each', () => {
    let level: ResolvedReference[] = [0, 1, 2].map((i) => file(`0-${i}.proto`, `message L0x${i} {}`));
    for (let depth = 1; depth < 30; depth++) {
      const below = level;
      level = [0, 1, 2].map((i) =>
        file(
          `${depth}-${i}.proto`,
          `${below.map(({ name }) => `import public "${name}";`).join('')} message L${depth}x${i} {}`,
          below,
        ),
      );
    }
    expect(
      counted(
        `${level.map(({ name }) => `import "${name}";`).join('')} message M { optional L0x0 a = 1; }`,
        level,
      ),
    ).toBe('accepted');
  });

  it('references to a thousand public files are resolved in a bounded number of steps', () => {
    const list = Array.from({ length: 999 }, (_, i) => file(`${i}.proto`, `package p${i}; message T {}`));
    const all = file('all.proto', list.map(({ name }) => `import public "${name}";`).join(''), list);
    expect(counted('import "all.proto"; message M { optional p998.T t = 1; }', [all])).toBe('accepted');
  });

  it('large references are refused by their total length', () => {
    const body = repeated(() => ' ', 500_000);
    const list = Array.from({ length: 60 }, (_, i) => file(`${i}.proto`, `${body}message M${i} {}`));
    expect(counted(`${list.map(({ name }) => `import "${name}";`).join('')} message M {}`, list)).toMatch(
      /more than \d+ characters together/,
    );
  });

  it('a chain of references that is too deep is refused', () => {
    let below: ResolvedReference[] = [];
    for (let i = 0; i < 40; i++)
      below = [
        file(`${i}.proto`, i === 0 ? 'message A {}' : `import "${i - 1}.proto"; message B${i} {}`, below),
      ];
    expect(counted('import "39.proto"; message M {}', below)).toMatch(
      /nested deeper than 32 files|is in no reference/,
    );
  });
});

describe('hostile descriptors', () => {
  const base64 = (bytes: Buffer): string => bytes.toString('base64');

  it.each<readonly [string, string, RegExp]>([
    ['base64 of no descriptor', base64(Buffer.from('not a descriptor at all.')), /cannot be decoded/],
    ['base64 of zeros', base64(Buffer.alloc(300)), /cannot be decoded/],
    [
      'a length beyond the end',
      base64(Buffer.from([0x22, 0xff, 0xff, 0xff, 0xff, 0x0f])),
      /cannot be decoded/,
    ],
    [
      'an invalid name',
      base64(new ProtoWriter().bytes(4, new ProtoWriter().bytes(1, 'M {} message N').finish()).finish()),
      /as the name of a message/,
    ],
    [
      'an invalid type',
      base64(
        new ProtoWriter()
          .bytes(
            4,
            new ProtoWriter()
              .bytes(1, 'M')
              .bytes(2, new ProtoWriter().bytes(1, 'f').integer(3, 1).bytes(6, 'x y').finish())
              .finish(),
          )
          .finish(),
      ),
      /as the name of the type/,
    ],
    [
      'a scalar without a type',
      base64(
        new ProtoWriter()
          .bytes(
            4,
            new ProtoWriter()
              .bytes(1, 'M')
              .bytes(2, new ProtoWriter().bytes(1, 'f').integer(3, 1).finish())
              .finish(),
          )
          .finish(),
      ),
      /has no type for the field f/,
    ],
    [
      'a default that breaks out',
      base64(
        new ProtoWriter()
          .bytes(
            4,
            new ProtoWriter()
              .bytes(1, 'M')
              .bytes(
                2,
                new ProtoWriter()
                  .bytes(1, 'f')
                  .integer(3, 1)
                  .integer(5, 12)
                  .bytes(7, 'x"]; int32 y = 2 [default="')
                  .finish(),
              )
              .finish(),
          )
          .finish(),
      ),
      /default for f that cannot be read/,
    ],
    ['nothing declared', base64(new ProtoWriter().bytes(1, 'x.proto').finish()), /declares no message/],
    ['an unknown syntax', base64(new ProtoWriter().bytes(12, 'proto9').finish()), /unknown syntax/],
    [
      'many messages',
      base64(Buffer.alloc(380_000, Buffer.from([0x22, 0x03, 0x0a, 0x01, 0x4d]))),
      /more than 20000 things \(the limit schema-nodes\)/,
    ],
  ])('a hostile descriptor is refused: %s', (_what, text, said) => {
    const answer = counted(text);
    expect(answer).toMatch(/^invalid_schema: /);
    expect(answer).toMatch(said);
  });

  it('an endlessly nested descriptor is refused at the depth limit', () => {
    let bytes = new ProtoWriter().bytes(1, 'M').finish();
    for (let depth = 0; depth < 5_000; depth++)
      bytes = new ProtoWriter().bytes(1, 'M').bytes(3, bytes).finish();
    expect(counted(base64(new ProtoWriter().bytes(4, bytes).finish()))).toMatch(
      /nested deeper than 64 messages \(the limit schema-depth\)/,
    );
  });

  it('a descriptor with any byte changed is refused or read without a crash', () => {
    const good = Buffer.from(
      schemaText(
        parseSchema(
          'PROTOBUF',
          'syntax = "proto2"; package p; message M { optional group G = 1 { optional int32 a = 1 [default = 5]; } oneof o { int32 b = 2; } map<string, M> m = 3; extensions 100 to 200; reserved 50; } enum E { A = 0; } extend M { repeated E e = 100 [packed = true]; } service S { rpc R (M) returns (M); }',
        ),
        'serialized',
      ),
      'base64',
    );
    for (let at = 0; at < good.length; at++) {
      for (const value of [0, 1, 0x7f, 0x80, 0xff, (good[at] as number) ^ 1, (good[at] as number) ^ 8]) {
        const bytes = Buffer.from(good);
        bytes[at] = value;
        expect(outcome(base64(bytes))).toMatch(/^(accepted|invalid_schema: )/);
      }
    }
  });
});
