/** Credentials that our commands send to the registry, and their reaction to a refusal. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { credentialsOf } from '../../../src/bin/registry-clients/credentials.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { isRegistryAway, RegistryClient } from '../../../src/serde/client.ts';
import { fetchTransport } from '../../../src/serde/transport.ts';
import { SeededRandom } from '../../../src/sim/clock.ts';
import { realClock } from '../../wait.ts';

const dir = mkdtempSync(join(tmpdir(), 'registry-credentials-'));
const file = (name: string, text: string): string => {
  writeFileSync(join(dir, name), text);
  return join(dir, name);
};
const none = { 'registry-user': undefined, 'registry-token-file': undefined };
const REGISTRY = 'http://127.0.0.1:8081';

let server: Server;
let url: string;
let status = 200;
let number = 0;
const seen: Array<string | undefined> = [];
beforeAll(async () => {
  server = createServer((request, response) => {
    seen.push(request.headers.authorization);
    response.statusCode = status;
    response.end(JSON.stringify(status === 200 ? { id: 1 } : { error_code: number, message: 'no' }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  server.close();
  rmSync(dir, { recursive: true, force: true });
});

const header = (settings: object): string | undefined =>
  credentialsOf({ ...none, registry: REGISTRY, ...settings }).authorization();
const basic = (text: string): string => `Basic ${Buffer.from(text).toString('base64')}`;

describe('credentials', () => {
  it('credentials are absent, a user, a token, or a user in the address', () => {
    expect(header({})).toBeUndefined();
    expect(header({ 'registry-user': 'alice:a:ü' })).toBe(basic('alice:a:ü'));
    expect(header({ 'registry-token-file': file('token', 'abc.def-_~+/==\n') })).toBe(
      'Bearer abc.def-_~+/==',
    );
    expect(header({ registry: 'http://al%40ice:p%C3%BC%3A@127.0.0.1:1' })).toBe(basic('al@ice:pü:'));
  });

  it('credentials are removed from the address, so that no message shows them', () => {
    const { url: address } = credentialsOf({ ...none, registry: 'http://alice:hunter2@127.0.0.1:1/base' });
    expect(address).toBe('http://127.0.0.1:1/base');
  });

  it('credentials in a file are read again for each request', () => {
    const path = file('rotating', 'one');
    const { authorization } = credentialsOf({ ...none, registry: REGISTRY, 'registry-token-file': path });
    file('rotating', 'two');
    expect(authorization()).toBe('Bearer two');
  });

  it.each([
    [{ 'registry-user': 'alice' }, 'is not USER:PASSWORD'],
    [{ 'registry-user': ':x' }, 'is not USER:PASSWORD'],
    [{ 'registry-user': 'a:b', registry: 'http://c:d@127.0.0.1' }, 'more than one kind of credentials'],
    [{ registry: 'http://a%zz:b@127.0.0.1' }, 'a percent sign that begins no character'],
    [{ 'registry-token-file': '/nowhere' }, '/nowhere cannot be read (ENOENT)'],
    [{ 'registry-token-file': file('lines', 'two\nlines') }, 'lines holds no token'],
    [{ 'registry-token-file': file('empty', '') }, 'empty holds no token'],
  ])('the credentials %j are refused', (settings, message) => {
    expect(() => header(settings)).toThrow(message);
  });
});

describe('registry client', () => {
  const client = (authorization?: string): RegistryClient =>
    new RegistryClient({
      transport: fetchTransport({
        url,
        timeoutMs: 5000,
        clock: realClock,
        authorization: () => authorization,
      }),
      clock: realClock,
      random: new SeededRandom(1),
      metrics: new Metrics(),
      unknownForMs: 1000,
      retries: 0,
      retryDelayMs: 1,
    });

  it('the client sends its credentials with each request, or none', async () => {
    status = 200;
    seen.length = 0;
    await client('Bearer t').register('s', 'AVRO', '"int"');
    await client().register('s', 'AVRO', '"int"');
    expect(seen).toEqual(['Bearer t', undefined]);
  });

  it.each([
    [401, 40101, 'unauthenticated'],
    [403, 40301, 'forbidden'],
    [429, 42901, 'registry_unavailable'],
    [503, 50302, 'registry_unavailable'],
  ])(
    'the client waits after a %d, and never derives a verdict on a record from it',
    async (answer, code, name) => {
      status = answer;
      number = code;
      const thrown = await client()
        .schemaById(1)
        .catch((error: unknown) => error);
      expect(thrown).toMatchObject({ code: name });
      expect(isRegistryAway(thrown)).toBe(true);
    },
  );
});
