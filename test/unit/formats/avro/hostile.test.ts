/** Hostile texts: each is refused or read within a bounded number of steps, and causes only errors
 *  of Millrace. */
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../../../src/core/errors.ts';
import type { ResolvedReference } from '../../../../src/formats/content.ts';
import { guidOf } from '../../../../src/formats/guid.ts';
import { parseSchema, type Schema, schemaText } from '../../../../src/formats/schema.ts';
import { readerCodec } from '../../../../src/registry/proof/reader.ts';
import { stepsOf } from '../../../steps.ts';

/** Four times the steps of the longest of these texts, far below the steps of a quadratic walk over
 *  its items. */
const STEPS_MAX = 20_000_000;

interface Outcome {
  readonly schema: Schema | undefined;
  readonly why: string;
}

function attempt(text: string, options: Parameters<typeof parseSchema>[2] = {}): Outcome {
  let outcome: Outcome | undefined;
  const steps = stepsOf(() => {
    outcome = judged(text, options);
  });
  expect(steps).toBeLessThan(STEPS_MAX);
  return outcome as Outcome;
}

function judged(text: string, options: Parameters<typeof parseSchema>[2]): Outcome {
  try {
    const schema = parseSchema('AVRO', text, options);
    schemaText(schema, 'resolved');
    guidOf({ format: 'AVRO', text: schema.text, references: [] });
    return { schema, why: 'accepted' };
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    expect(['invalid_schema', 'schema_too_large']).toContain(error.code);
    expect(error.message.length).toBeLessThan(2_000);
    return { schema: undefined, why: `${error.code}: ${error.message}` };
  }
}

const fill = (head: string, tail: string, item: (i: number) => string, chars = 250_000): string => {
  const items: string[] = [];
  for (let length = head.length + tail.length, i = 0; length < chars; i++) {
    const text = item(i);
    items.push(text);
    length += text.length + 1;
  }
  return head + items.join(',') + tail;
};
const nest = (open: string, close: string, inner: string, depth: number): string =>
  open.repeat(depth) + inner + close.repeat(depth);

describe('deep schemas', () => {
  it.each<readonly [string, string]>([
    ['arrays of JSON', nest('[', ']', '"int"', 200_000)],
    ['objects of JSON', nest('{"type":', '}', '"int"', 60_000)],
    ['array types', nest('{"type":"array","items":', '}', '"int"', 20_000)],
    ['map types', nest('{"type":"map","values":', '}', '"int"', 20_000)],
    ['unions in arrays', nest('[{"type":"array","items":', '}]', '"int"', 15_000)],
    ['records', nest('{"type":"record","name":"R","fields":[{"name":"f","type":', '}]}', '"int"', 8_000)],
    ['properties', `{"type":"int","p":${nest('[', ']', '1', 200_000)}}`],
    ['brackets that never close', '['.repeat(500_000)],
    [
      'a default',
      `{"type":"record","name":"R","fields":[{"name":"a","type":["null","R"],"default":${nest('{"a":', '}', 'null', 80_000)}}]}`,
    ],
    ['comments', `${'/*'.repeat(200_000)}"int"`],
  ])('a schema nested in %s is refused, strictly and leniently', (_what, text) => {
    expect(attempt(text).schema).toBeUndefined();
    expect(attempt(text, { lenient: true }).schema).toBeUndefined();
  });

  it('the depth limit of stored schemas is higher than that of registered ones', () => {
    const text = nest('{"type":"array","items":', '}', '"int"', 300);
    expect(attempt(text).why).toMatch(/nested deeper than 64 types \(the limit schema-depth\)/);
    expect(attempt(text, { lenient: true }).schema?.text).toBe(text);
  });

  it('a schema just below the depth limits is read, printed and used to decode', () => {
    const property = `{"type":"int","p":${nest('[', ']', '1', 999)}}`;
    expect(attempt(property, { normalize: true }).schema?.text).toBe(property);
    let records = '"int"';
    for (let i = 0; i < 150; i++)
      records = `{"type":"record","name":"R${i}","fields":[{"name":"f","type":${records}}]}`;
    const { schema } = attempt(records, { lenient: true });
    const bytes = Buffer.from([14]);
    let value: unknown = schema && readerCodec(schema, schema, [])(bytes, 0, 1);
    for (let i = 0; i < 150; i++) value = (value as { readonly f: unknown }).f;
    expect(value).toBe(7);
  });

  it('a default of its own record is refused before it is expanded', () => {
    const text =
      '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":"R"},"default":[{}]}]}';
    expect(['accepted', 'invalid_schema']).toContain(attempt(text).why.split(':')[0]);
  });
});

describe('wide schemas', () => {
  it.each<readonly [string, string, RegExp]>([
    ['a union of fixed', fill('[', ']', (i) => `{"type":"fixed","name":"F${i}","size":1}`), /accepted/],
    ['a union of one type', fill('[', ']', () => '"int"'), /int twice/],
    [
      'fields',
      fill('{"type":"record","name":"R","fields":[', ']}', (i) => `{"name":"f${i}","type":"int"}`),
      /accepted/,
    ],
    [
      'fields with the same name',
      fill('{"type":"record","name":"R","fields":[', ']}', () => '{"name":"f","type":"int"}'),
      /stands twice/,
    ],
    ['symbols', fill('{"type":"enum","name":"E","symbols":[', ']}', (i) => `"S${i}"`), /accepted/],
    [
      'symbols and a default that is not a symbol',
      fill('{"type":"enum","name":"E","default":"x","symbols":[', ']}', (i) => `"S${i}"`),
      /none of its symbols/,
    ],
    [
      'aliases',
      fill('{"type":"record","name":"R","fields":[],"aliases":[', ']}', (i) => `"A${i}"`),
      /accepted/,
    ],
    [
      'equal aliases',
      fill('{"type":"record","name":"R","fields":[],"aliases":[', ']}', () => '"A"'),
      /accepted/,
    ],
    ['properties', fill('{"type":"int",', '}', (i) => `"p${i}":${i}`), /accepted/],
    ['a property twice', fill('{"type":"int",', '}', () => '"p":1'), /the key "p" stands twice/],
    [
      'uses of a name',
      fill('{"type":"record","name":"R","fields":[', ']}', (i) => `{"name":"f${i}","type":"R"}`),
      /accepted/,
    ],
    [
      'a default of many items',
      fill(
        '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":"int"},"default":[',
        ']}]}',
        (i) => String(i),
      ),
      /accepted/,
    ],
    ['a doc', `{"type":"record","name":"R","fields":[],"doc":"${'\\u0001'.repeat(80_000)}"}`, /accepted/],
    ['digits', `{"type":"int","p":${'1'.repeat(500_000)}}`, /a number has more than 1000 characters/],
    [
      'digits of a default',
      `{"type":"record","name":"R","fields":[{"name":"a","type":"long","default":${'9'.repeat(999)}}]}`,
      /is not a long/,
    ],
    [
      'an exponent',
      '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":1e999999999}]}',
      /is not a double/,
    ],
    ['a name', `{"type":"record","name":"${'a.'.repeat(200_000)}b","fields":[]}`, /accepted/],
    [
      'an invalid name',
      `{"type":"record","name":"${'a.'.repeat(200_000)}-","fields":[]}`,
      /is not an Avro name/,
    ],
    [
      'an invalid float text',
      `{"type":"record","name":"R","fields":[{"name":"a","type":"float","default":"${'1'.repeat(400_000)}x"}]}`,
      /is not a float/,
    ],
    ['white space', `${' \n'.repeat(250_000)}"int"`, /accepted/],
    ['escapes', `{"type":"int","p":"${'\\\\'.repeat(200_000)}"}`, /accepted/],
    ['a comment', `/*${'*'.repeat(400_000)}/ "int"`, /accepted/],
    ['comments', `${'// x\n'.repeat(80_000)}"int"`, /accepted/],
  ])('a wide schema is accepted or refused as stated: %s', (_what, text, why) => {
    expect(text.length).toBeLessThan(512 * 1024);
    // A parsed schema has its own limit, because the stored schema has that limit.
    expect(attempt(text).why).toMatch(new RegExp(`${why.source}|makes more than 20000 types`));
    attempt(text, { normalize: true, lenient: true });
  });

  it('a default of a record of many fields takes steps that grow only with the default', () => {
    const fields = Array.from(
      { length: 5_000 },
      (_, i) => `{"name":"f${i}","type":"int","default":0}`,
    ).join();
    const text = `{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":{"type":"record","name":"P","fields":[${fields}]}},"default":[${'{},'.repeat(80_000)}{}]}]}`;
    expect(attempt(text).why).toBe('accepted');
    attempt(text, { normalize: true });
  });

  it('a default of an enum of many symbols takes steps that grow only with the default', () => {
    const symbols = Array.from({ length: 20_000 }, (_, i) => `"S${i}"`).join();
    const text = `{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":{"type":"enum","name":"E","symbols":[${symbols}]}},"default":[${'"S19999",'.repeat(25_000)}"S0"]}]}`;
    expect(attempt(text).why).toBe('accepted');
  });

  it('a text beyond the length limit is refused before it is parsed', () => {
    expect(attempt(`"${'x'.repeat(600_000)}"`).why).toMatch(
      /^schema_too_large: the schema has 600002 characters; the most is 524288/,
    );
    expect(attempt(' '.repeat(17 << 20), { lenient: true }).why).toMatch(/^schema_too_large/);
  });
});

describe('odd characters', () => {
  const doc = (inner: string): string => `{"type":"record","name":"R","doc":"${inner}","fields":[]}`;

  it.each<readonly [string, string, RegExp]>([
    ['a raw NUL', doc('\0'), /U\+0000 is not escaped in a string/],
    ['a NUL between tokens', '{\0}', /U\+0000/],
    ['half a pair, escaped', doc('\\ud800'), /half of a surrogate pair/],
    ['half a pair, raw', doc('\udfff'), /half of a surrogate pair/],
    ['half a pair in a key', '{"type":"int","\\ud800":1}', /half of a surrogate pair/],
    ['halves the wrong way round', doc('\\udc00\\ud800'), /half of a surrogate pair/],
    ['a half pair inside a property', '{"type":"int","p":[{"q":"\\udbff"}]}', /half of a surrogate pair/],
    ['a cut escape', doc('\\u12'), /four hex digits/],
    ['an unknown escape', doc('\\x'), /is no escape/],
    ['a line break', doc('\n'), /U\+000A is not escaped in a string/],
    ['single quotes', "{'type':'int'}", /where a key is due/],
    ['a trailing comma', '["int",]', /begins no value/],
    ['a leading zero', '{"type":"int","p":01}', /stands where/],
    ['NaN', '{"type":"int","p":NaN}', /begins no value/],
    ['a plus', '{"type":"int","p":+1}', /begins no value/],
    ['nothing', '', /the end of the text begins no value/],
    ['white space alone', ' \n ', /the end of the text/],
    ['two documents', '"int""int"', /stands behind the end/],
    ['a null byte order mark in the middle', '["int",\ufeff"long"]', /begins no value/],
    ['an open comment', '/* "int"', /a comment is not closed/],
  ])('a schema text with %s is refused with its place', (_what, text, why) => {
    const outcome = attempt(text);
    expect(outcome.why).toMatch(why);
    expect(outcome.why).toMatch(/at line \d+, column \d+/);
  });

  it('a schema text keeps surrogate pairs, escaped controls and a leading byte order mark', () => {
    expect(attempt(doc('\\ud83d\\ude00\\u0000\\u007f')).schema?.text).toBe(doc('😀\\u0000\u007f'));
    expect(attempt('\ufeff"int"').schema?.text).toBe('"int"');
  });

  it('an error gives line and column as an editor counts them', () => {
    expect(attempt('{\n  "type": "record",\r\n  "name": "é😀",\n  "fields": []\n}').why).toMatch(
      /is not an Avro name, at line 3, column 11$/,
    );
  });
});

describe('names of JavaScript properties', () => {
  it.each(['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'valueOf'])(
    'the name %s is valid like any other',
    (name) => {
      const text = `{"type":"record","name":"${name}","fields":[{"name":"a","type":{"type":"enum","name":"n.${name}","symbols":["${name}"]}},{"name":"b","type":["null","${name}"],"default":null}],"${name}":{"${name}":1}}`;
      const { schema } = attempt(text);
      expect(schema?.text).toBe(
        `{"type":"record","name":"${name}","fields":[{"name":"a","type":{"type":"enum","name":"${name}","namespace":"n","symbols":["${name}"]}},{"name":"b","type":["null","${name}"],"default":null}],"${name}":{"${name}":1}}`,
      );
      expect(({} as Record<string, unknown>)['a']).toBeUndefined();
    },
  );

  it.each(['__proto__', 'constructor', 'toString'])('the name %s is not a predefined type', (name) => {
    expect(attempt(`"${name}"`).why).toMatch(/is not defined before it/);
    expect(attempt(`{"type":"${name}"}`).why).toMatch(/is not defined before it/);
  });

  it('a registered schema cannot have a field named __proto__', () => {
    const text = '{"type":"record","name":"R","fields":[{"name":"__proto__","type":"int"}]}';
    expect(attempt(text).why).toMatch(/JavaScript/);
    expect(attempt(text, { lenient: true }).schema?.text).toBe(text);
  });

  it('a default may have any key', () => {
    const text =
      '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"map","values":"int"},"default":{"__proto__":1,"10":2,"9":3}}]}';
    expect(attempt(text).schema?.text).toBe(text);
  });
});

describe('references', () => {
  const reference = (
    name: string,
    text: string,
    references: readonly ResolvedReference[] = [],
    subject = name,
  ): ResolvedReference => ({ name, subject, version: 1, format: 'AVRO', text, references });
  const fixed = (name: string): string => `{"type":"fixed","name":"${name}","size":1}`;

  it('a missing reference is named, with those that were given', () => {
    const { why } = attempt('{"type":"record","name":"n.R","fields":[{"name":"a","type":"X"}]}', {
      references: [reference('n.Y', fixed('n.Y')), reference('m.X', fixed('m.X'))],
    });
    expect(why).toMatch(/field n\.R\.a names the type "X", in full "n\.X", which is not defined before it/);
    expect(why).toMatch(/its references are n\.Y \(n\.Y, version 1\), m\.X \(m\.X, version 1\)/);
    expect(attempt('"n.X"').why).toMatch(/names the type "n\.X".*it has no references/);
  });

  it('an error inside a reference names the reference and the place in it', () => {
    const { why } = attempt('"a.X"', { references: [reference('a.X', '{"type":"record",\n"name":"a.X"}')] });
    expect(why).toMatch(/a\.X has no list of fields, at line 1, column 1 of the reference "a\.X"/);
  });

  it('a reference of another format is refused', () => {
    const other = { ...reference('x', 'syntax = "proto3";'), format: 'PROTOBUF' as const };
    expect(attempt('"int"', { references: [other] }).why).toMatch(/the reference "x" is PROTOBUF, not AVRO/);
  });

  it('a chain of references is bounded in depth', () => {
    let chain = reference('n.T0', fixed('n.T0'));
    for (let i = 1; i < 40; i++) chain = reference(`n.T${i}`, fixed(`n.T${i}`), [chain]);
    expect(attempt('"n.T39"', { references: [chain] }).why).toMatch(/nested deeper than 32/);
  });

  it('references are bounded in number and in length', () => {
    const many = Array.from({ length: 1_001 }, (_, i) => reference(`n.T${i}`, fixed(`n.T${i}`)));
    expect(attempt('"n.T0"', { references: many }).why).toMatch(/more than 1000 schemas/);
    expect(attempt('"n.T0"', { references: many.slice(0, 1_000) }).why).toBe('accepted');
    const long = Array.from({ length: 40 }, (_, i) =>
      reference(`n.T${i}`, fixed(`n.T${i}`) + ' '.repeat(500_000)),
    );
    expect(attempt('"n.T0"', { references: long }).why).toMatch(/^schema_too_large/);
  });

  it('shared references are read once each', () => {
    let layer = [reference('n.L0', fixed('n.L0'))];
    for (let depth = 1; depth < 30; depth++) {
      const below = layer;
      layer = Array.from({ length: 2 }, (_, i) =>
        reference(`n.L${depth}_${i}`, `{"type":"fixed","name":"n.L${depth}_${i}","size":1}`, below),
      );
    }
    expect(attempt('"n.L29_1"', { references: layer }).why).toBe('accepted');
  });

  it('references may define a type twice only if both definitions are equal', () => {
    const one = '{"type":"record","name":"n.P","fields":[{"name":"a","type":"int"}]}';
    const same = '{"name":"P","namespace":"n","type":"record","fields":[{"type":{"type":"int"},"name":"a"}]}';
    const other = one.replace('int', 'long');
    const use = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"p","type":"P"}]}';
    const both = (text: string) => ({
      references: [reference('n.P', one), reference('n.P', text, [], 'second')],
    });
    expect(attempt(use, both(same)).why).toBe('accepted');
    expect(attempt(use, both(other)).why).toMatch(/n\.P is defined otherwise in the reference "n\.P"/);
    expect(attempt(use.replace('"P"', same), { references: [reference('n.P', one)] }).schema?.text).toBe(use);
    expect(attempt(use.replace('"P"', other), { references: [reference('n.P', one)] }).why).toMatch(
      /defined otherwise/,
    );
  });

  it('references that define thousands of types twice take steps that grow with their length', () => {
    const types = (): string => fill('[', ']', (i) => `{"type":"fixed","name":"F${i}","size":1}`, 400_000);
    const wrap = `{"type":"record","name":"R","fields":[{"name":"a","type":${types()}}]}`;
    attempt(wrap, { references: [reference('F0', types())], lenient: true });
  });
});

describe('JSON Schema', () => {
  const json = (text: string, lenient = false): string => {
    try {
      return parseSchema('JSON', text, { lenient }).text;
    } catch (thrown) {
      return `${findMillraceError(thrown)?.code}: ${(thrown as Error).message}`;
    }
  };

  it('a JSON Schema is stored without white space, with its digits and order unchanged', () => {
    expect(json('{ "9": 1, "10": 12345678901234567890, "a": [ true, null ],\n "b": 1.50 }')).toBe(
      '{"9":1,"10":12345678901234567890,"a":[true,null],"b":1.50}',
    );
    expect(json('true')).toBe('true');
    const sorted = parseSchema('JSON', '{"b":{"d":1,"c":[{"z":0,"y":0}]},"a":2}', { normalize: true }).text;
    expect(sorted).toBe('{"a":2,"b":{"c":[{"y":0,"z":0}],"d":1}}');
  });

  const refused: ReadonlyArray<readonly [text: string, why: RegExp]> = [
    ['', /invalid_schema: .*line 1, column 1/],
    ['[]', /neither an object nor a boolean/],
    ['"x"', /neither an object nor a boolean/],
    ['{"a":1,"a":2}', /stands twice/],
    ['{"a":/* c */1}', /invalid_schema/],
    ['['.repeat(100_000), /nested deeper/],
    [`{"a":"${'x'.repeat(600_000)}"}`, /schema_too_large/],
  ];
  it.each(refused.map(([text, why]) => [text.slice(0, 20), text, why] as const))(
    'a JSON Schema that begins with %j is refused',
    (_head, text, why) => {
      expect(json(text)).toMatch(why);
    },
  );

  it('a stored JSON Schema with a repeated key is read with the last value', () => {
    expect(json('{"a":1,"b":2,"a":3}', true)).toBe('{"a":3,"b":2}');
  });
});
