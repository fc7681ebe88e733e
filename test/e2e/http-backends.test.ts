/** The registry process behind each HTTP backend: the chosen backend and the reason, TLS, invalid
 *  flags, and shutdown. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { describe, expect, test } from 'vitest';
import { certificate } from '../../src/devstack/certificates.ts';
import { nodeHttpClientDriver } from '../../src/io/http/client.ts';
import type { HttpClient } from '../../src/io/http/client-port.ts';
import { loadUws } from '../../src/io/http/uws/load.ts';
import { RawClient } from '../contract/raw-client.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { until } from '../wait.ts';

const own = launcher();
const registry = (...flags: string[]): Running => startRegistry(own, [...flags]);

const authority = certificate({ subject: [['CN', 'test authority']], authority: true });
const served = certificate({ subject: [['CN', 'registry']], issuer: authority, ips: ['127.0.0.1'] });

function file(name: string, text: string): string {
  const path = join(own.dir, name);
  writeFileSync(path, text);
  return path;
}

const canLoadUws = ((): boolean => {
  try {
    loadUws();
    return true;
  } catch {
    return false;
  }
})();

function clientOf(target: string, ca?: string): HttpClient {
  const limits = { connectionsMax: 4, timeoutMs: 20_000, bodyBytesMax: 1_000_000 };
  return nodeHttpClientDriver.open({ target, ...limits, ...(ca === undefined ? {} : { ca }) });
}

async function ask(client: HttpClient, method: string, path: string, body = ''): Promise<unknown> {
  const headers = { 'content-type': 'application/vnd.schemaregistry.v1+json' };
  const reply = await client.send({ method, path, headers, body });
  const text = Buffer.from(reply.body).toString('utf8');
  return reply.status === 200 ? JSON.parse(text) : { status: reply.status, text };
}

const ready = (client: HttpClient): Promise<unknown> =>
  until('a ready registry', async () => {
    const reply = await client.send({ method: 'GET', path: '/ready', headers: {}, body: '' });
    return reply.status === 200 ? true : undefined;
  });

/** Returns the subject of the certificate that a new connection gets. */
function subjectServed(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connectTls({ host: '127.0.0.1', port, ca: authority.cert }, () => {
      resolve(socket.getPeerX509Certificate()?.subject ?? '');
      socket.destroy();
    });
    socket.once('error', reject);
  });
}

describe('registry process', () => {
  test.each([
    ['auto', canLoadUws ? 'uWebSockets.js' : 'node:net'],
    ['net', 'node:net'],
  ])(
    'a registry with -http=%s is served by %s, answers, and exits with 0 while connections are open',
    async (asked, name) => {
      const process = registry(`-http=${asked}`);
      const address = await process.address();
      const client = clientOf(`http://${address}`);
      await ready(client);
      expect(await ask(client, 'GET', '/version')).toMatchObject({ command: 'registry', http: name });
      const body = JSON.stringify({ schema: '"string"' });
      expect(await ask(client, 'POST', '/subjects/a%2Fb/versions', body)).toEqual({ id: 1 });
      expect(await ask(client, 'GET', '/schemas/ids/1')).toMatchObject({ schema: '"string"' });
      expect(await ask(client, 'GET', '/subjects')).toEqual(['a/b']);
      expect(process.log()).toMatch(new RegExp(`"driver":"${name}".*"driver chosen"`));
      const scraped = await client.send({ method: 'GET', path: '/metrics', headers: {}, body: '' });
      const uws = name === 'node:net' ? 0 : 1;
      expect(Buffer.from(scraped.body).toString()).toMatch(new RegExp(`^http_backend_uws ${uws}$`, 'm'));
      const port = Number(address.split(':')[1]);
      const idle = await Promise.all(Array.from({ length: 20 }, () => RawClient.open(port)));
      await process.drain();
      await Promise.all(idle.map((one) => one.closed()));
      client.close();
    },
  );

  test('a registry with a certificate serves https to clients that trust it, and reloads changed files', async () => {
    const process = registry(
      `-tls-cert=${file('cert.pem', served.cert)}`,
      `-tls-key=${file('key.pem', served.key)}`,
    );
    const renewed = certificate({ subject: [['CN', 'renewed']], issuer: authority, ips: ['127.0.0.1'] });
    const target = await process.origin();
    const client = clientOf(target, authority.cert);
    await ready(client);
    expect(await ask(client, 'GET', '/version')).toMatchObject({ http: 'node:net' });
    expect(process.log()).toContain('it serves no TLS');
    await expect(ask(clientOf(target), 'GET', '/version')).rejects.toThrow('no reply');
    // Between the two writes the key does not match the certificate, so the registry keeps the old
    // pair.
    file('cert.pem', renewed.cert);
    file('key.pem', renewed.key);
    const port = Number(new URL(target).port);
    await until('the new certificate', async () =>
      (await subjectServed(port)) === 'CN=renewed' ? true : undefined,
    );
    const page = await client.send({ method: 'GET', path: '/metrics', headers: {}, body: '' });
    expect(Buffer.from(page.body).toString()).toMatch(/^tls_reloads_total\{outcome="done"\} 1$/m);
    client.close();
    await process.drain();
  });

  test('a registry refuses foreign origins, foreign Hosts and excess connections as its flags state', async () => {
    const process = registry('-allowed-origins=https://app.example', '-connections-max=30', '-http=net');
    const address = await process.address();
    const port = Number(address.split(':')[1]);
    const statusOf = async (host: string, origin?: string): Promise<number> => {
      const client = await RawClient.open(port);
      const more = origin === undefined ? '' : `Origin: ${origin}\r\n`;
      const { status } = await client.send(`GET /health HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`).answer();
      client.close();
      return status;
    };
    expect(await statusOf(address)).toBe(200);
    expect(await statusOf(address, 'https://app.example')).toBe(200);
    expect(await statusOf(address, 'https://evil.example')).toBe(403);
    expect(await statusOf('evil.example')).toBe(403);
    const idle = await Promise.all(Array.from({ length: 31 }, () => RawClient.open(port)));
    const refused = await Promise.race(idle.map((one) => one.answer()));
    expect([refused.status, refused.body.toString()]).toEqual([
      503,
      expect.stringContaining('-connections-max'),
    ]);
    for (const one of idle) one.close();
    const scraped = await until('the metrics', async () => {
      const client = clientOf(`http://${address}`);
      const { status, body } = await client.send({ method: 'GET', path: '/metrics', headers: {}, body: '' });
      client.close();
      return status === 200 ? Buffer.from(body).toString() : undefined;
    });
    expect(scraped).toMatch(/^http_connections \d+$/m);
    expect(scraped).toMatch(/^http_held_bytes \d+$/m);
    expect(scraped).toMatch(/^http_connections_refused_total\{limit="total"\} [1-9]/m);
    await process.drain();
  });

  test('a registry exits with 2 and one line for -allowed-origins with an invalid origin', async () => {
    const process = registry('-allowed-origins=app.example/path');
    expect((await process.ended).code).toBe(2);
    expect(process.log()).toContain('-allowed-origins=app.example/path is not an origin');
  });

  test('a registry exits with 2 and one line for a missing key, a mismatched key, and a backend without TLS', async () => {
    const cert = `-tls-cert=${file('one.pem', served.cert)}`;
    const key = `-tls-key=${file('one-key.pem', served.key)}`;
    const wrong = `-tls-key=${file('other-key.pem', authority.key)}`;
    for (const [flags, why] of [
      [[cert], 'needs -tls-key'],
      [[cert, wrong], 'is not the key of the certificate'],
      [[cert, '-tls-key=/nowhere/key.pem'], 'cannot be read (ENOENT)'],
      [['-http=uws', cert, key], 'it serves no TLS'],
    ] as const) {
      const process = registry(...flags);
      expect((await process.ended).code, why).toBe(2);
      expect(process.log()).toContain(why);
    }
  });
});
