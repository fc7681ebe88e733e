/** Properties of the Java client for those of librdkafka, for programs on the JVM that read the
 *  same cluster. Certificates and keys are given as texts, because the other program runs
 *  elsewhere. */
import { coreError } from '../../../core/errors.ts';
import type { Properties } from '../../../core/settings.ts';
import { SHOWN_PROPERTIES } from '../properties.ts';

export interface JavaOptions {
  /** Reads a file that a property names. @throws bad_file */
  readonly textOf: (path: string) => string;
  /** Package in which the classes of the Java client are, with a dot behind it. */
  readonly packagePrefix?: string;
}

/** Properties with the same name and value in both clients. */
const SAME: readonly string[] = ['client.rack', 'isolation.level'];
/** Properties that are a part of another. */
const PARTS: readonly string[] = [
  'sasl.username',
  'sasl.password',
  'ssl.ca.location',
  'ssl.ca.pem',
  'ssl.certificate.location',
  'ssl.certificate.pem',
  'ssl.key.location',
  'ssl.key.pem',
  'ssl.key.password',
];

/** Properties that decide which servers are trusted, in other forms than those of the Java client.
 */
const NO_EQUAL: readonly string[] = [
  'enable.ssl.certificate.verification',
  'ssl.crl.location',
  'ssl.keystore.location',
];

const quoted = (text: string): string => `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;

/** @throws bad_broker_property for a property that decides how the cluster is reached and has no
 *  equal; bad_file */
export function javaProperties(
  properties: Properties,
  { textOf, packagePrefix = '' }: JavaOptions,
): Readonly<Record<string, string>> {
  const made: Record<string, string> = { 'isolation.level': 'read_committed' };
  const text = (name: string): string | undefined => {
    const path = properties[`${name}.location`];
    return path === undefined ? properties[`${name}.pem`] : textOf(path);
  };
  for (const [name, value] of Object.entries(properties)) {
    if (SAME.includes(name)) made[name] = value;
    else if (name === 'security.protocol') made[name] = value.toUpperCase();
    else if (name === 'sasl.mechanism' || name === 'sasl.mechanisms') made['sasl.mechanism'] = value;
    else if (name === 'ssl.endpoint.identification.algorithm') made[name] = value === 'none' ? '' : value;
    else if (!PARTS.includes(name) && (!SHOWN_PROPERTIES.has(name) || NO_EQUAL.includes(name)))
      throw coreError(
        'bad_value',
        `the property ${name} of the Kafka client has no equal in the Java client`,
        {
          next: 'give security.protocol, sasl.mechanism, sasl.username, sasl.password, and certificates in PEM',
          details: { setting: 'broker-property' },
        },
      );
  }
  const user = properties['sasl.username'];
  if (user !== undefined) {
    const mechanism = made['sasl.mechanism'] ?? '';
    const module = mechanism.startsWith('SCRAM-') ? 'scram.ScramLoginModule' : 'plain.PlainLoginModule';
    made['sasl.jaas.config'] =
      `${packagePrefix}org.apache.kafka.common.security.${module} required username=${quoted(user)} password=${quoted(properties['sasl.password'] ?? '')};`;
  }
  const authorities = text('ssl.ca');
  if (authorities !== undefined) {
    made['ssl.truststore.type'] = 'PEM';
    made['ssl.truststore.certificates'] = authorities;
  }
  const chain = text('ssl.certificate');
  if (chain !== undefined) {
    made['ssl.keystore.type'] = 'PEM';
    made['ssl.keystore.certificate.chain'] = chain;
    made['ssl.keystore.key'] = text('ssl.key') ?? '';
    const password = properties['ssl.key.password'];
    if (password !== undefined) made['ssl.key.password'] = password;
  }
  return made;
}
