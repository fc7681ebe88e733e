/** One connection to a broker over its own protocol, for requests that the client library does not
 *  have: plaintext or TLS, and SASL with PLAIN or SCRAM.
 *
 *  SaslHandshake, version 1: key i16 = 17 | mechanism str -> error i16 | mechanisms i32 x str
 *  SaslAuthenticate, version 0: key i16 = 36 | auth bytes -> error i16 | message nullable str |
 *  auth bytes (Source: Kafka protocol guide)
 */
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { int32, requestFrame, shortText } from './frame.ts';
import type { BrokerOptions, BrokerProperties } from './port.ts';
import { scramClient } from './scram.ts';

const RESPONSE_BYTES_MAX = 1 << 20;
const SASL_HANDSHAKE = 17;
const SASL_AUTHENTICATE = 36;
const request = (key: number, version: number, body: Buffer): Buffer =>
  requestFrame({ key, version, clientId: 'millrace' }, body);

/** TLS options by the properties of librdkafka; undefined: they have a form that Node does not
 *  read. @throws the errors of the file system */
function tlsOptions(properties: BrokerProperties, host: string): ConnectionOptions | undefined {
  const text = (name: string): string | undefined =>
    properties[name] === undefined ? undefined : String(properties[name]);
  const file = (name: string): Buffer | undefined => {
    const path = text(name);
    return path === undefined || path === '' ? undefined : readFileSync(path);
  };
  if (text('ssl.ca.certificate.stores') !== undefined) return undefined;
  const checksName = text('ssl.endpoint.identification.algorithm') !== 'none';
  const store = file('ssl.keystore.location');
  const password = store === undefined ? text('ssl.key.password') : text('ssl.keystore.password');
  const given: Readonly<Record<string, unknown>> = {
    ca: file('ssl.ca.location') ?? text('ssl.ca.pem'),
    cert: file('ssl.certificate.location') ?? text('ssl.certificate.pem'),
    key: file('ssl.key.location') ?? text('ssl.key.pem'),
    pfx: store,
    passphrase: password,
    servername: /^[\d.]+$|:/.test(host) ? undefined : host,
    checkServerIdentity: checksName ? undefined : () => undefined,
  };
  const present = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  const verifies = String(properties['enable.ssl.certificate.verification'] ?? true) !== 'false';
  return { ...present, rejectUnauthorized: verifies };
}

/** Connection that answers one request after the other. */
class Connection {
  private readonly socket: Socket;
  private received = Buffer.alloc(0);
  private settle: ((body: Buffer | undefined) => void) | undefined;
  private failed = false;
  private readonly timer: NodeJS.Timeout;

  constructor(socket: Socket, timeoutMs: number) {
    this.socket = socket;
    this.timer = setTimeout(() => this.fail(), timeoutMs);
    socket.on('error', () => this.fail());
    socket.on('close', () => this.fail());
    socket.on('data', (chunk: Buffer) => {
      this.received = Buffer.concat([this.received, chunk]);
      const size = this.received.length < 4 ? 0 : this.received.readInt32BE(0);
      if (size < 0 || size > RESPONSE_BYTES_MAX) this.fail();
      else if (this.received.length >= 4 + size && size > 0) {
        const body = this.received.subarray(4, 4 + size);
        this.received = this.received.subarray(4 + size);
        this.answer(body);
      }
    });
  }

  /** Resolves with the response after its size field; undefined: there is none. */
  ask(bytes: Buffer): Promise<Buffer | undefined> {
    if (this.failed) return Promise.resolve(undefined);
    return new Promise((resolve) => {
      this.settle = resolve;
      this.socket.write(bytes);
    });
  }

  close(): void {
    clearTimeout(this.timer);
    this.socket.destroy();
  }

  private answer(body: Buffer | undefined): void {
    const { settle } = this;
    this.settle = undefined;
    settle?.(body);
  }

  private fail(): void {
    this.failed = true;
    this.answer(undefined);
  }
}

/** Exchanges one message of the SASL conversation; undefined: the broker refused it. */
async function exchange(connection: Connection, message: Buffer): Promise<Buffer | undefined> {
  const body = Buffer.concat([int32(message.length), message]);
  const answer = await connection.ask(request(SASL_AUTHENTICATE, 0, body));
  if (answer === undefined || answer.length < 12 || answer.readInt16BE(4) !== 0) return undefined;
  const at = 8 + Math.max(0, answer.readInt16BE(6));
  if (at + 4 > answer.length) return undefined;
  const size = answer.readInt32BE(at);
  return size < 0 || at + 4 + size > answer.length ? undefined : answer.subarray(at + 4, at + 4 + size);
}

/** True when the broker accepted the credentials. */
async function authenticate(connection: Connection, properties: BrokerProperties): Promise<boolean> {
  const mechanism = String(properties['sasl.mechanisms'] ?? properties['sasl.mechanism'] ?? '').toUpperCase();
  const scram = /^SCRAM-SHA-(256|512)$/.exec(mechanism);
  if (scram === null && mechanism !== 'PLAIN') return false;
  const handshake = await connection.ask(request(SASL_HANDSHAKE, 1, shortText(mechanism)));
  if (handshake === undefined || handshake.length < 6 || handshake.readInt16BE(4) !== 0) return false;
  const user = String(properties['sasl.username'] ?? '');
  const password = String(properties['sasl.password'] ?? '');
  if (scram === null)
    return (await exchange(connection, Buffer.from(`\0${user}\0${password}`))) !== undefined;
  const client = scramClient(scram[1] === '256' ? 'sha256' : 'sha512', user, password);
  const first = await exchange(connection, client.first);
  const final = first === undefined ? undefined : client.final(first);
  const last = final === undefined ? undefined : await exchange(connection, final);
  return last !== undefined && client.isGenuine(last);
}

/** Sends one request to one broker.
 *  @param properties security properties of librdkafka
 *  @returns the response after its size field; undefined: none, or a mechanism other than PLAIN and
 *    SCRAM */
export async function askOnce(
  { host, port }: { readonly host: string; readonly port: number },
  properties: BrokerProperties,
  bytes: Buffer,
  timeoutMs: number,
): Promise<Buffer | undefined> {
  const protocol = String(properties['security.protocol'] ?? 'plaintext').toLowerCase();
  let tls: ConnectionOptions | undefined;
  try {
    tls = protocol.endsWith('ssl') ? tlsOptions(properties, host) : undefined;
    if (protocol.endsWith('ssl') && tls === undefined) return undefined;
  } catch {
    return undefined;
  }
  let socket: Socket;
  try {
    socket = tls === undefined ? connect({ host, port }) : connectTls({ host, port, ...tls });
  } catch {
    // A certificate or key that Node cannot read.
    return undefined;
  }
  const connection = new Connection(socket, timeoutMs);
  try {
    if (protocol.startsWith('sasl_') && !(await authenticate(connection, properties))) return undefined;
    return await connection.ask(bytes);
  } finally {
    connection.close();
  }
}

/** Sends one request to the brokers of the list, in order, until one gives a readable answer.
 *  @param decode decoder of the response after its size field; undefined: it is malformed
 *  @returns undefined when no broker can be reached or gives a readable answer
 */
export async function askBrokers<T>(
  { brokers, properties = {} }: Pick<BrokerOptions, 'brokers' | 'properties'>,
  bytes: Buffer,
  timeoutMs: number,
  decode: (body: Buffer) => T | undefined,
): Promise<T | undefined> {
  for (const address of brokers.split(',')) {
    const parts = /^(?:[a-z_]+:\/\/)?\[?([^\]]+?)\]?:(\d{1,5})$/i.exec(address.trim());
    if (parts === null) continue;
    const at = { host: parts[1] as string, port: Number(parts[2]) };
    const answer = await askOnce(at, properties, bytes, timeoutMs);
    const found = answer === undefined ? undefined : decode(answer);
    if (found !== undefined) return found;
  }
  return undefined;
}
