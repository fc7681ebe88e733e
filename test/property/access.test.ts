/** Compares the access rules with an independent oracle, and the buckets with the arithmetic of a
 *  rate. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Buckets } from '../../src/access/bucket.ts';
import { Glob } from '../../src/access/glob.ts';
import { Rules } from '../../src/access/rules.ts';
import { runs } from '../tier.ts';

const ALPHABET = ['a', 'b', '-', '.', '本', '🚚'] as const;
const nameArbitrary = fc
  .array(fc.constantFrom(...ALPHABET), { minLength: 1, maxLength: 6 })
  .map((all) => all.join(''));
const patternArbitrary = fc
  .array(fc.constantFrom(...ALPHABET, '*', '?', '\\*', '\\?', '\\\\'), { minLength: 1, maxLength: 6 })
  .map((all) => all.join(''));

/** Matches a pattern by recursion over its pieces. */
function oracleMatches(pattern: string, text: string): boolean {
  const match = (p: readonly string[], t: readonly string[]): boolean => {
    const [first, ...rest] = p;
    if (first === undefined) return t.length === 0;
    if (first === '*') return match(rest, t) || (t.length > 0 && match(p, t.slice(1)));
    if (t.length === 0) return false;
    return (first === '?' || first.replace(/^\\/, '') === t[0]) && match(rest, t.slice(1));
  };
  return match(pattern.match(/\\.|./gsu) ?? [], [...text]);
}

describe('patterns', () => {
  it('a pattern matches the same texts as the oracle', () => {
    fc.assert(
      fc.property(
        patternArbitrary,
        fc.oneof(nameArbitrary, fc.constantFrom('*', '?', '\\', '')),
        (pattern, text) => {
          expect(Glob.parse(pattern)?.matches(text)).toBe(oracleMatches(pattern, text));
        },
      ),
      { numRuns: runs(2000) },
    );
  });
});

const OPERATIONS = ['read', 'write', 'delete', 'admin'] as const;
const WHO = ['basic:a', 'basic:b', 'basic:*', 'jwt:a', 'anonymous', 'authenticated'] as const;
const CALLERS = ['basic:a', 'basic:b', 'jwt:a', 'jwt:c', 'anonymous'] as const;
const CONTEXTS = ['', ':*:', ':.x:', ':.:', ':.y*:'] as const;

const ruleArbitrary = fc.record({
  who: fc.constantFrom(...WHO),
  operations: fc.subarray([...OPERATIONS], { minLength: 1 }),
  context: fc.constantFrom(...CONTEXTS),
  pattern: fc.oneof(patternArbitrary, fc.constant('*')),
});
type Rule = typeof ruleArbitrary extends fc.Arbitrary<infer R> ? R : never;

function oracleAllows(
  rules: readonly Rule[],
  caller: string,
  operation: string,
  context: string,
  name: string,
): boolean {
  for (const rule of rules) {
    const isWho =
      rule.who === 'anonymous' ||
      (caller !== 'anonymous' &&
        (rule.who === 'authenticated' ||
          rule.who === caller ||
          (rule.who === 'basic:*' && caller.startsWith('basic:'))));
    const inContext =
      rule.context === ':*:' ||
      (rule.context === ':.y*:' && context.startsWith('.y')) ||
      (rule.context === ':.x:' && context === '.x') ||
      ((rule.context === '' || rule.context === ':.:') && context === '.');
    if (
      isWho &&
      inContext &&
      rule.operations.some((one) => one === operation) &&
      oracleMatches(rule.pattern, name)
    )
      return true;
  }
  return false;
}

const lineOf = (rule: Rule): string =>
  `${rule.who}  ${rule.operations.join()} \t"${rule.context}${rule.pattern}"`;
/** A pattern that begins like a context denotes a context. */
const isUnambiguous = (rule: Rule): boolean => !(rule.context === '' && /^:(\*|\.)/u.test(rule.pattern));

describe('access rules', () => {
  it('access rules allow what the oracle allows, in any order', () => {
    fc.assert(
      fc.property(
        fc.array(ruleArbitrary.filter(isUnambiguous), { maxLength: 8 }),
        fc.constantFrom(...CALLERS),
        fc.constantFrom(...OPERATIONS),
        fc.constantFrom('.', '.x', '.y', '.y2', '.z'),
        nameArbitrary,
        (rules, caller, operation, context, name) => {
          const subject = context === '.' ? name : `:${context}:${name}`;
          const expected = oracleAllows(rules, caller, operation, context, name);
          for (const order of [rules, [...rules].reverse()]) {
            const parsed = Rules.parse(order.map(lineOf).join('\n'), 'rules');
            expect(parsed.principal(caller).may({ operation, subject })).toBe(expected);
            expect(parsed.principal(caller).mayRead(subject)).toBe(
              oracleAllows(rules, caller, 'read', context, name),
            );
          }
        },
      ),
      { numRuns: runs(1500) },
    );
  });

  it('a malformed rules file is refused with a line number and never crashes the parser', () => {
    const word = fc.constantFrom(
      'basic:a',
      'read',
      'all',
      '*',
      '"',
      '""',
      '#',
      '\\',
      ':.',
      ':*:',
      '\t',
      '\n',
      ' ',
      '\r\n',
      'é',
    );
    fc.assert(
      fc.property(fc.array(word, { maxLength: 20 }), (words) => {
        try {
          Rules.parse(words.join(''), 'rules');
        } catch (thrown) {
          expect(thrown).toMatchObject({ code: 'bad_file' });
          expect((thrown as Error).message).toMatch(/^rules:\d+: /);
        }
      }),
      { numRuns: runs(1000) },
    );
  });
});

describe('token bucket', () => {
  it('a token bucket never admits more than a burst and the rate', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 50 }),
        fc.integer({ min: 1, max: 20 }),
        fc.array(fc.integer({ min: 0, max: 300 }), { minLength: 1, maxLength: 200 }),
        (perSecond, burst, gaps) => {
          let nowMs = 0;
          const clock = { wallNowMs: () => nowMs, monotonicMs: () => nowMs };
          const buckets = new Buckets({ perSecond, burst, bucketsMax: 4, clock });
          let taken = 0;
          for (const gap of gaps) {
            nowMs += gap;
            const waitS = buckets.take('k');
            if (waitS === 0) taken++;
            else {
              expect(waitS).toBeLessThanOrEqual(1 / perSecond + 1e-9);
              expect(waitS).toBeGreaterThan(0);
            }
            expect(taken).toBeLessThanOrEqual(burst + (nowMs / 1000) * perSecond + 1e-6);
          }
        },
      ),
      { numRuns: runs(300) },
    );
  });
});
