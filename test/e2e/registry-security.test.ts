/** The registry with access rules, as an operator runs it: passwords, tokens, certificates, limits,
 *  reloads, and audit logs. */
import { generateKeyPairSync, sign } from 'node:crypto';
import { renameSync, writeFileSync } from 'node:fs';
import { createServer, request as plainRequest, type Server } from 'node:http';
import { request as secureRequest } from 'node:https';
import { type AddressInfo, connect } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { hashPassword } from '../../src/access/password.ts';
import { certificate, type Subject } from '../../src/devstack/certificates.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { realClock, until } from '../wait.ts';

const own = launcher();
const file = (name: string, text: string): string => {
  const path = join(own.dir, name);
  // Replaces the file atomically, as an operator's tools do: a reader sees the old or the new file.
  writeFileSync(`${path}.next`, text);
  renameSync(`${path}.next`, path);
  return path;
};

const PASSWORD = 'a password: with colons, blanks and ü';
const RULES = [
  'basic:alice    read,write        orders-*',
  'basic:root     all               :*:*',
  'jwt:billing    read              invoices-*',
  'anonymous      read              public-*',
  'authenticated  read              shared-*',
  '"mtls:CN=relay one,O=acme"  read  orders-*',
].join('\n');
const basic = (user: string, password = PASSWORD): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;

const key = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const nextKey = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const keySet = (...keys: ReadonlyArray<readonly [typeof key, string]>): string =>
  JSON.stringify({
    keys: keys.map(([{ publicKey }, kid]) => ({ ...publicKey.export({ format: 'jwk' }), kid })),
  });
function bearer(
  claims: object = {},
  [{ privateKey }, kid]: readonly [typeof key, string] = [key, 'one'],
): string {
  const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const exp = Math.floor(realClock.wallNowMs() / 1000) + 300;
  const text = `${part({ alg: 'ES256', kid })}.${part({ iss: 'issuer', aud: 'registry', sub: 'billing', exp, ...claims })}`;
  const signature = sign('sha256', Buffer.from(text), { key: privateKey, dsaEncoding: 'ieee-p1363' });
  return `Bearer ${text}.${signature.toString('base64url')}`;
}

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: unknown;
}
interface Ask {
  readonly authorization?: string | readonly string[];
  readonly method?: string;
  readonly body?: unknown;
  /** CA that the client trusts, and its certificate and key, in PEM. */
  readonly tls?: { readonly ca: string; readonly cert?: string; readonly key?: string };
}

function ask(base: string, path: string, options: Ask = {}): Promise<Answer> {
  const { authorization, method = 'GET', body, tls } = options;
  const send = tls === undefined ? plainRequest : secureRequest;
  return new Promise((resolve, reject) => {
    const request = send(
      `${base}${path}`,
      {
        method,
        agent: false,
        headers: {
          ...(authorization === undefined ? {} : { authorization: authorization as string }),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...tls,
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
        });
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            body: text === '' ? undefined : (JSON.parse(text) as unknown),
          }),
        );
      },
    );
    request.on('error', reject);
    request.end(body === undefined ? undefined : JSON.stringify(body));
  });
}
const schema = (name: string): object => ({ schema: JSON.stringify({ type: 'record', name, fields: [] }) });
const register = (base: string, subject: string, authorization: string, name = subject.replace(/\W/g, '_')) =>
  ask(base, `/subjects/${encodeURIComponent(subject)}/versions`, {
    method: 'POST',
    body: schema(name),
    authorization,
  });

async function start(name: string, ...flags: readonly string[]): Promise<{ child: Running; base: string }> {
  const child = startRegistry(own, [...flags], name);
  return { child, base: `http://${await child.ready()}` };
}

let child: Running;
let base: string;
let issuer: Server;
let keys = keySet([key, 'one']);
let keyRequests = 0;
const rulesPath = file('rules', RULES);

beforeAll(async () => {
  issuer = createServer((_request, response) => {
    keyRequests++;
    response.end(keys);
  });
  await new Promise<void>((resolve) => issuer.listen(0, '127.0.0.1', resolve));
  const users = file(
    'users',
    (
      await Promise.all(
        ['alice', 'root', 'nosy'].map(async (user) => `${user}:${await hashPassword(PASSWORD)}`),
      )
    ).join('\n'),
  );
  ({ child, base } = await start(
    'guarded',
    `-auth-rules=${rulesPath}`,
    `-auth-basic=${users}`,
    `-auth-jwks=http://127.0.0.1:${(issuer.address() as AddressInfo).port}/keys`,
    '-auth-jwt-issuer=issuer',
    '-auth-jwt-audience=registry',
    '-client-rate=2000',
  ));
  for (const subject of [
    'orders-value',
    'invoices-value',
    'public-value',
    'shared-value',
    'secret-value',
    ':.lab:orders-value',
  ]) {
    expect((await register(base, subject, basic('root'))).status).toBe(200);
  }
});
afterAll(() => {
  child.kill('SIGTERM');
  issuer.close();
});

describe('registry with access rules', () => {
  it('the registry denies by default, in its error shape, with a challenge', async () => {
    const refused = await ask(base, '/subjects/orders-value/versions/1');
    expect(refused).toMatchObject({
      status: 401,
      body: { error_code: 40101, message: expect.stringContaining('needs credentials') as string },
      headers: { 'www-authenticate': 'Basic realm="millrace", charset="UTF-8", Bearer realm="millrace"' },
    });
    expect(
      await ask(base, '/subjects/secret-value/versions/1', { authorization: basic('alice') }),
    ).toMatchObject({
      status: 403,
      body: { error_code: 40301, message: 'basic:alice is not allowed to read secret-value' },
    });
  });

  it('the registry gives the same refusal for existing and missing subjects', async () => {
    const existing = await ask(base, '/subjects/secret-value/versions', { authorization: basic('alice') });
    const missing = await ask(base, '/subjects/no-such-value/versions', { authorization: basic('alice') });
    expect([existing.status, missing.status]).toEqual([403, 403]);
  });

  it('the registry admits each scheme to the subjects that its rules allow', async () => {
    const read = (subject: string, authorization?: string) =>
      ask(base, `/subjects/${subject}/versions`, authorization === undefined ? {} : { authorization });
    expect((await read('orders-value', basic('alice'))).status).toBe(200);
    expect((await read('invoices-value', bearer())).status).toBe(200);
    expect((await read('orders-value', bearer())).status).toBe(403);
    expect((await read('shared-value', bearer({ sub: 'anyone' }))).status).toBe(200);
    expect((await read('shared-value')).status).toBe(401);
    expect((await read('public-value')).status).toBe(200);
    expect((await read('public-value', basic('alice', 'wrong'))).status).toBe(401);
    expect((await register(base, 'orders-key', basic('alice'))).status).toBe(200);
    expect((await register(base, 'orders-key', bearer())).status).toBe(403);
    expect((await register(base, 'public-new', basic('alice'))).status).toBe(403);
    const remove = { method: 'DELETE', authorization: basic('alice') };
    expect((await ask(base, '/subjects/orders-key', remove)).status).toBe(403);
  });

  it('the registry keeps contexts separate, in each of their spellings', async () => {
    const authorization = basic('alice');
    for (const path of [
      '/subjects/%3A.lab%3Aorders-value/versions',
      '/contexts/.lab/subjects/orders-value/versions',
      '/contexts/lab/subjects/orders-value/versions',
    ])
      expect((await ask(base, path, { authorization })).status).toBe(403);
    expect((await ask(base, '/subjects/%3A.%3Aorders-value/versions', { authorization })).status).toBe(200);
    expect((await ask(base, '/contexts', { authorization })).body).toEqual(['.']);
    expect((await ask(base, '/contexts/.lab/subjects', { authorization })).status).toBe(403);
  });

  it('the registry lists only the subjects that the caller may read', async () => {
    const list = async (path: string, authorization?: string): Promise<unknown> =>
      (await ask(base, path, authorization === undefined ? {} : { authorization })).body;
    expect(await list('/subjects')).toEqual(['public-value']);
    expect(await list('/subjects', bearer())).toEqual(['invoices-value', 'public-value', 'shared-value']);
    expect(await list('/subjects', basic('nosy'))).toEqual(['public-value', 'shared-value']);
    expect((await list('/subjects?subjectPrefix=:*:', basic('root'))) as string[]).toContain(
      ':.lab:orders-value',
    );
    const schemas = (await list('/schemas', basic('nosy'))) as ReadonlyArray<{ readonly subject: string }>;
    expect(schemas.map(({ subject }) => subject)).toEqual(['public-value', 'shared-value']);
  });

  it('the registry returns a schema by id to a caller who may read a subject that uses it', async () => {
    const shared = schema('Everywhere');
    const put = (subject: string) =>
      ask(base, `/subjects/${subject}/versions`, {
        method: 'POST',
        body: shared,
        authorization: basic('root'),
      });
    const { id } = (await put('secret-two')).body as { readonly id: number };
    const get = (path = '') => ask(base, `/schemas/ids/${id}${path}`, { authorization: basic('alice') });
    expect(await get()).toMatchObject({ status: 403, body: { error_code: 40301 } });
    expect((await get('/schema')).status).toBe(403);
    expect((await get('/versions')).body).toEqual([]);
    expect((await put('orders-two')).body).toMatchObject({ id });
    expect((await get()).status).toBe(200);
    expect((await get('/subjects')).body).toEqual(['orders-two']);
    expect((await ask(base, '/schemas/ids/999999', { authorization: basic('alice') })).status).toBe(404);
    expect((await ask(base, `/schemas/ids/${id}`)).status).toBe(401);
  });

  it('the registry checks the right to read the references of a schema', async () => {
    const body = {
      schema: '{"type":"record","name":"R","fields":[{"name":"s","type":"secret_value"}]}',
      references: [{ name: 'secret_value', subject: 'secret-value', version: 1 }],
    };
    for (const path of [
      '/subjects/orders-three/versions',
      '/compatibility/subjects/orders-three/versions',
      '/subjects/orders-three',
    ])
      expect(await ask(base, path, { method: 'POST', body, authorization: basic('alice') })).toMatchObject({
        status: 403,
      });
  });

  it('an alias gives no access to its target, and global settings need a global right', async () => {
    const put = (path: string, body: object, authorization: string) =>
      ask(base, path, { method: 'PUT', body, authorization });
    file('rules', `${RULES}\nbasic:nosy all nosy-*\nbasic:nosy admin *`);
    await until('the reload', async () =>
      (await put('/config/nosy-a', { compatibility: 'FULL' }, basic('nosy'))).status === 200
        ? true
        : undefined,
    );
    file('rules', `${RULES}\nbasic:nosy all nosy-*`);
    await until('the reload', async () =>
      (await put('/config/orders-value', { compatibility: 'FULL' }, basic('nosy'))).status === 403
        ? true
        : undefined,
    );
    expect((await put('/config/nosy-a', { alias: 'secret-value' }, basic('nosy'))).status).toBe(403);
    expect((await put('/config/nosy-a', { alias: 'secret-value' }, basic('root'))).status).toBe(200);
    const version = await ask(base, '/subjects/nosy-a/versions/latest', { authorization: basic('nosy') });
    expect([403, 404]).toContain(version.status);
    expect((await put('/config', { compatibility: 'NONE' }, basic('nosy'))).status).toBe(403);
    expect((await put('/mode', { mode: 'READONLY' }, basic('nosy'))).status).toBe(403);
    expect((await ask(base, '/config', { authorization: basic('nosy') })).status).toBe(200);
    expect((await put('/config', { compatibility: 'FULL' }, basic('root'))).status).toBe(200);
  });

  it('the registry refuses two Authorization headers and an invalid one', async () => {
    for (const authorization of [
      [basic('alice'), bearer()],
      [bearer(), bearer()],
      'Basic',
      'Negotiate abc',
      `${basic('alice')}, x`,
    ])
      expect((await ask(base, '/subjects', { authorization })).status).toBe(401);
    const raw = await new Promise<string>((resolve) => {
      const { hostname, port } = new URL(base);
      let text = '';
      const socket = connect(Number(port), hostname, () =>
        socket.write(
          `GET /subjects HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${basic('alice')}\r\nauthorization: ${bearer()}\r\nConnection: close\r\n\r\n`,
        ),
      );
      socket.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      socket.on('close', () => resolve(text));
    });
    expect(raw).toMatch(/^HTTP\/1\.1 4(00|01) /);
  });

  it('the registry serves probes to every caller', async () => {
    for (const path of ['/', '/ready', '/health', '/openapi.json'])
      expect((await ask(base, path)).status).toBe(200);
  });

  it('the registry follows a key rotation, and continues when the issuer is down', async () => {
    keys = keySet([key, 'one'], [nextKey, 'two']);
    const before = keyRequests;
    const rotated = () => bearer({}, [nextKey, 'two']);
    await until('the next key', async () =>
      (await ask(base, '/subjects/invoices-value/versions', { authorization: rotated() })).status === 200
        ? true
        : undefined,
    );
    expect(keyRequests - before).toBe(1);
    await new Promise((resolve) => {
      issuer.close(resolve);
      issuer.closeAllConnections();
    });
    expect((await ask(base, '/subjects/invoices-value/versions', { authorization: rotated() })).status).toBe(
      200,
    );
    expect(
      (await ask(base, '/subjects/invoices-value/versions', { authorization: bearer({ exp: 1 }) })).status,
    ).toBe(401);
  });

  it('the registry keeps its rules and logs a line when the file is invalid, and SIGHUP reloads immediately', async () => {
    file('rules', `${RULES}\nbasic:alice reads *`);
    await until('the line in the log', async () =>
      /rules:7: .*reads.* is not an operation/.test(child.log()) ? true : undefined,
    );
    expect(
      (await ask(base, '/subjects/orders-value/versions', { authorization: basic('alice') })).status,
    ).toBe(200);
    file('rules', 'basic:root all :*:*');
    process.kill(child.pid, 'SIGHUP');
    await until('the reload', async () =>
      (await ask(base, '/subjects/orders-value/versions', { authorization: basic('alice') })).status === 403
        ? true
        : undefined,
    );
    expect((await ask(base, '/subjects/public-value/versions')).status).toBe(401);
    file('rules', RULES);
    process.kill(child.pid, 'SIGHUP');
    await until('the reload', async () =>
      (await ask(base, '/subjects/orders-value/versions', { authorization: basic('alice') })).status === 200
        ? true
        : undefined,
    );
  });

  it('the registry logs each write and each refusal with the principal, and no credential', () => {
    const log = child.log();
    expect(log).toMatch(
      /"operation":"write","subject":"orders-key".*"principal":"basic:alice".*audit: allowed/,
    );
    expect(log).toMatch(/"operation":"delete","subject":"orders-key".*audit: refused \(forbidden\)/);
    expect(log).toMatch(/"claimed":"alice".*audit: refused \(unauthenticated\)/);
    for (const secret of [
      PASSWORD,
      Buffer.from(`alice:${PASSWORD}`).toString('base64'),
      bearer().slice(7, 60),
      'wrong:',
    ])
      expect(log).not.toContain(secret);
  });
});

describe('client rate', () => {
  it('the registry limits the client rate with a 429 that names the time to retry', async () => {
    const { child: one, base: url } = await start('limited', '-client-rate=1');
    const statuses: number[] = [];
    // Two requests pass immediately and one more each second: a slow client is refused later.
    const refused = await until('a refusal', async () => {
      const answer = await ask(url, '/subjects');
      statuses.push(answer.status);
      return answer.status === 429 && answer;
    });
    expect(statuses.slice(0, 2)).toEqual([200, 200]);
    expect(refused).toMatchObject({
      status: 429,
      headers: { 'retry-after': '1' },
      body: { error_code: 42901, message: 'too many requests of this address' },
    });
    await one.drain();
  });
});

describe('client certificates', () => {
  const authority = certificate({ subject: [['CN', 'test authority']], authority: true });
  const names = { dnsNames: ['localhost'], ips: ['127.0.0.1'] };
  const server = certificate({ subject: [['CN', 'localhost']], issuer: authority, ...names });
  const relay: Subject = [
    ['CN', 'relay one'],
    ['O', 'acme'],
  ];
  const clients = {
    relay: certificate({ subject: relay, issuer: authority }),
    // A comma inside a name does not separate two names.
    other: certificate({ subject: [['CN', 'relay one,O=acme']], issuer: authority }),
    self: certificate({ subject: relay }),
  };

  it('a client certificate names the principal if the settings trust it', async () => {
    const one = startRegistry(
      own,
      [
        `-tls-cert=${file('server.pem', server.cert)}`,
        `-tls-key=${file('server.key', server.key)}`,
        `-tls-client-ca=${file('ca.pem', authority.cert)}`,
        '-tls-client-auth=optional',
        '-auth-mtls',
        `-auth-rules=${file('mtls-rules', RULES)}`,
      ],
      'mtls',
    );
    const address = await one.origin();
    const as = (name?: keyof typeof clients): NonNullable<Ask['tls']> => ({
      ca: authority.cert,
      ...(name === undefined ? {} : { cert: clients[name].cert, key: clients[name].key }),
    });
    await until('readiness', async () =>
      (await ask(address, '/ready', { tls: as() })).status === 200 ? true : undefined,
    );
    const status = async (subject: string, name?: keyof typeof clients): Promise<number> =>
      (await ask(address, `/subjects/${subject}/versions`, { tls: as(name) })).status;
    expect(await status('orders-value', 'relay')).toBe(404);
    expect(await status('secret-value', 'relay')).toBe(403);
    expect(await status('orders-value', 'other')).toBe(403);
    expect(await status('orders-value')).toBe(401);
    expect(await status('public-value')).toBe(404);
    await expect(ask(address, '/subjects', { tls: as('self') })).rejects.toThrow();
    await one.drain();
    expect(one.log()).toContain('audit: refused (forbidden)');
  });
});
