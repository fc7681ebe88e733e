/** TLS of the direct client: the certificates that it refuses, and its own certificate. librdkafka,
 *  which would refuse first, takes no part. */
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer, type TLSSocket, type TlsOptions } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { loadAddon } from '../../src/addon/load.ts';
import { type CertificateOptions, certificate, type Issued } from '../../src/devstack/certificates.ts';
import { pairs } from '../../src/io/kafka/librdkafka.ts';
import { type Brokers, startBrokers } from './leading-broker.ts';

const CONNECT_MS_MAX = 60_000;
const VERIFICATION = 'enable.ssl.certificate.verification';
const NAME_CHECK = 'ssl.endpoint.identification.algorithm';

const authority = certificate({ subject: [['CN', 'authority']], authority: true });
const otherAuthority = certificate({ subject: [['CN', 'another authority']], authority: true });
const issued = (more: Partial<CertificateOptions> = {}): Issued =>
  certificate({ subject: [['CN', 'broker']], issuer: authority, ips: ['127.0.0.1'], ...more });

let plain: Brokers;
let folder: string;
beforeAll(async () => {
  plain = await startBrokers(1, () => ({}));
  folder = mkdtempSync(join(tmpdir(), 'millrace-tls-'));
});
afterAll(async () => {
  await plain.close();
  rmSync(folder, { recursive: true });
});

function file(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

interface Broker {
  readonly address: string;
  /** Names of the clients whose handshake ended well; undefined for one without a certificate. */
  readonly peers: ReadonlyArray<string | undefined>;
}

/** A broker behind TLS. */
async function startBroker({ cert, key }: Issued, options: TlsOptions = {}): Promise<Broker> {
  const peers: Array<string | undefined> = [];
  const open = new Set<TLSSocket>();
  const [host, port] = plain.address.split(':');
  const server = createServer({ cert, key, ...options }, (socket) => {
    peers.push(socket.getPeerCertificate().subject?.CN as string | undefined);
    open.add(socket);
    const inner = connect(Number(port), host as string);
    for (const one of [socket, inner]) one.on('error', () => {});
    socket.pipe(inner).pipe(socket);
  });
  server.on('tlsClientError', () => {});
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    for (const socket of open) socket.destroy();
    server.close();
  });
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, peers };
}

/** Connects the direct client. @returns the text of its failure; null: it is connected */
async function failureOf(
  broker: Broker,
  properties: Readonly<Record<string, string>>,
): Promise<string | null> {
  const addon = loadAddon();
  const base = { 'bootstrap.servers': broker.address, 'security.protocol': 'ssl', 'client.id': 'tls' };
  const handle = addon.brokerDirectOpen(pairs({ ...base, ...properties }));
  try {
    const [failure] = await addon.brokerDirectConnect(handle, CONNECT_MS_MAX);
    return failure === null ? null : failure[1];
  } finally {
    addon.brokerDirectClose(handle);
  }
}

const trusted = { 'ssl.ca.pem': authority.cert };

describe('the certificate of a broker', () => {
  it('a certificate of a trusted authority is accepted, whether it is given as text or as a file', async () => {
    const broker = await startBroker(issued());
    expect(await failureOf(broker, trusted)).toBe(null);
    expect(await failureOf(broker, { 'ssl.ca.location': file('ca.pem', authority.cert) })).toBe(null);
  });

  it.each([
    ['of another authority', issued({ issuer: otherAuthority }), 'unable to get local issuer certificate'],
    [
      'signed by itself',
      certificate({ subject: [['CN', 'broker']], ips: ['127.0.0.1'] }),
      'self-signed certificate',
    ],
    ['out of date', issued({ endsMs: -60_000 }), 'certificate has expired'],
    ['of another address', issued({ ips: ['127.0.0.2'] }), 'IP address mismatch'],
  ])('a certificate %s is refused', async (_, own, why) => {
    const broker = await startBroker(own);
    expect((await failureOf(broker, trusted))?.replace('self signed', 'self-signed')).toContain(why);
    expect(broker.peers).toEqual([]);
  });

  it('the name of a host is compared with the names in the certificate', async () => {
    const named = await startBroker(issued({ ips: [], dnsNames: ['localhost'] }));
    const byName = { ...named, address: named.address.replace('127.0.0.1', 'localhost') };
    expect(await failureOf(byName, trusted)).toBe(null);
    const other = await startBroker(issued({ ips: [], dnsNames: ['broker.example'] }));
    const address = other.address.replace('127.0.0.1', 'localhost');
    expect(await failureOf({ ...other, address }, trusted)).toContain('hostname mismatch');
    expect(other.peers).toEqual([]);
  });
});

describe('the words of librdkafka', () => {
  it.each(['true', 'TRUE', 't', '1', ' true'])('the value %j keeps the verification on', async (value) => {
    const broker = await startBroker(issued({ issuer: otherAuthority }));
    expect(await failureOf(broker, { ...trusted, [VERIFICATION]: value })).toContain(
      'certificate verify failed',
    );
    expect(broker.peers).toEqual([]);
  });

  it.each(['false', 'False', 'f', '0'])('the value %j turns the verification off', async (value) => {
    const broker = await startBroker(issued({ issuer: otherAuthority }));
    expect(await failureOf(broker, { ...trusted, [VERIFICATION]: value })).toBe(null);
  });

  it.each(['https', 'HTTPS'])('the value %j keeps the check of the name on', async (value) => {
    const broker = await startBroker(issued({ ips: ['127.0.0.2'] }));
    expect(await failureOf(broker, { ...trusted, [NAME_CHECK]: value })).toContain('IP address mismatch');
  });

  it.each(['none', 'None'])('the value %j turns the check of the name off', async (value) => {
    const broker = await startBroker(issued({ ips: ['127.0.0.2'] }));
    expect(await failureOf(broker, { ...trusted, [NAME_CHECK]: value })).toBe(null);
  });

  it.each([
    [VERIFICATION, 'yes'],
    [VERIFICATION, ''],
    [NAME_CHECK, ''],
    [NAME_CHECK, 'http'],
    ['security.protocol', 'tls'],
    ['isolation.level', 'committed'],
    ['auto.offset.reset', 'first'],
    ['enable.partition.eof', 'on'],
  ])('the property %s with the value %j is refused with its name', (name, value) => {
    const properties = { 'bootstrap.servers': '127.0.0.1:1', 'security.protocol': 'ssl', [name]: value };
    expect(() => loadAddon().brokerDirectOpen(pairs(properties))).toThrow(
      `the value of ${name} is not one that librdkafka has`,
    );
  });
});

describe('the certificate of the client', () => {
  const own = certificate({ subject: [['CN', 'reader']], issuer: authority });
  const demanding = { requestCert: true, rejectUnauthorized: true, ca: authority.cert };
  const encrypted = own.privateKey.export({
    type: 'pkcs8',
    format: 'pem',
    cipher: 'aes-256-cbc',
    passphrase: 'p-zq',
  });

  it.each([
    ['texts', { 'ssl.certificate.pem': own.cert, 'ssl.key.pem': own.key }],
    [
      'a text under a password',
      { 'ssl.certificate.pem': own.cert, 'ssl.key.pem': String(encrypted), 'ssl.key.password': 'p-zq' },
    ],
  ])('a client shows the certificate that it has as %s', async (_, identity) => {
    const broker = await startBroker(issued(), demanding);
    expect(await failureOf(broker, { ...trusted, ...identity })).toBe(null);
    expect(broker.peers).toEqual(['reader']);
  });

  it('a client shows the certificate of its files', async () => {
    const broker = await startBroker(issued(), demanding);
    const identity = {
      'ssl.certificate.location': file('reader.pem', own.cert),
      'ssl.key.location': file('reader.key', String(encrypted)),
      'ssl.key.password': 'p-zq',
    };
    expect(await failureOf(broker, { ...trusted, ...identity })).toBe(null);
    expect(broker.peers).toEqual(['reader']);
  });

  it('a key under another password is refused without the password in the text', () => {
    const properties = {
      ...{ 'bootstrap.servers': '127.0.0.1:1', 'security.protocol': 'ssl' },
      ...{
        'ssl.certificate.pem': own.cert,
        'ssl.key.pem': String(encrypted),
        'ssl.key.password': 'wrong-zq',
      },
    };
    const open = (): unknown => loadAddon().brokerDirectOpen(pairs(properties));
    expect(open).toThrow('ssl.key.pem cannot be used');
    expect(open).not.toThrow('wrong-zq');
  });
});
