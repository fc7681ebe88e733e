/** Secured listeners of the embedded broker: certificates, users and the settings of clients.
 *
 *  A secured broker has three listeners. CLIENT has the protocol that was asked for. INTERNAL and
 *  CONTROLLER demand the certificate of a broker, for the brokers and for the checks of the stack.
 *  Rights follow the access control lists; the user `admin` needs none.
 *
 *  Files in the folder `security` of the stack: ca.pem, a PKCS12 store for each certificate, and
 *  NAME.properties with the client settings of each user, by the names of librdkafka.
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { ConnectionOptions } from 'node:tls';
import { promisify } from 'node:util';
import { stackError } from '../errors.ts';
import { writeWhole } from '../files.ts';

export const BROKER_SECURITIES = ['plaintext', 'ssl', 'sasl_ssl', 'sasl_plaintext'] as const;

/** Protocol of the listener for clients. */
export type BrokerSecurity = (typeof BROKER_SECURITIES)[number];

/** Secrets of a secured cluster, made when its folder is formatted. */
export interface KafkaSecurity {
  readonly protocol: Exclude<BrokerSecurity, 'plaintext'>;
  readonly storePassword: string;
  /** Passwords by user. `admin` has every right, `client` those of the access control lists. */
  readonly users: Readonly<Record<'admin' | 'client', string>>;
}

/** Mechanism of the client files. */
const MECHANISM = 'SCRAM-SHA-512';
const SCRAM_MECHANISMS = ['SCRAM-SHA-256', MECHANISM] as const;
const FOLDER = 'security';
const VALID_DAYS = '3650';
const KEYTOOL_TIMEOUT_MS = 60_000;

const run = promisify(execFile);
const secret = (): string => randomBytes(16).toString('hex');

export function newKafkaSecurity(protocol: KafkaSecurity['protocol']): KafkaSecurity {
  return { protocol, storePassword: secret(), users: { admin: secret(), client: secret() } };
}

const usesSasl = ({ protocol }: KafkaSecurity): boolean => protocol.startsWith('sasl_');
const usesTls = ({ protocol }: KafkaSecurity): boolean => protocol.endsWith('ssl');

/** keytool beside the java that runs the broker, or the one on the path. */
function keytoolOf(java: string): string {
  const beside = join(dirname(java), 'keytool');
  return java.includes('/') && existsSync(beside) ? beside : 'keytool';
}

/** Makes the authority and a certificate for the brokers, and over TLS without SASL one for each
 *  user. The key of the authority is not kept.
 *  @throws missing_tool, server_failed */
export async function makeCertificates(folder: string, java: string, security: KafkaSecurity): Promise<void> {
  const part = join(folder, `${FOLDER}.part`);
  for (const old of [part, join(folder, FOLDER)]) rmSync(old, { recursive: true, force: true });
  mkdirSync(part, { mode: 0o700 });
  const keytool = async (...args: readonly string[]): Promise<void> => {
    try {
      await run(keytoolOf(java), ['-J-Xshare:auto', '-J-XX:TieredStopAtLevel=1', ...args], {
        cwd: part,
        env: { ...process.env, STORE_PASSWORD: security.storePassword },
        timeout: KEYTOOL_TIMEOUT_MS,
      });
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code === 'ENOENT')
        throw stackError('missing_tool', 'keytool of Java is not installed; it makes the certificates', {
          next: 'install Java with its keytool (Debian: apt-get install openjdk-17-jre-headless)',
          cause,
        });
      const { stdout, message } = cause as { stdout?: string; message: string };
      throw stackError('server_failed', `keytool failed: ${(stdout || message).trim().split('\n')[0]}`, {
        next: `check the space and the rights of ${folder}`,
        cause,
      });
    }
  };
  const store = ['-keystore', 'authority.p12', '-storetype', 'PKCS12', '-storepass:env', 'STORE_PASSWORD'];
  const pair = (name: string, ...more: readonly string[]): Promise<void> => {
    const key = ['-keyalg', 'EC', '-groupname', 'secp256r1', '-validity', VALID_DAYS];
    return keytool('-genkeypair', '-alias', name, '-dname', `CN=${name}`, ...key, ...more, ...store);
  };
  await pair('ca', '-ext', 'bc:c');
  const names = usesSasl(security) ? ['broker'] : ['broker', ...Object.keys(security.users)];
  for (const name of names) {
    await pair(name, '-signer', 'ca', '-ext', 'san=ip:127.0.0.1,dns:localhost');
    const target = ['-destkeystore', `${name}.p12`, '-deststoretype', 'PKCS12'];
    const passwords = ['-srcstorepass:env', 'STORE_PASSWORD', '-deststorepass:env', 'STORE_PASSWORD'];
    const source = ['-srckeystore', 'authority.p12', '-srcalias', name];
    await keytool('-importkeystore', ...source, ...target, ...passwords);
  }
  await keytool('-exportcert', '-rfc', '-alias', 'ca', '-file', 'ca.pem', ...store);
  rmSync(join(part, 'authority.p12'));
  renameSync(part, join(folder, FOLDER));
}

/** Arguments of the storage tool that make the users. */
export const scramArguments = (security: KafkaSecurity): string[] =>
  usesSasl(security)
    ? Object.entries(security.users).flatMap(([name, password]) =>
        SCRAM_MECHANISMS.flatMap((mechanism) => [
          '--add-scram',
          `${mechanism}=[name=${name},password=${password}]`,
        ]),
      )
    : [];

/** Settings of the mechanisms, each with the same users and passwords. */
function saslProperties({ users }: KafkaSecurity): Readonly<Record<string, string>> {
  const jaas = (mechanism: string): string =>
    `listener.name.client.${mechanism.toLowerCase()}.sasl.jaas.config`;
  const module = 'org.apache.kafka.common.security';
  const plain = Object.entries(users).map(([name, password]) => ` user_${name}="${password}"`);
  return {
    'sasl.enabled.mechanisms': [...SCRAM_MECHANISMS, 'PLAIN'].join(','),
    ...Object.fromEntries(
      SCRAM_MECHANISMS.map((one) => [jaas(one), `${module}.scram.ScramLoginModule required;`]),
    ),
    [jaas('PLAIN')]: `${module}.plain.PlainLoginModule required${plain.join('')};`,
  };
}

/** Settings of the broker, for listeners named CLIENT, INTERNAL and CONTROLLER. Paths are relative
 *  to the stack's folder. */
export function securityProperties(security: KafkaSecurity): Readonly<Record<string, string>> {
  return {
    'listener.security.protocol.map': `CLIENT:${security.protocol.toUpperCase()},INTERNAL:SSL,CONTROLLER:SSL`,
    'inter.broker.listener.name': 'INTERNAL',
    'ssl.keystore.type': 'PKCS12',
    'ssl.keystore.location': `${FOLDER}/broker.p12`,
    'ssl.keystore.password': security.storePassword,
    'ssl.key.password': security.storePassword,
    'ssl.truststore.type': 'PEM',
    'ssl.truststore.location': `${FOLDER}/ca.pem`,
    'ssl.principal.mapping.rules': 'RULE:^CN=([^,]+).*$/$1/',
    'listener.name.internal.ssl.client.auth': 'required',
    'listener.name.controller.ssl.client.auth': 'required',
    ...(usesSasl(security)
      ? saslProperties(security)
      : { 'listener.name.client.ssl.client.auth': 'required' }),
    'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
    'super.users': 'User:broker;User:admin',
  };
}

/** Files with the client settings of each user. */
export interface ClientFiles {
  readonly admin: string;
  readonly client: string;
}

export const clientFiles = (folder: string): ClientFiles => ({
  admin: join(folder, FOLDER, 'admin.properties'),
  client: join(folder, FOLDER, 'client.properties'),
});

/** Writes the client settings of each user, with the addresses of this start. */
export function writeClientFiles(folder: string, security: KafkaSecurity, brokers: string): void {
  for (const [user, password] of Object.entries(security.users)) {
    const settings: Record<string, string> = {
      'bootstrap.servers': brokers,
      'security.protocol': security.protocol,
    };
    if (usesTls(security)) settings['ssl.ca.location'] = join(folder, FOLDER, 'ca.pem');
    if (usesSasl(security)) {
      settings['sasl.mechanism'] = MECHANISM;
      settings['sasl.username'] = user;
      settings['sasl.password'] = password;
    } else {
      settings['ssl.keystore.location'] = join(folder, FOLDER, `${user}.p12`);
      settings['ssl.keystore.password'] = security.storePassword;
    }
    const lines = Object.entries(settings).map(([name, value]) => `${name}=${value}\n`);
    writeWhole(clientFiles(folder)[user as keyof ClientFiles], lines.join(''), 0o600);
  }
}

/** TLS options of a connection to INTERNAL, with the rights of a broker. */
export function internalTls(folder: string, security: KafkaSecurity): ConnectionOptions {
  return {
    ca: readFileSync(join(folder, FOLDER, 'ca.pem')),
    pfx: readFileSync(join(folder, FOLDER, 'broker.p12')),
    passphrase: security.storePassword,
  };
}
