/** Generates X.509 certificates without a tool. It encodes only the DER that these need. Source:
 *  RFC 5280. */
import { generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto';

const DAY_MS = 86_400_000;

function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(parts);
  const size = content.length;
  const length = size < 0x80 ? [size] : size < 0x100 ? [0x81, size] : [0x82, size >> 8, size & 0xff];
  return Buffer.concat([Buffer.of(tag, ...length), content]);
}

const sequence = (...parts: readonly Uint8Array[]): Buffer => der(0x30, ...parts);
const integer = (bytes: Uint8Array): Buffer => der(0x02, bytes);

function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number);
  const bytes = [first * 40 + second];
  for (const part of rest) {
    const septets = [part & 0x7f];
    for (let left = part >> 7; left > 0; left >>= 7) septets.unshift((left & 0x7f) | 0x80);
    bytes.push(...septets);
  }
  return der(0x06, Buffer.from(bytes));
}

const ATTRIBUTES: Readonly<Record<string, string>> = { CN: '2.5.4.3', O: '2.5.4.10', OU: '2.5.4.11' };
const ECDSA_SHA256 = sequence(oid('1.2.840.10045.4.3.2'));

export type Subject = ReadonlyArray<readonly ['CN' | 'O' | 'OU', string]>;

const nameOf = (subject: Subject): Buffer =>
  sequence(
    ...subject.map(([attribute, value]) =>
      der(0x31, sequence(oid(ATTRIBUTES[attribute] as string), der(0x0c, Buffer.from(value, 'utf8')))),
    ),
  );

const time = (ms: number): Buffer =>
  der(0x17, Buffer.from(`${new Date(ms).toISOString().replace(/[-:T]/g, '').slice(2, 14)}Z`, 'ascii'));

const extension = (id: string, critical: boolean, value: Uint8Array): Buffer =>
  sequence(oid(id), ...(critical ? [der(0x01, Buffer.of(0xff))] : []), der(0x04, value));

export interface Issued {
  readonly subject: Subject;
  readonly privateKey: KeyObject;
  /** Certificate in PEM. */
  readonly cert: string;
  readonly key: string;
}

export interface CertificateOptions {
  readonly subject: Subject;
  /** Issuer; absent for a self-signed certificate. */
  readonly issuer?: Issued;
  readonly authority?: boolean;
  readonly dnsNames?: readonly string[];
  readonly uris?: readonly string[];
  readonly ips?: readonly string[];
  /** Validity from now; default one day. */
  readonly endsMs?: number;
}

export function certificate(options: CertificateOptions): Issued {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const names = [
    ...(options.dnsNames ?? []).map((name) => der(0x82, Buffer.from(name, 'ascii'))),
    ...(options.uris ?? []).map((name) => der(0x86, Buffer.from(name, 'ascii'))),
    ...(options.ips ?? []).map((ip) => der(0x87, Buffer.from(ip.split('.').map(Number)))),
  ];
  const extensions = [
    ...(options.authority === true
      ? [extension('2.5.29.19', true, sequence(der(0x01, Buffer.of(0xff))))]
      : []),
    ...(names.length > 0 ? [extension('2.5.29.17', false, sequence(...names))] : []),
  ];
  const now = Date.now();
  const body = sequence(
    der(0xa0, integer(Buffer.of(2))),
    integer(Buffer.concat([Buffer.of(1), randomBytes(8)])),
    ECDSA_SHA256,
    nameOf(options.issuer?.subject ?? options.subject),
    sequence(time(now - 2 * DAY_MS), time(now + (options.endsMs ?? DAY_MS))),
    nameOf(options.subject),
    publicKey.export({ type: 'spki', format: 'der' }),
    ...(extensions.length > 0 ? [der(0xa3, sequence(...extensions))] : []),
  );
  const signature = sign('sha256', body, options.issuer?.privateKey ?? privateKey);
  const whole = sequence(body, ECDSA_SHA256, der(0x03, Buffer.of(0), signature));
  const base64 = whole.toString('base64').replace(/.{64}(?=.)/g, '$&\n');
  return {
    subject: options.subject,
    privateKey,
    cert: `-----BEGIN CERTIFICATE-----\n${base64}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  };
}
