/** TLS and client certificates, over real sockets with generated certificates. */
import { connect as connectPlain } from 'node:net';
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { silentLogger } from '../../src/core/log.ts';
import { wireDriver } from '../../src/io/http/http1/server.ts';
import { nodeHttpDriver } from '../../src/io/http/node/server.ts';
import type { HttpDriver, HttpServer, HttpServerOptions, HttpTls } from '../../src/io/http/port.ts';
import { uwsDriver } from '../../src/io/http/uws/server.ts';
import { certificate, type Issued } from '../../src/devstack/certificates.ts';
import { get } from './http-harness.ts';

const authority = certificate({ subject: [['CN', 'test authority']], authority: true });
const otherAuthority = certificate({ subject: [['CN', 'another authority']], authority: true });
const own = certificate({
  subject: [['CN', 'registry']],
  issuer: authority,
  dnsNames: ['localhost'],
  ips: ['127.0.0.1'],
});
const relay = certificate({
  subject: [
    ['O', 'acme, inc'],
    ['CN', 'relay'],
  ],
  issuer: authority,
  dnsNames: ['relay.acme'],
  uris: ['spiffe://acme/relay'],
});

const servers: HttpServer[] = [];
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.drain(0)));
});

/** Driver that the current round tests. */
let driver: HttpDriver = nodeHttpDriver;

/** Opens a connection and completes the TLS handshake. */
function secured(server: HttpServer, ca: string): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port: server.port, ca }, () => resolve(socket));
    socket.once('error', reject);
  });
}

async function start(tls: Partial<HttpTls> = {}, over: Partial<HttpServerOptions> = {}): Promise<HttpServer> {
  const server = await driver.listen({
    host: '127.0.0.1',
    port: 0,
    tls: { cert: own.cert, key: own.key, ...tls },
    routes: [
      {
        method: 'GET',
        path: '/who',
        handler: (request) => ({ status: 200, body: JSON.stringify(request.peer ?? null) }),
      },
    ],
    bodyBytesMax: 1024,
    headerBytesMax: 8192,
    requestTimeoutMs: 15_000,
    keepAliveTimeoutMs: 15_000,
    log: silentLogger,
    ...over,
  });
  servers.push(server);
  return server;
}

/** Result of one request on a separate connection: its answer, or the code of the error that ended
 *  it. */
function ask(server: HttpServer, over: ConnectionOptions = {}): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port: server.port, ca: authority.cert, ...over });
    let received = '';
    socket.on('secureConnect', () => socket.write(get('/who', 'Connection: close\r\n')));
    socket.on('data', (chunk) => {
      received += chunk.toString();
    });
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    socket.on('close', () => resolve(received));
  });
}

const bodyOf = (answer: string): unknown => JSON.parse(answer.slice(answer.indexOf('\r\n\r\n') + 4));
const mtls = { clientCa: authority.cert };

describe.each([nodeHttpDriver, wireDriver])('$name', (one) => {
  beforeEach(() => {
    driver = one;
  });

  describe('TLS', () => {
    test('a client that trusts the authority is served, and a client that does not ends the handshake', async () => {
      const server = await start();
      expect(bodyOf(await ask(server))).toBe(null);
      expect(await ask(server, { ca: otherAuthority.cert })).toMatch(/UNABLE_TO_VERIFY|SELF_SIGNED/);
      expect(await ask(server, { maxVersion: 'TLSv1.1', minVersion: 'TLSv1' })).toMatch(
        /ERR_SSL|EPROTO|ECONNRESET/,
      );
    });

    test('plain HTTP and garbage on the TLS port end their connection, and the server continues', async () => {
      const server = await start();
      for (const bytes of [get('/who'), '\x16\x03\x01\x00\x05hello', '\x00'.repeat(100)]) {
        const received = await new Promise<string>((resolve) => {
          let text = '';
          const socket = connectPlain(server.port, '127.0.0.1', () => socket.write(bytes));
          socket.on('data', (chunk) => {
            text += chunk.toString('latin1');
          });
          socket.on('error', () => {});
          socket.on('close', () => resolve(text));
        });
        expect(received).not.toContain('HTTP/1.1 200');
      }
      expect(bodyOf(await ask(server))).toBe(null);
    });

    test('a drain does not wait for a handshake that never comes', async () => {
      const server = await start();
      const socket = connectPlain(server.port, '127.0.0.1');
      await new Promise<void>((resolve) => socket.once('connect', () => resolve()));
      await ask(server);
      const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
      await server.drain(60_000);
      await closed;
    });

    test('a reloaded certificate is served to new connections, and a mismatched one changes nothing', async () => {
      const server = await start();
      const kept = await secured(server, authority.cert);
      const next = certificate({ subject: [['CN', 'next']], issuer: otherAuthority, ips: ['127.0.0.1'] });
      server.reloadTls({ cert: next.cert, key: next.key });
      expect(bodyOf(await ask(server, { ca: otherAuthority.cert }))).toBe(null);
      expect(await ask(server)).toMatch(/UNABLE_TO_VERIFY|SELF_SIGNED/);
      expect(() => server.reloadTls({ cert: own.cert, key: next.key })).toThrow(
        'is not the key of the certificate',
      );
      expect(bodyOf(await ask(server, { ca: otherAuthority.cert }))).toBe(null);
      const answered = new Promise<string>((resolve) => kept.once('data', (chunk) => resolve(`${chunk}`)));
      kept.write(get('/who'));
      expect(await answered).toContain('HTTP/1.1 200');
      kept.destroy();
    });

    test('reloaded authorities of client certificates replace the previous ones', async () => {
      const server = await start(mtls);
      const client = { cert: relay.cert, key: relay.key };
      expect(await ask(server, client)).toContain('HTTP/1.1 200');
      server.reloadTls({ cert: own.cert, key: own.key, clientCa: otherAuthority.cert });
      expect(await ask(server, client)).not.toContain('HTTP/1.1 200');
    });

    test('a connection above the limit is closed before its handshake', async () => {
      const server = await start({}, { connectionsMax: 1 });
      const kept = await secured(server, authority.cert);
      expect(await ask(server)).toMatch(/ECONNRESET|^$/);
      kept.destroy();
      await expect.poll(() => server.connections()).toBe(0);
      expect(await ask(server)).toContain('HTTP/1.1 200');
    });

    test('uWebSockets.js refuses TLS settings and names the driver that has TLS', async () => {
      const options = {
        host: '127.0.0.1',
        port: 0,
        routes: [],
        bodyBytesMax: 1,
        headerBytesMax: 1,
        log: silentLogger,
      };
      const refused = await uwsDriver
        .listen({
          ...options,
          requestTimeoutMs: 1,
          keepAliveTimeoutMs: 1,
          tls: { cert: own.cert, key: own.key },
        })
        .catch((thrown: unknown) => findMillraceError(thrown));
      expect(refused).toMatchObject({ code: 'bad_value', next: 'run with -http=net' });
    });
  });

  describe('client certificates', () => {
    test('a verified client certificate is the peer of each request', async () => {
      const answer = bodyOf(await ask(await start(mtls), { cert: relay.cert, key: relay.key }));
      expect(answer).toEqual({
        subject: 'O=acme\\, inc,CN=relay',
        altNames: ['DNS:relay.acme', 'URI:spiffe://acme/relay'],
        fingerprint256: expect.stringMatching(/^([0-9A-F]{2}:){31}[0-9A-F]{2}$/),
      });
    });

    const bad: ReadonlyArray<readonly [string, Issued]> = [
      ['of another authority', certificate({ subject: relay.subject, issuer: otherAuthority })],
      ['signed by itself', certificate({ subject: relay.subject })],
      ['out of date', certificate({ subject: relay.subject, issuer: authority, endsMs: -60_000 })],
      [
        'of an authority by name only',
        certificate({ subject: relay.subject, issuer: { ...otherAuthority, subject: authority.subject } }),
      ],
      ['issued by a certificate without CA rights', certificate({ subject: [['CN', 'x']], issuer: relay })],
    ];

    test.each(bad)(
      'a client certificate %s gets no answer, whether a certificate is required or not',
      async (_what, { cert, key }) => {
        for (const clientCertificateRequired of [true, false]) {
          const answer = await ask(await start({ ...mtls, clientCertificateRequired }), { cert, key });
          expect(answer).not.toContain('HTTP/1.1 200');
        }
      },
    );

    test('a client without a certificate is refused if a certificate is required, and served without a peer otherwise', async () => {
      expect(await ask(await start(mtls))).not.toContain('HTTP/1.1 200');
      expect(bodyOf(await ask(await start({ ...mtls, clientCertificateRequired: false })))).toBe(null);
    });

    test('a certificate name cannot smuggle in another name', async () => {
      const sly = certificate({
        subject: [['CN', 'x,CN=relay\nO=acme']],
        issuer: authority,
        dnsNames: ['a, DNS:relay.acme'],
      });
      const peer = bodyOf(await ask(await start(mtls), { cert: sly.cert, key: sly.key }));
      expect(peer).toMatchObject({
        subject: 'CN=x\\,CN=relay\\0AO=acme',
        altNames: ['DNS:a, DNS:relay.acme'],
      });
    });
  });

  describe('TLS settings', () => {
    test.each<[string, Partial<HttpTls>, string]>([
      ['an invalid certificate', { cert: 'garbage' }, 'TLS cert'],
      ['an invalid key', { key: own.cert }, 'TLS key'],
      ['the key of another certificate', { key: relay.key }, 'not the key of the certificate'],
      ['an invalid authority', { clientCa: '' }, 'TLS clientCa'],
      ['a broken authority', { clientCa: own.cert.replace(/MII/, 'MXX') }, 'TLS clientCa'],
    ])('the server refuses %s before it takes the port', async (_what, tls, why) => {
      const refused = await start(tls).catch((thrown: unknown) => findMillraceError(thrown));
      expect(refused).toMatchObject({ code: 'bad_value', message: expect.stringContaining(why) });
    });
  });
});
