/** The access gate: admission, the form of a refusal, the cost of a guess, and the access log. */
import * as crypto from 'node:crypto';
import { describe, expect, it, vi } from 'vitest';
import { BasicScheme } from '../../../src/access/basic.ts';
import type { JwtScheme } from '../../../src/access/jwt.ts';
import { hashPassword, parseHashed, parsePasswords, passwordMatches } from '../../../src/access/password.ts';
import { BadCredentials } from '../../../src/access/refusal.ts';
import { basicHeader, decide, gateOf, peerOf, requestOf } from './access-kit.ts';

vi.mock('node:crypto', async (original) => {
  const real = await original<typeof import('node:crypto')>();
  return { ...real, scrypt: vi.fn(real.scrypt), timingSafeEqual: vi.fn(real.timingSafeEqual) };
});

/** Least cost parameters that a file may have, so that the tests are fast. */
const CHEAP = { N: 2 ** 14, r: 1, p: 1 };
const SECRET = 'correct horse: battery';
const users = parsePasswords(
  [`# users`, `alice:${await hashPassword(SECRET, CHEAP)}`, '', `bob:${await hashPassword('b', CHEAP)}`].join(
    '\n',
  ),
  'users',
);
const RULES = 'basic:alice read,write orders-*\nanonymous read public-*\nmtls:CN=relay read orders-*';
const read = { operation: 'read', subject: 'orders-value' } as const;
const write = { operation: 'write', subject: 'orders-value' } as const;

function basicGate(over: Parameters<typeof gateOf>[1] = {}) {
  const made = gateOf(RULES, over);
  const basic = new BasicScheme({ users: () => users, clock: made.clock });
  return { ...gateOf(RULES, { clock: made.clock, basic, mtls: true, ...over }), clock: made.clock, basic };
}
const alice = basicHeader('alice', SECRET);
const scrypts = (): number => vi.mocked(crypto.scrypt).mock.calls.length;

describe('password hash', () => {
  it('a password hash matches only its password and never repeats', async () => {
    const [one, two] = await Promise.all([hashPassword('pw', CHEAP), hashPassword('pw', CHEAP)]);
    expect(one).toMatch(/^scrypt\$16384\$1\$1\$[A-Za-z0-9+/=]{24}\$[A-Za-z0-9+/=]{44}$/);
    expect(one).not.toBe(two);
    const hashed = parseHashed(one);
    expect(hashed).toBeDefined();
    expect(await passwordMatches('pw', hashed as NonNullable<typeof hashed>)).toBe(true);
    expect(await passwordMatches('pW', hashed as NonNullable<typeof hashed>)).toBe(false);
    expect(vi.mocked(crypto.timingSafeEqual)).toHaveBeenCalled();
  });

  // Source: RFC 7914, section 12, the third and second vectors of scrypt.
  it('a password hash is the scrypt of the standard', async () => {
    const salt = Buffer.from('SodiumChloride').toString('base64');
    const hash = Buffer.from(
      '7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887',
      'hex',
    ).toString('base64');
    const hashed = parseHashed(`scrypt$16384$8$1$${salt}$${hash}`);
    expect(await passwordMatches('pleaseletmein', hashed as NonNullable<typeof hashed>)).toBe(true);
  });

  const salt = Buffer.alloc(16).toString('base64');
  const hash = Buffer.alloc(32).toString('base64');
  it.each([
    ['plain text', 'secret'],
    ['another scheme', `bcrypt$16384$8$1$${salt}$${hash}`],
    ['no power of two', `scrypt$16385$8$1$${salt}$${hash}`],
    ['too cheap', `scrypt$1024$8$1$${salt}$${hash}`],
    ['too dear in memory', `scrypt$1048576$8$1$${salt}$${hash}`],
    ['too dear in time', `scrypt$16384$8$17$${salt}$${hash}`],
    ['no parallelism', `scrypt$16384$8$0$${salt}$${hash}`],
    ['a short hash', `scrypt$16384$8$1$${salt}$AAAA`],
    ['a short salt', `scrypt$16384$8$1$AAAA$${hash}`],
    ['no base64', `scrypt$16384$8$1$${salt}$${'*'.repeat(44)}`],
  ])('an invalid password hash is refused with its line and without its text: %s', (_name, text) => {
    const file = `# first\nbob:${text}`;
    expect(() => parsePasswords(file, 'users')).toThrow('users:2: the hash of bob');
    try {
      parsePasswords(file, 'users');
    } catch (thrown) {
      expect((thrown as Error).message).not.toContain(text);
    }
  });

  it('a line of the password file names one user, once', () => {
    const line = `scrypt$16384$8$1$${salt}$${hash}`;
    expect(() => parsePasswords(line, 'users')).toThrow('users:1: the line does not begin with user:');
    expect(() => parsePasswords(`a:${line}\na:${line}`, 'users')).toThrow('users:2: a has two lines');
  });
});

describe('basic credentials', () => {
  it('valid credentials are accepted and cost one hash check for a while', async () => {
    const { gate, clock, basic } = basicGate();
    const before = scrypts();
    expect(await decide(gate, { authorization: alice }, write)).toMatchObject({
      access: { principal: 'basic:alice' },
    });
    for (let i = 0; i < 100; i++)
      expect(gate.authorise(requestOf({ authorization: alice }), read)).not.toBeInstanceOf(Promise);
    expect(scrypts() - before).toBe(1);
    clock.advance(60_000);
    await decide(gate, { authorization: alice }, read);
    expect(scrypts() - before).toBe(2);
    basic.forget();
    await decide(gate, { authorization: alice }, read);
    expect(scrypts() - before).toBe(3);
  });

  it('credentials that arrive concurrently are checked once', async () => {
    const { gate } = basicGate();
    const before = scrypts();
    const answers = await Promise.all(
      Array.from({ length: 80 }, () => decide(gate, { authorization: alice }, read)),
    );
    expect(answers.filter((one) => 'access' in one)).toHaveLength(80);
    expect(scrypts() - before).toBe(1);
  });

  it('wrong credentials that arrive concurrently cost a guess each', async () => {
    const { gate } = basicGate();
    const wrong = { authorization: basicHeader('alice', 'wrong') };
    const answers = await Promise.all(Array.from({ length: 80 }, () => decide(gate, wrong, read)));
    expect(answers.filter((one) => 'status' in one && one.status === 401)).toHaveLength(80);
    expect(await decide(gate, { authorization: alice }, read)).toMatchObject({ status: 429 });
  });

  it('wrong credentials get 401 with a challenge at the same cost for known and unknown users', async () => {
    const { gate } = basicGate();
    for (const [user, password] of [
      ['alice', 'wrong'],
      ['unknown', SECRET],
      ['bob', ''],
    ] as const) {
      const before = scrypts();
      expect(await decide(gate, { authorization: basicHeader(user, password) }, read)).toEqual({
        code: 'unauthenticated',
        status: 401,
        headers: { 'www-authenticate': 'Basic realm="millrace", charset="UTF-8"' },
      });
      expect(scrypts() - before).toBe(1);
    }
  });

  it('wrong credentials are refused even if none are needed', async () => {
    const { gate } = basicGate();
    const open = { operation: 'read', subject: 'public-1' } as const;
    expect(await decide(gate, {}, open)).toMatchObject({ access: { principal: 'anonymous' } });
    expect(await decide(gate, { authorization: basicHeader('alice', 'x') }, open)).toMatchObject({
      status: 401,
    });
  });

  it.each([
    ['two headers', [alice, alice]],
    ['two headers of two schemes', [alice, 'Bearer a.b.c']],
    ['two in one line', `${alice}, Bearer a.b.c`],
    ['another scheme', 'Bearer a.b.c'],
    ['no scheme', Buffer.from('alice:x').toString('base64')],
    ['a scheme alone', 'Basic'],
    ['an empty header', ''],
    ['no base64', 'Basic !!!!'],
    ['no colon', `Basic ${Buffer.from('alice').toString('base64')}`],
    ['no user', `Basic ${Buffer.from(`:${SECRET}`).toString('base64')}`],
    ['no UTF-8', `Basic ${Buffer.from([0xff, 0x3a, 0x61]).toString('base64')}`],
    ['a control character in the user', `Basic ${Buffer.from('ali\nce:x').toString('base64')}`],
    ['a huge header', `Basic ${'QUFB'.repeat(4000)}`],
    ['a huge password', basicHeader('alice', 'x'.repeat(1025))],
  ])('credentials with %s get 401 without a hash check', async (_name, authorization) => {
    const { gate } = basicGate();
    const before = scrypts();
    expect(await decide(gate, { authorization }, read)).toMatchObject({ status: 401 });
    expect(scrypts() - before).toBe(0);
  });

  it('password guesses are limited per address or /64 network, and other addresses are not delayed', async () => {
    const { gate, clock } = basicGate({ failureRate: 1 });
    const before = scrypts();
    const guess = (i: number, address: string) =>
      decide(gate, { authorization: basicHeader('alice', `guess ${i}`), address }, read);
    const answers = await Promise.all(
      Array.from({ length: 80 }, (_, i) => guess(i, `2001:db8::${i.toString(16)}`)),
    );
    const limited = answers.filter((one) => 'status' in one && one.status === 429);
    expect(limited).toHaveLength(30);
    expect(limited[0]).toMatchObject({ code: 'rate_limited', headers: { 'retry-after': '1' } });
    expect(scrypts() - before).toBe(50);
    expect(await decide(gate, { authorization: alice, address: '2001:db8:1::1' }, read)).toHaveProperty(
      'access',
    );
    clock.advance(1000);
    expect(await guess(1000, '2001:db8::1')).toMatchObject({ status: 401 });
    expect(await guess(1001, '2001:db8::1')).toMatchObject({ status: 429 });
  });

  it('credentials refused without a hash check count as guesses too', async () => {
    const { gate } = basicGate();
    const answers = [];
    for (let i = 0; i < 60; i++) answers.push(await decide(gate, { authorization: 'Basic !!' }, read));
    expect(answers.filter((one) => 'status' in one && one.status === 429)).toHaveLength(10);
  });

  it('hash checks wait in a queue of bounded length', async () => {
    const { gate } = basicGate();
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, i) =>
        decide(gate, { authorization: basicHeader('alice', `x${i}`), address: `198.51.100.${i}` }, read),
      ),
    );
    const statuses = answers.map((one) => ('status' in one ? one.status : 200));
    expect(statuses.filter((status) => status === 503)).toHaveLength(100 - 66);
    expect(statuses.filter((status) => status === 401)).toHaveLength(66);
  });
});

describe('client certificate', () => {
  it('a client certificate names the principal if no Authorization is sent', async () => {
    const { gate } = basicGate();
    expect(await decide(gate, { peer: peerOf('CN=relay') }, read)).toMatchObject({
      access: { principal: 'mtls:CN=relay' },
    });
    expect(await decide(gate, { peer: peerOf('CN=relay') }, write)).toMatchObject({ status: 403 });
    expect(await decide(gate, { peer: peerOf('CN=relay'), authorization: 'Basic !!' }, read)).toMatchObject({
      status: 401,
    });
    expect(await decide(gate, { peer: peerOf('') }, read)).toMatchObject({ status: 401 });
  });

  it('a client certificate names no principal if the setting is off', async () => {
    const { gate } = basicGate({ mtls: false });
    expect(await decide(gate, { peer: peerOf('CN=relay') }, read)).toMatchObject({ status: 401 });
  });
});

describe('access decisions', () => {
  it('a rule refusal is 403 for a known principal and 401 for an unknown one', async () => {
    const { gate } = basicGate();
    const remove = { operation: 'delete', subject: 'orders-value' } as const;
    expect(await decide(gate, { authorization: alice }, remove)).toEqual({
      code: 'forbidden',
      status: 403,
      headers: {},
    });
    expect(await decide(gate, {}, remove)).toMatchObject({ status: 401 });
  });

  it('access rules also apply to rights that a request needs later', async () => {
    const { gate } = basicGate();
    const request = requestOf({ authorization: alice });
    const access = await gate.authorise(request, write);
    expect(() => gate.demand(request, access, read)).not.toThrow();
    expect(() => gate.demand(request, access, { operation: 'read', subject: 'secret' })).toThrow(
      'basic:alice is not allowed to read secret',
    );
  });

  it('a gate without rules admits every request and ignores credentials', async () => {
    const { gate } = gateOf(undefined, { clientRate: 1 });
    expect(await decide(gate, { authorization: ['a', 'b'] }, { operation: 'admin' })).toHaveProperty(
      'access',
    );
  });
});

describe('client rate', () => {
  it('the client rate is limited by principal if it is known, otherwise by address', async () => {
    const { gate, clock } = basicGate({ clientRate: 10 });
    const many = async (count: number, parts: Parameters<typeof requestOf>[0]) => {
      let let_in = 0;
      for (let i = 0; i < count; i++)
        if ('access' in (await decide(gate, parts ?? {}, { operation: 'read' }))) let_in++;
      return let_in;
    };
    expect(await many(50, { authorization: alice, address: '192.0.2.1' })).toBe(20);
    expect(await many(50, { authorization: alice, address: '192.0.2.2' })).toBe(0);
    expect(await many(50, { address: '192.0.2.2' })).toBe(20);
    expect(await many(50, { address: '192.0.2.3' })).toBe(20);
    clock.advance(1000);
    expect(await many(50, { authorization: alice })).toBe(10);
  });

  it('the client rate limit answers 429 with the time to retry', async () => {
    const { gate } = gateOf(undefined, { clientRate: 0.1 });
    await decide(gate, {}, read);
    expect(await decide(gate, {}, read)).toEqual({
      code: 'rate_limited',
      status: 429,
      headers: { 'retry-after': '10' },
    });
  });
});

describe('access log', () => {
  it('the access log has a line for each write and each refusal, with the principal and without any credential', async () => {
    const { gate, log } = basicGate();
    await decide(gate, { authorization: alice, path: '/subjects/orders-value/versions' }, write);
    await decide(gate, { authorization: alice }, read);
    await decide(gate, { authorization: alice }, { operation: 'delete', subject: 'orders-value' });
    await decide(gate, { authorization: basicHeader('alice', 'guess-one') }, read);
    await decide(gate, { authorization: basicHeader('passwordtypedhere', 'guess-two') }, read);
    await decide(gate, { authorization: ['Bearer token-a', 'Bearer token-b'] }, read);
    expect(log.lines.map(({ level, message }) => `${level} ${message}`)).toEqual([
      'info audit: allowed',
      'warn audit: refused (forbidden)',
      'warn audit: refused (unauthenticated)',
      'warn audit: refused (unauthenticated)',
      'warn audit: refused (unauthenticated)',
    ]);
    expect(log.lines[0]?.fields).toEqual({
      method: 'GET',
      path: '/subjects/orders-value/versions',
      operation: 'write',
      subject: 'orders-value',
      address: '192.0.2.1',
      principal: 'basic:alice',
    });
    expect(log.lines[2]?.fields).toMatchObject({ claimed: 'alice', why: 'wrong user or password' });
    const everything = JSON.stringify(log.lines);
    for (const secret of [SECRET, alice.slice(6), 'guess-one', 'guess-two', 'passwordtypedhere', 'token-a']) {
      expect(everything).not.toContain(secret);
    }
  });

  it('the access log has a bounded rate, and omitted lines are counted', async () => {
    const { gate, log, clock } = basicGate();
    for (let i = 0; i < 500; i++) await decide(gate, {}, read);
    expect(log.lines).toHaveLength(50);
    clock.advance(1000);
    await decide(gate, {}, read);
    expect(log.lines.at(-1)?.fields).toMatchObject({ leftOut: 450 });
  });

  it('access decisions are counted by scheme and outcome in a closed list of labels', async () => {
    const { gate, metrics } = basicGate();
    await decide(gate, { authorization: alice }, read);
    await decide(gate, {}, read);
    await decide(gate, { authorization: 'Weird x' }, read);
    const samples = metrics.snapshot().find(({ name }) => name === 'registry_auth_decisions_total')?.samples;
    expect(samples?.map(({ labels, value }) => [labels['scheme'], labels['outcome'], value])).toEqual([
      ['basic', 'accepted', 1],
      ['none', 'unauthenticated', 1],
      ['unknown', 'unauthenticated', 1],
    ]);
  });
});

describe('bearer tokens at the gate', () => {
  const jwtOf = (identify: JwtScheme['identify']) => ({ identify }) as JwtScheme;
  it('a bearer token names a principal of its own scheme, and the challenge offers the scheme', async () => {
    const { gate } = gateOf('jwt:svc read *\nbasic:root all *', { jwt: jwtOf(() => 'svc') });
    expect(await decide(gate, { authorization: 'bearer a.b.c' }, read)).toMatchObject({
      access: { principal: 'jwt:svc' },
    });
    expect(await decide(gate, {}, read)).toMatchObject({
      headers: { 'www-authenticate': 'Bearer realm="millrace"' },
    });
  });

  it('a failed key fetch does not count as a guess of the client', async () => {
    const away = Object.assign(new Error('away'), {});
    let failure: Error = away;
    const { gate } = gateOf('jwt:svc read *', {
      jwt: jwtOf(() => ({ holdsGuess: false, run: () => Promise.reject(failure) })),
    });
    for (let i = 0; i < 200; i++)
      await expect(gate.authorise(requestOf({ authorization: 'Bearer a.b.c' }), read)).rejects.toBe(away);
    failure = new BadCredentials('no');
    expect(await decide(gate, { authorization: 'Bearer a.b.c' }, read)).toMatchObject({ status: 401 });
  });

  it('tokens that wait for the keys do not use up the guesses of their address', async () => {
    let found: (name: string) => void = () => {};
    const keys = new Promise<string>((resolve) => {
      found = resolve;
    });
    const { gate } = gateOf('jwt:svc read *', {
      jwt: jwtOf(() => ({ holdsGuess: false, run: () => keys })),
    });
    const waiting = Array.from({ length: 80 }, () => decide(gate, { authorization: 'Bearer a.b.c' }, read));
    found('svc');
    for (const one of await Promise.all(waiting)) expect(one).toHaveProperty('access');
  });

  it('wrong tokens count as guesses once they are checked', async () => {
    const { gate } = gateOf('jwt:svc read *', {
      jwt: jwtOf(() => ({ holdsGuess: false, run: () => Promise.reject(new BadCredentials('no')) })),
    });
    const answers = [];
    for (let i = 0; i < 60; i++) answers.push(await decide(gate, { authorization: 'Bearer a.b.c' }, read));
    expect(answers.filter((one) => 'status' in one && one.status === 429)).toHaveLength(10);
  });
});
