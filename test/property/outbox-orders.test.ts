/** Compares the pure parts of the orders service with oracles written from the specification: body,
 *  key, hash and ids. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { canonicalUuid, UuidV7 } from '../../src/outbox/ids.ts';
import { readIdempotencyKey } from '../../src/outbox/orders/http/headers.ts';
import { type CreateRequest, readCreateBody, requestHash } from '../../src/outbox/orders/request.ts';
import { runs } from '../tier.ts';

const INT64_MAX = 2n ** 63n - 1n;
const INT64_MIN = -(2n ** 63n);

/** Returns the request, or the code of its refusal. Any other error fails the test. */
function read(text: string): CreateRequest | string {
  try {
    return readCreateBody(new TextEncoder().encode(text));
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    return error.code;
  }
}

const blank = fc.stringMatching(/^[ \t\r\n]{0,3}$/);
const int64 = fc.oneof(
  fc.bigInt({ min: INT64_MIN, max: INT64_MAX }),
  fc.integer({ min: -3, max: 3 }).map(BigInt),
  fc.constantFrom(INT64_MAX, INT64_MIN, 2n ** 53n + 1n, 0n, 1n),
);
const integerText = fc
  .tuple(int64, fc.boolean())
  .map(([value, quoted]) => (quoted ? `"${value}"` : `${value}`));
const oddText = fc.oneof(
  fc.constantFrom('null', 'true', '{}', '[]', '1.0', '1e2', '"1.5"', '""', '" 1"', '"01"', '01', '-', '"+1"'),
  fc.bigInt({ min: INT64_MAX + 1n, max: 2n ** 80n }).map(String),
  fc.bigInt({ min: -(2n ** 80n), max: INT64_MIN - 1n }).map((value) => `"${value}"`),
  fc.json({ maxDepth: 3 }),
);
const escapeName = (name: string, at: number): string => {
  const i = at % name.length;
  const code = name.charCodeAt(i).toString(16).padStart(4, '0');
  return `${name.slice(0, i)}\\u${code}${name.slice(i + 1)}`;
};

interface Member {
  readonly name: string;
  readonly nameText: string;
  readonly value: string;
}

const member: fc.Arbitrary<Member> = fc
  .tuple(
    fc.oneof({ weight: 12, arbitrary: fc.constantFrom('account_id', 'amount_cents') }, fc.string()),
    fc.option(fc.nat({ max: 50 }), { freq: 4 }),
    fc.oneof({ weight: 6, arbitrary: integerText }, oddText),
  )
  .map(([name, escapeAt, value]) => ({
    name,
    nameText:
      escapeAt !== null && /^[a-z_]+$/.test(name) ? `"${escapeName(name, escapeAt)}"` : JSON.stringify(name),
    value,
  }));

const validMembers = fc.tuple(integerText, integerText, fc.boolean()).map(([account, amount, swap]) => {
  const members = [
    { name: 'account_id', nameText: '"account_id"', value: account },
    { name: 'amount_cents', nameText: '"amount_cents"', value: amount },
  ];
  return swap ? members.reverse() : members;
});
const anyMembers = fc.oneof(validMembers, fc.array(member, { maxLength: 4 }));

/** Expected result of a body with these members. JSON.parse checks the grammar of each value. */
function oracle(members: readonly Member[]): CreateRequest | 'refused' {
  const names = members.map((one) => one.name).sort();
  if (names.join() !== 'account_id,amount_cents') return 'refused';
  const values = new Map<string, bigint>();
  for (const { name, value } of members) {
    let parsed: unknown;
    try {
      parsed = JSON.parse(value);
    } catch {
      return 'refused';
    }
    const digits = typeof parsed === 'string' ? parsed : value.trim();
    if (typeof parsed !== 'string' && typeof parsed !== 'number') return 'refused';
    if (!/^-?[0-9]+$/.test(digits) || /^-?0[0-9]/.test(digits)) return 'refused';
    const integer = BigInt(digits);
    if (integer > INT64_MAX || integer < INT64_MIN) return 'refused';
    values.set(name, integer);
  }
  const amountCents = values.get('amount_cents') as bigint;
  if (amountCents <= 0n) return 'refused';
  return { accountId: values.get('account_id') as bigint, amountCents };
}

describe('body parser', () => {
  it('the body parser reads exactly what the rules allow and refuses the rest', () => {
    let accepted = 0;
    let refused = 0;
    fc.assert(
      fc.property(anyMembers, fc.array(blank, { minLength: 4, maxLength: 4 }), (members, blanks) => {
        const [a, b, c, d] = blanks as [string, string, string, string];
        const inner = members.map((one) => `${b}${one.nameText}${c}:${d}${one.value}${a}`).join(',');
        const text = `${a}{${inner}${b}}${c}`;
        const expected = oracle(members);
        const got = read(text);
        if (expected === 'refused') {
          refused++;
          expect(['bad_body', 'value_out_of_range']).toContain(got);
        } else {
          accepted++;
          expect(got).toEqual(expected);
        }
      }),
      { numRuns: runs(3000) },
    );
    expect(Math.min(accepted, refused)).toBeGreaterThan(runs(300));
  });

  it('the body parser never accepts a text that JSON.parse refuses or reads differently, however it was damaged', () => {
    let accepted = 0;
    const damage = fc.tuple(
      fc.nat(),
      fc.nat({ max: 3 }),
      fc.oneof(
        fc.constant(''),
        fc.constantFrom(...'{}[]":,\\0123456789-+.eE \n\tu_'),
        fc.string({ maxLength: 3 }),
      ),
    );
    fc.assert(
      fc.property(validMembers, fc.array(damage, { maxLength: 3 }), (members, damages) => {
        let text = `{${members.map((one) => `${one.nameText}: ${one.value}`).join(', ')}}`;
        for (const [at, cut, put] of damages) {
          const i = at % (text.length + 1);
          text = text.slice(0, i) + put + text.slice(i + cut);
        }
        const got = read(text);
        if (typeof got === 'string') return;
        accepted++;
        const parsed = JSON.parse(text) as Record<string, unknown>;
        expect(Object.keys(parsed).sort()).toEqual(['account_id', 'amount_cents']);
        expect(Number(parsed['account_id'])).toBe(Number(got.accountId) + 0);
        expect(Number(parsed['amount_cents'])).toBe(Number(got.amountCents));
      }),
      { numRuns: runs(3000) },
    );
    expect(accepted).toBeGreaterThan(runs(400));
  });

  it('the body parser returns a request or a refusal for any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (body) => {
        try {
          readCreateBody(body);
        } catch (thrown) {
          expect(findMillraceError(thrown)?.code).toBe('bad_body');
        }
      }),
    );
  });
});

describe('request hash', () => {
  const request = fc.record({
    accountId: int64,
    amountCents: int64.filter((amount) => amount > 0n),
  });
  it('two requests have the same hash exactly when they are equal', () => {
    fc.assert(
      fc.property(request, request, (a, b) => {
        const same = a.accountId === b.accountId && a.amountCents === b.amountCents;
        expect(Buffer.from(requestHash(a)).equals(requestHash(b))).toBe(same);
      }),
    );
  });
  it('the request hash ignores blanks, member order and the form of a number', () => {
    fc.assert(
      fc.property(request, blank, ({ accountId, amountCents }, space) => {
        const forms = [
          `{"account_id":${accountId},"amount_cents":${amountCents}}`,
          `{"amount_cents"${space}:"${amountCents}",${space}"account_id":"${accountId}"}`,
          `${space}{"account\\u005fid":${accountId}${space},"amount_cents":"${amountCents}"}`,
        ];
        const hashes = forms.map((form) =>
          Buffer.from(requestHash(read(form) as CreateRequest)).toString('hex'),
        );
        expect(new Set(hashes).size).toBe(1);
      }),
    );
  });
});

describe('idempotency keys', () => {
  it('an idempotency key is the same in every case, quoted or not', () => {
    fc.assert(
      fc.property(fc.uuid(), fc.boolean(), fc.bigInt({ min: 0n, max: 2n ** 36n }), (uuid, quoted, cases) => {
        const mixed = Array.from(uuid, (char, i) => ((cases >> BigInt(i)) & 1n ? char.toUpperCase() : char));
        expect(readIdempotencyKey([quoted ? `"${mixed.join('')}"` : mixed.join('')])).toBe(uuid);
      }),
    );
  });
  it('a key is read exactly when it is 1 to 255 visible characters, bare or quoted', () => {
    const near = fc
      .array(fc.constantFrom('"', '\\', 'a', ',', ' ', '!', '~', '\x7f', '\x1f'), { maxLength: 8 })
      .map((chars) => chars.join(''));
    const long = fc.integer({ min: 250, max: 260 }).map((length) => 'k'.repeat(length));
    fc.assert(
      fc.property(fc.oneof(near, long, fc.string()), fc.boolean(), (text, quoted) => {
        const value = quoted ? `"${text.replace(/["\\]/g, '\\$&')}"` : text;
        const visible =
          text.length > 0 && text.length <= 255 && [...text].every((one) => one > ' ' && one <= '~');
        const valid = visible && (quoted || !text.startsWith('"'));
        let key: string | undefined;
        try {
          key = readIdempotencyKey([value]);
        } catch (thrown) {
          expect(findMillraceError(thrown)?.code).toBe('bad_idempotency_key');
        }
        // A bare text in quotes is itself a quoted string.
        if (quoted || !text.startsWith('"')) expect(key).toBe(valid ? text : undefined);
      }),
    );
  });

  it('a text with any change that leaves no UUID is no UUID', () => {
    const odd = fc.oneof(
      fc.constantFrom('g', ' ', '-', '"', ',', '\u00e9'),
      fc.string({ unit: 'grapheme', maxLength: 2 }),
    );
    fc.assert(
      fc.property(fc.uuid(), fc.nat({ max: 36 }), fc.nat({ max: 1 }), odd, (uuid, at, cut, put) => {
        const text = uuid.slice(0, at) + put + uuid.slice(at + cut);
        const isUuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);
        expect(canonicalUuid(text)).toBe(isUuid ? text.toLowerCase() : undefined);
      }),
    );
  });
});

describe('UUIDv7', () => {
  const steps = fc.array(fc.integer({ min: -2000, max: 2000 }), { minLength: 1, maxLength: 400 });
  const START_MS = 1_763_000_000_000;

  it('UUIDv7 ids ascend under any clock jumps and have the right version and variant', () => {
    fc.assert(
      fc.property(steps, fc.nat({ max: 255 }), (moves, noise) => {
        let nowMs = START_MS;
        const clock = { wallNowMs: () => nowMs, monotonicMs: () => 0 };
        const ids = new UuidV7(clock, { fraction: () => 0, fill: (into) => void into.fill(noise) });
        let before = '';
        for (const move of moves) {
          nowMs += move;
          const id = ids.next();
          expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
          expect(id > before).toBe(true);
          before = id;
        }
      }),
      { numRuns: runs(50) },
    );
  });

  it('a UUIDv7 contains the millisecond in which it was created', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2 ** 48 - 1 }), (nowMs) => {
        const ids = new UuidV7(
          { wallNowMs: () => nowMs + 0.7, monotonicMs: () => 0 },
          {
            fraction: () => 0,
            fill: (into) => void into.fill(1),
          },
        );
        expect(Number.parseInt(ids.next().replaceAll('-', '').slice(0, 12), 16)).toBe(nowMs);
      }),
    );
  });

  it('UUIDv7 ids continue to ascend when one millisecond is full', () => {
    const ids = new UuidV7(
      { wallNowMs: () => START_MS, monotonicMs: () => 0 },
      { fraction: () => 0, fill: (into) => void into.fill(255) },
    );
    let before = '';
    for (let i = 0; i < 10_000; i++) {
      const id = ids.next();
      if (id <= before) throw new Error(`id ${id} does not ascend: it follows ${before}`);
      before = id;
    }
  });

  it('two UUIDv7 ids never share a random byte', () => {
    let filled = 0;
    let nowMs = START_MS;
    // The last bytes of each id come from an ascending 16-bit ramp, so they ascend unless random
    // bytes are reused.
    const fill = (into: Uint8Array): void => {
      for (let i = 0; i < into.length; i += 2, filled++) {
        into[i] = filled >> 8;
        into[i + 1] = filled;
      }
    };
    const ids = new UuidV7({ wallNowMs: () => nowMs, monotonicMs: () => 0 }, { fraction: () => 0, fill });
    let before = '';
    const made = 12_000;
    for (let i = 0; i < made; i++) {
      // The clock steps without a period, so that ids of a new and of the same millisecond fall on
      // every end of the pool.
      nowMs += (Math.imul(i, 0x9e3779b1) >>> 13) & 1;
      const tail = ids.next().slice(24);
      if (tail <= before) throw new Error(`tail ${tail} does not ascend: it follows ${before}`);
      before = tail;
    }
  });
});
