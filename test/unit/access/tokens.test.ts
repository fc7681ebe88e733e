/** Bearer tokens, above all hostile ones, and the keys that verify them. */
import { createHmac, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { fileKeys, parseKeySet, RemoteKeys } from '../../../src/access/jwks.ts';
import { JwtScheme } from '../../../src/access/jwt.ts';
import { BadCredentials } from '../../../src/access/refusal.ts';
import { logLines, type TestClock, testClock } from './access-kit.ts';

const ISSUER = 'https://issuer.test';
const AUDIENCE = 'registry';

const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
const pair = () => generateKeyPairSync('rsa', { modulusLength: 2048 });
const rsa = pair();
const other = pair();
const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const small = generateKeyPairSync('rsa', { modulusLength: 1024 });
const jwk = (key: KeyObject, kid: string, over: object = {}): object => ({
  ...key.export({ format: 'jwk' }),
  kid,
  ...over,
});
const setOf = (...keys: readonly object[]): string => JSON.stringify({ keys });

/** Token with any header and payload, signed as `RS256` with `key`. */
function token(claims: object, header: object = {}, key: KeyObject = rsa.privateKey): string {
  const text = `${part({ alg: 'RS256', kid: 'one', ...header })}.${part(claims)}`;
  return `${text}.${sign('sha256', Buffer.from(text), key).toString('base64url')}`;
}

let clock: TestClock;
const nowS = (): number => Math.floor(clock.wallNowMs() / 1000);
const good = (over: object = {}): object => ({
  iss: ISSUER,
  aud: AUDIENCE,
  sub: 'svc',
  exp: nowS() + 300,
  ...over,
});

function scheme(keys = setOf(jwk(rsa.publicKey, 'one')), over: object = {}): JwtScheme {
  const set = parseKeySet(keys, 'keys');
  return new JwtScheme({
    keys: fileKeys(() => set),
    issuer: ISSUER,
    audience: AUDIENCE,
    algorithms: ['RS256', 'ES256'],
    leewayMs: 30_000,
    nameClaim: 'sub',
    clock,
    ...over,
  });
}

async function nameOf(jwt: JwtScheme, text: string): Promise<string> {
  const found = jwt.identify(text);
  return typeof found === 'string' ? found : found.run();
}

async function refusal(jwt: JwtScheme, text: string): Promise<string> {
  try {
    return `accepted ${await nameOf(jwt, text)}`;
  } catch (thrown) {
    expect(thrown).toBeInstanceOf(BadCredentials);
    return (thrown as Error).message;
  }
}

beforeAll(() => {
  clock = testClock();
});

describe('bearer token', () => {
  it('a valid token names its principal and is accepted from the cache without a second check', async () => {
    const jwt = scheme();
    const text = token(good());
    expect(await nameOf(jwt, text)).toBe('svc');
    expect(jwt.identify(text)).toBe('svc');
    jwt.forget();
    expect(jwt.identify(text)).toBeTypeOf('object');
  });

  it('a token may name its principal in another claim and several audiences', async () => {
    const jwt = scheme(undefined, { nameClaim: 'client_id' });
    expect(await nameOf(jwt, token(good({ client_id: 'app', aud: ['x', AUDIENCE] })))).toBe('app');
    expect(await refusal(jwt, token(good()))).toMatch(/claim/);
  });

  it('a token signed with an elliptic curve is checked with a key of that kind', async () => {
    const jwt = scheme(setOf(jwk(rsa.publicKey, 'one'), jwk(ec.publicKey, 'two')));
    const text = `${part({ alg: 'ES256', kid: 'two' })}.${part(good())}`;
    const signature = sign('sha256', Buffer.from(text), { key: ec.privateKey, dsaEncoding: 'ieee-p1363' });
    expect(await nameOf(jwt, `${text}.${signature.toString('base64url')}`)).toBe('svc');
  });

  it('a token is refused past its expiry and leeway', async () => {
    const jwt = scheme();
    const text = token(good({ exp: nowS() + 5 }));
    expect(await nameOf(jwt, text)).toBe('svc');
    clock.advance(34_000);
    expect(await nameOf(jwt, text)).toBe('svc');
    clock.advance(2000);
    expect(await refusal(jwt, text)).toBe('the token has expired');
  });

  const hostile: ReadonlyArray<readonly [string, () => string, RegExp]> = [
    ['has the algorithm none', () => `${part({ alg: 'none' })}.${part(good())}.`, /malformed/],
    [
      'has the algorithm none and a signature',
      () => `${part({ alg: 'none' })}.${part(good())}.AAAA`,
      /malformed|algorithm/,
    ],
    [
      'is signed with the public key as a secret',
      () => {
        const text = `${part({ alg: 'HS256', kid: 'one' })}.${part(good())}`;
        const secret = rsa.publicKey.export({ type: 'spki', format: 'pem' });
        return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`;
      },
      /algorithm is not allowed/,
    ],
    [
      'claims another algorithm than it has',
      () => token(good(), { alg: 'PS256' }),
      /algorithm is not allowed/,
    ],
    [
      'is signed with a key that is not in the set',
      () => token(good(), {}, other.privateKey),
      /signature is wrong/,
    ],
    ['names a key that is not in the set', () => token(good(), { kid: 'two' }), /not known/],
    ['names a file as its key', () => token(good(), { kid: '../../../../dev/null' }), /not known/],
    ['names a query as its key', () => token(good(), { kid: "x' UNION SELECT 'one" }), /not known/],
    ['names an object as its key', () => token(good(), { kid: { $ne: 1 } }), /not known|malformed/],
    [
      'carries its own key',
      () => token(good(), { kid: undefined, jwk: jwk(other.publicKey, 'x') }, other.privateKey),
      /signature is wrong/,
    ],
    [
      'states the address of its key',
      () => token(good(), { jku: 'http://127.0.0.1:1/keys', x5u: 'http://127.0.0.1:1/' }, other.privateKey),
      /signature is wrong/,
    ],
    ['requires an unknown extension', () => token(good(), { crit: ['b64'], b64: false }), /malformed/],
    ['has expired', () => token(good({ exp: nowS() - 31 })), /expired/],
    ['has no expiry', () => token(good({ exp: undefined })), /claim exp/],
    ['has an expiry that is not a number', () => token(good({ exp: 'tomorrow' })), /claim|malformed/],
    ['is not valid yet', () => token(good({ nbf: nowS() + 31 })), /not valid yet/],
    ['is for another service', () => token(good({ aud: 'payments' })), /claim aud/],
    ['has no audience', () => token(good({ aud: undefined })), /claim aud/],
    ['is from another issuer', () => token(good({ iss: `${ISSUER}.evil.test` })), /claim iss/],
    ['names no principal', () => token(good({ sub: '' })), /is not the name of a principal/],
    ['has no subject', () => token(good({ sub: undefined })), /claim/],
    ['names a number', () => token(good({ sub: 7 })), /is not the name of a principal/],
    ['names two lines', () => token(good({ sub: 'a\nanonymous' })), /is not the name of a principal/],
    [
      'names a very long principal',
      () => token(good({ sub: 'x'.repeat(257) })),
      /is not the name of a principal/,
    ],
    ['is huge', () => token(good({ pad: 'x'.repeat(8000) })), /too long/],
    [
      'is deep',
      () => `${part({ alg: 'RS256' })}.${Buffer.from('['.repeat(5000)).toString('base64url')}.AAAA`,
      /malformed|signature|not known/,
    ],
    [
      'has a deep header',
      () => `${Buffer.from(`${'{"a":'.repeat(900)}1${'}'.repeat(900)}`).toString('base64url')}.e30.AAAA`,
      /malformed|algorithm/,
    ],
    ['has a payload that is not an object', () => token([] as unknown as object), /malformed|claim/],
    [
      'has a changed payload',
      () => {
        const [head, , tail] = token(good()).split('.');
        return `${head}.${part(good({ sub: 'root' }))}.${tail}`;
      },
      /signature is wrong/,
    ],
    ['is not base64', () => 'a.b!.c', /malformed/],
    ['is encrypted', () => 'a.b.c.d.e', /malformed/],
    ['is empty', () => '..', /malformed/],
    ['is signed with a weak key', () => token(good(), { kid: 'small' }, small.privateKey), /malformed/],
  ];
  it.each(hostile)('a token that %s is refused without quoting it', async (_name, make, why) => {
    const text = make();
    const jwt = scheme(setOf(jwk(rsa.publicKey, 'one'), jwk(small.publicKey, 'small')));
    const message = await refusal(jwt, text);
    expect(message).toMatch(why);
    expect(message).not.toContain(text.slice(0, 40));
    expect(message.length).toBeLessThan(80);
  });

  it('a token may be signed with any of the keys that share a name', async () => {
    const jwt = scheme(setOf(jwk(other.publicKey, 'one'), jwk(rsa.publicKey, 'one')));
    expect(await nameOf(jwt, token(good()))).toBe('svc');
    expect(await refusal(jwt, token(good(), {}, pair().privateKey))).toBe("the token's signature is wrong");
    expect(await refusal(jwt, token(good({ aud: 'x' })))).toMatch(/claim aud/);
  });
});

describe('token algorithms', () => {
  it.each([['none'], ['HS256'], ['RS1'], ['']])('the algorithm %j cannot be allowed', (one) => {
    expect(() => scheme(undefined, { algorithms: ['RS256', one] })).toThrow('cannot be allowed');
  });
  it('an empty list of algorithms cannot be allowed', () => {
    expect(() => scheme(undefined, { algorithms: [] })).toThrow('cannot be allowed');
  });
});

describe('key set', () => {
  it.each([
    ['not JSON', '{', 'is not JSON'],
    ['null', 'null', 'has no list of keys'],
    ['a list', '[]', 'has no list of keys'],
    ['empty', '{"keys":[]}', 'has no public key'],
    ['a secret', '{"keys":[{"kty":"oct","k":"AAAA"}]}', 'has no public key'],
    ['a private key', setOf(jwk(rsa.privateKey, 'one')), 'has no public key'],
    ['a key for encryption', setOf(jwk(rsa.publicKey, 'one', { use: 'enc' })), 'has no public key'],
    ['nonsense', '{"keys":[null,1,"a",{}]}', 'has no public key'],
    ['endless', `{"keys":[${'{},'.repeat(1000)}{}]}`, 'over the limit of 1000'],
  ])('a key set that is %s is refused', (_name, text, why) => {
    expect(() => parseKeySet(text, 'keys')).toThrow(why);
  });
});

describe('remote key set', () => {
  function remote(answers: Array<string | Error>) {
    const log = logLines();
    let asked = 0;
    const keys = new RemoteKeys({
      url: 'https://issuer.test/keys',
      get: async () => {
        const answer = answers[Math.min(asked++, answers.length - 1)] as string | Error;
        if (answer instanceof Error) throw answer;
        return answer;
      },
      clock,
      log,
      onChange: () => jwt.forget(),
    });
    const jwt: JwtScheme = new JwtScheme({
      keys,
      issuer: ISSUER,
      audience: AUDIENCE,
      algorithms: ['RS256'],
      leewayMs: 0,
      nameClaim: 'sub',
      clock,
    });
    return { keys, jwt, log, asked: () => asked };
  }
  const first = setOf(jwk(rsa.publicKey, 'one'));
  const both = setOf(jwk(rsa.publicKey, 'one'), jwk(other.publicKey, 'two'));
  const rotated = setOf(jwk(other.publicKey, 'two'));

  it('concurrent tokens fetch the key set once', async () => {
    const { jwt, asked } = remote([first]);
    const names = await Promise.all(
      Array.from({ length: 20 }, (_, i) => nameOf(jwt, token(good({ jti: String(i) })))),
    );
    expect(new Set(names)).toEqual(new Set(['svc']));
    expect(asked()).toBe(1);
  });

  it('a token with an unknown key fetches the key set again, but not for each such token', async () => {
    const { jwt, asked } = remote([first, both]);
    expect(await nameOf(jwt, token(good()))).toBe('svc');
    clock.advance(15_000);
    expect(await nameOf(jwt, token(good(), { kid: 'two' }, other.privateKey))).toBe('svc');
    expect(asked()).toBe(2);
    for (let i = 0; i < 50; i++)
      expect(await refusal(jwt, token(good(), { kid: `x${i}` }))).toMatch(/not known/);
    expect(asked()).toBe(2);
    clock.advance(15_000);
    for (let i = 0; i < 50; i++)
      expect(await refusal(jwt, token(good(), { kid: `y${i}` }))).toMatch(/not known/);
    expect(asked()).toBe(3);
  });

  it('a removed key and its cached tokens are refused', async () => {
    const { jwt, keys } = remote([both, rotated]);
    const text = token(good());
    expect(await nameOf(jwt, text)).toBe('svc');
    clock.advance(15_000);
    await keys.refresh();
    expect(await refusal(jwt, text)).toMatch(/not known/);
  });

  it('the last keys stay valid while their address is unreachable, with occasional retries', async () => {
    const { jwt, asked, log } = remote([first, new Error('ECONNREFUSED'), new Error('ECONNREFUSED'), first]);
    expect(await nameOf(jwt, token(good({ exp: nowS() + 90_000 })))).toBe('svc');
    for (let minute = 0; minute < 30; minute++) {
      clock.advance(60_000);
      expect(await nameOf(jwt, token(good({ jti: String(minute) })))).toBe('svc');
    }
    expect(asked()).toBeGreaterThan(3);
    expect(asked()).toBeLessThan(15);
    expect(log.lines.map(({ message }) => message)).toContain(
      'token keys could not be read; the last keys stay in force',
    );
  });

  it('a key set that never arrived is an error of the registry and is fetched again later', async () => {
    const { jwt, asked } = remote([new Error('ECONNREFUSED'), '{"keys":[]}', first]);
    for (let i = 0; i < 5; i++) {
      await expect(nameOf(jwt, token(good()))).rejects.toMatchObject({
        code: 'auth_unavailable',
        row: { http: 503 },
      });
    }
    expect(asked()).toBe(1);
    clock.advance(15_000);
    await expect(nameOf(jwt, token(good()))).rejects.toMatchObject({ code: 'auth_unavailable' });
    clock.advance(15_000);
    expect(await nameOf(jwt, token(good()))).toBe('svc');
    expect(asked()).toBe(3);
  });
});
