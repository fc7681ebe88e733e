/** Valid and invalid parts of a request for an order: the key, the media type, the body, the hash.
 */
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { findMillraceError, type MillraceError } from '../../../../src/core/errors.ts';
import { readIdempotencyKey, requireJson } from '../../../../src/outbox/orders/http/headers.ts';
import { BODY_BYTES_MAX, readCreateBody, requestHash } from '../../../../src/outbox/orders/request.ts';

const KEY = '3f2b8c1e-9d4a-4b6f-8e21-7a5c0d9e1f34';
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

function refusal(act: () => unknown): MillraceError {
  try {
    act();
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error !== undefined) return error;
    throw thrown;
  }
  throw new Error('the call did not fail');
}

describe('Idempotency-Key', () => {
  it.each([
    ['bare', KEY],
    ['as a structured-field string', `"${KEY}"`],
    ['in upper case', KEY.toUpperCase()],
    ['quoted in mixed case', `"${KEY.slice(0, 18).toUpperCase()}${KEY.slice(18)}"`],
  ])('an Idempotency-Key is read as one canonical key: %s', (_, value) => {
    expect(readIdempotencyKey([value])).toBe(KEY);
  });

  it.each([
    ['the nil UUID', '00000000-0000-0000-0000-000000000000'],
    ['the max UUID', 'ffffffff-ffff-ffff-ffff-ffffffffffff'],
    ['version 7', '019385a0-0000-7000-8000-000000000000'],
  ])('an Idempotency-Key may be %s', (_, value) => {
    expect(readIdempotencyKey([value])).toBe(value);
  });

  it.each([
    ['one character', '!', '!'],
    ['255 characters', '~'.repeat(255), '~'.repeat(255)],
    ['255 characters in quotes', `"${'x'.repeat(255)}"`, 'x'.repeat(255)],
    ['any visible characters', `{a:'b',"c"}\\`, `{a:'b',"c"}\\`],
    ['an escaped quote and backslash', '"a\\"b\\\\c"', 'a"b\\c'],
    ['255 escaped characters', `"${'\\"'.repeat(255)}"`, '"'.repeat(255)],
    [
      'a UUID without dashes, as it is',
      KEY.replaceAll('-', '').toUpperCase(),
      KEY.replaceAll('-', '').toUpperCase(),
    ],
    ['the text NULL', 'NULL', 'NULL'],
  ])('an Idempotency-Key is read as it is: %s', (_, value, key) => {
    expect(readIdempotencyKey([value])).toBe(key);
  });

  it('a key from gRPC metadata is read like a header, and an error names the metadata', () => {
    expect(readIdempotencyKey(['order-17'], 'metadata')).toBe('order-17');
    const error = refusal(() => readIdempotencyKey([], 'metadata'));
    expect(error.details).toEqual({ field: 'idempotency-key' });
    expect(error.toLine()).toContain('metadata');
  });

  it.each<[string, readonly string[]]>([
    ['missing', []],
    ['empty', ['']],
    ['an empty string', ['""']],
    ['two values in one line', [`${KEY}, ${KEY}`]],
    ['two lines, even of one value', [KEY, KEY]],
    ['two lines, one empty', [KEY, '']],
    ['a blank inside', ['order 17']],
    ['256 characters', ['x'.repeat(256)]],
    ['256 characters in quotes', [`"${'x'.repeat(256)}"`]],
    ['a tab', ['order\t17']],
    ['a control character', ['order\u007f']],
    ['one quote', ['"']],
    ['open quoted', [`"${KEY}`]],
    ['quoted with an open escape', ['"a\\"']],
    ['quoted with an unknown escape', ['"a\\n"']],
    ['two quoted strings', ['"a","b"']],
    ['quoted twice', [`""${KEY}""`]],
    ['quoted with a blank', [`" ${KEY}"`]],
    ['quoted with a parameter', [`"${KEY}";a=1`]],
    ['non-ASCII', [`${KEY.slice(0, 35)}\u00e9`]],
    ['a full-width digit', [`${KEY.slice(0, 35)}\uff14`]],
    ['a line break inside', [`${KEY.slice(0, 35)}\n`]],
    ['as long as a header can be', ['a'.repeat(16_000)]],
  ])('an invalid Idempotency-Key is refused: %s', (_, values) => {
    const error = refusal(() => readIdempotencyKey(values));
    expect(error.code).toBe('bad_idempotency_key');
    expect(error.row.http).toBe(400);
    expect(error.toLine()).toContain('Idempotency-Key');
    expect(error.toLine().length).toBeLessThan(200);
  });
});

describe('Content-Type', () => {
  it.each([
    'application/json',
    'Application/JSON',
    'application/json; charset=utf-8',
    'application/json;charset="UTF-8"',
  ])('the content type %s is accepted as JSON', (type) => {
    expect(() => requireJson([type])).not.toThrow();
  });

  it.each<[string, readonly string[], RegExp]>([
    ['none', [], /missing/],
    ['empty', [''], /missing/],
    ['text', ['text/plain'], /not declared as JSON/],
    ['a form', ['application/x-www-form-urlencoded'], /not declared as JSON/],
    ['another charset', ['application/json; charset=latin1'], /not declared as JSON/],
    ['a longer subtype', ['application/json5'], /not declared as JSON/],
    ['two lines', ['application/json', 'application/json'], /more than once/],
  ])('a content type is refused: %s', (_, values, why) => {
    const error = refusal(() => requireJson(values));
    expect(error.code).toBe('unsupported_media_type');
    expect(error.row.http).toBe(415);
    expect(error.message).toMatch(why);
  });
});

describe('order body', () => {
  const MAX = '9223372036854775807';
  const MIN = '-9223372036854775808';

  it.each<[string, string, bigint, bigint]>([
    ['integers', '{"account_id":7,"amount_cents":1999}', 7n, 1999n],
    ['decimal strings', '{"account_id":"7","amount_cents":"1999"}', 7n, 1999n],
    ['blanks and another order', '\r\n { "amount_cents" : 1999 ,\t"account_id" : "7" } \n', 7n, 1999n],
    ['escaped names', '{"account\\u005fid":7,"amount_cents":1999}', 7n, 1999n],
    ['escaped digits', '{"account_id":"\\u0037","amount_cents":1999}', 7n, 1999n],
    ['a number beyond 2^53', '{"account_id":9007199254740993,"amount_cents":1}', 9007199254740993n, 1n],
    ['the greatest int64', `{"account_id":${MAX},"amount_cents":"${MAX}"}`, 2n ** 63n - 1n, 2n ** 63n - 1n],
    ['the least int64', `{"account_id":"${MIN}","amount_cents":1}`, -(2n ** 63n), 1n],
    ['negative zero as zero', '{"account_id":-0,"amount_cents":1}', 0n, 1n],
  ])('an order body may contain %s', (_, text, accountId, amountCents) => {
    expect(readCreateBody(bytes(text))).toEqual({ accountId, amountCents });
  });

  it('an order body may be as long as the limit, and not a byte longer', () => {
    const order = '{"account_id":7,"amount_cents":1999}';
    const full = order + ' '.repeat(BODY_BYTES_MAX - order.length);
    expect(BODY_BYTES_MAX).toBe(64 * 1024);
    expect(readCreateBody(bytes(full))).toEqual({ accountId: 7n, amountCents: 1999n });
    const error = refusal(() => readCreateBody(bytes(`${full} `)));
    expect([error.code, error.row.http]).toEqual(['body_too_large', 413]);
  });

  const withAccount = (value: string): string => `{"account_id":${value},"amount_cents":1}`;
  const nested = 20_000;
  it.each<[string, string, RegExp]>([
    ['nothing', '', /not a JSON object/],
    ['blanks', ' \n', /not a JSON object/],
    ['null', 'null', /not a JSON object/],
    ['an array', '[{"account_id":1,"amount_cents":1}]', /not a JSON object/],
    ['a string', '"x"', /not a JSON object/],
    ['a byte order mark', '\ufeff{"account_id":1,"amount_cents":1}', /not a JSON object/],
    ['no account', '{"amount_cents":1}', /account_id is missing/],
    ['no amount', '{"account_id":1}', /amount_cents is missing/],
    ['no field', '{}', /is missing/],
    ['a null', withAccount('null'), /account_id is not an integer/],
    ['true', withAccount('true'), /account_id is not an integer/],
    ['an object', withAccount('{"a":1}'), /account_id is not an integer/],
    ['an array as value', withAccount('[1]'), /account_id is not an integer/],
    ['a fraction', withAccount('1.0'), /account_id is not an integer/],
    ['an exponent', withAccount('1e3'), /account_id is not an integer/],
    ['a fraction as a string', withAccount('"1.5"'), /account_id is not an integer/],
    ['an exponent as a string', withAccount('"1E3"'), /account_id is not an integer/],
    ['an empty string', withAccount('""'), /account_id is not an integer/],
    ['a blank in the string', withAccount('" 1"'), /account_id is not an integer/],
    ['a line break in the string', withAccount('"1\\n"'), /account_id is not an integer/],
    ['a plus sign', withAccount('"+1"'), /account_id is not an integer/],
    ['a leading zero as a string', withAccount('"01"'), /account_id is not an integer/],
    ['hexadecimal', withAccount('"0x10"'), /account_id is not an integer/],
    ['an underscore', withAccount('"1_000"'), /account_id is not an integer/],
    ['Arabic digits', withAccount('"\u0661"'), /account_id is not an integer/],
    ['a leading zero', withAccount('01'), /not valid JSON/],
    ['a bare plus', withAccount('+1'), /not valid JSON/],
    ['NaN', withAccount('NaN'), /not valid JSON/],
    ['a name twice', '{"account_id":1,"account_id":1,"amount_cents":1}', /account_id twice/],
    ['a name twice, escaped', '{"account_id":1,"\\u0061ccount_id":1,"amount_cents":1}', /account_id twice/],
    ['an unknown name', '{"account_id":1,"amount_cents":1,"note":"x"}', /unknown field "note"/],
    ['a name in another case', '{"Account_Id":1,"amount_cents":1}', /unknown field/],
    ['__proto__', '{"__proto__":1,"account_id":1,"amount_cents":1}', /unknown field "__proto__"/],
    ['constructor', '{"constructor":1,"account_id":1,"amount_cents":1}', /unknown field/],
    ['a trailing comma', '{"account_id":1,"amount_cents":1,}', /not valid JSON/],
    ['no comma', '{"account_id":1 "amount_cents":1}', /not valid JSON/],
    ['no colon', '{"account_id" 1,"amount_cents":1}', /not valid JSON/],
    ['single quotes', "{'account_id':1,'amount_cents':1}", /not valid JSON/],
    ['a comment', '{/*x*/"account_id":1,"amount_cents":1}', /not valid JSON/],
    ['no end', '{"account_id":1,"amount_cents":1', /not valid JSON/],
    ['an open string', '{"account_id":"1', /not valid JSON/],
    ['garbage after it', '{"account_id":1,"amount_cents":1}x', /continues after/],
    ['a second object', '{"account_id":1,"amount_cents":1}{}', /continues after/],
    ['a NUL after it', '{"account_id":1,"amount_cents":1}\u0000', /continues after/],
    ['a no-break space', '{"account_id":1,\u00a0"amount_cents":1}', /not valid JSON/],
    ['deep arrays', withAccount('['.repeat(nested) + ']'.repeat(nested)), /account_id is not an integer/],
    ['deep objects', `${'{"account_id":'.repeat(4000)}1`, /account_id is not an integer/],
    ['a very long name', `{"${'n'.repeat(60_000)}":1}`, /unknown field "n{1,40}"$/],
  ])('an order body is refused: %s', (_, text, why) => {
    const error = refusal(() => readCreateBody(bytes(text)));
    expect(error.code).toBe('bad_body');
    expect(error.row.http).toBe(400);
    expect(error.message).toMatch(why);
    expect(error.toLine().length).toBeLessThan(300);
  });

  it.each<[string, string, string]>([
    ['above int64', withAccount('9223372036854775808'), 'account_id'],
    ['above int64 as a string', withAccount('"9223372036854775808"'), 'account_id'],
    ['below int64', withAccount('-9223372036854775809'), 'account_id'],
    ['far above', withAccount('9'.repeat(60_000)), 'account_id'],
    ['far below', withAccount(`-${'9'.repeat(60_000)}`), 'account_id'],
    ['an amount of zero', '{"account_id":1,"amount_cents":0}', 'amount_cents'],
    ['an amount of negative zero', '{"account_id":1,"amount_cents":-0}', 'amount_cents'],
    ['a negative amount', '{"account_id":1,"amount_cents":"-1"}', 'amount_cents'],
  ])('an order body is out of range: %s', (_, text, field) => {
    const error = refusal(() => readCreateBody(bytes(text)));
    expect([error.code, error.row.http]).toEqual(['value_out_of_range', 422]);
    expect(error.details['field']).toBe(field);
    expect(error.toLine().length).toBeLessThan(200);
  });

  it.each<[string, readonly number[]]>([
    ['a stray continuation byte', [0x80]],
    ['an overlong form', [0xc0, 0xa2]],
    ['a surrogate', [0xed, 0xa0, 0x80]],
    ['a cut sequence', [0xe2, 0x82]],
    ['UTF-16', [0xff, 0xfe]],
  ])('an order body that is not UTF-8 is refused: %s', (_, broken) => {
    const head = bytes('{"account_id":"');
    const error = refusal(() => readCreateBody(Uint8Array.of(...head, ...broken)));
    expect(error.code).toBe('bad_body');
    expect(error.message).toContain('UTF-8');
  });
});

describe('request hash', () => {
  it('the request hash is SHA-256 over the operation and the canonical fields', () => {
    const expected = createHash('sha256')
      .update('orders.create.v1\naccount_id=7\namount_cents=1999\n')
      .digest('hex');
    expect(Buffer.from(requestHash({ accountId: 7n, amountCents: 1999n })).toString('hex')).toBe(expected);
  });
});
