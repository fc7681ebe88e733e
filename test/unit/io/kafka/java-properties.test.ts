/** Properties of the Java client for those of librdkafka. */
import { expect, it } from 'vitest';
import { javaProperties } from '../../../../src/io/kafka/config/java.ts';

const textOf = (path: string): string => `text of ${path}`;

it('a client without properties reads committed records, as librdkafka does by default', () => {
  expect(javaProperties({}, { textOf })).toEqual({ 'isolation.level': 'read_committed' });
});

it('SCRAM over TLS has a login module of the package, and certificates as texts', () => {
  const made = javaProperties(
    {
      'security.protocol': 'sasl_ssl',
      'sasl.mechanisms': 'SCRAM-SHA-512',
      'sasl.username': 'me',
      'sasl.password': 'a"b\\c',
      'ssl.ca.location': '/ca.pem',
      'ssl.endpoint.identification.algorithm': 'none',
      'socket.timeout.ms': '5000',
    },
    { textOf, packagePrefix: 'shaded.' },
  );
  expect(made).toEqual({
    'isolation.level': 'read_committed',
    'security.protocol': 'SASL_SSL',
    'sasl.mechanism': 'SCRAM-SHA-512',
    'sasl.jaas.config':
      'shaded.org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="a\\"b\\\\c";',
    'ssl.truststore.type': 'PEM',
    'ssl.truststore.certificates': 'text of /ca.pem',
    'ssl.endpoint.identification.algorithm': '',
  });
});

it('a certificate of the client is a key store of texts', () => {
  expect(
    javaProperties(
      {
        'security.protocol': 'ssl',
        'ssl.certificate.pem': 'chain',
        'ssl.key.location': '/key',
        'ssl.key.password': 'p',
      },
      { textOf },
    ),
  ).toMatchObject({
    'security.protocol': 'SSL',
    'ssl.keystore.type': 'PEM',
    'ssl.keystore.certificate.chain': 'chain',
    'ssl.keystore.key': 'text of /key',
    'ssl.key.password': 'p',
  });
});

it.each(['ssl.keystore.location', 'sasl.oauthbearer.config', 'enable.ssl.certificate.verification'])(
  'the property %s has no equal, and is named',
  (name) => {
    expect(() => javaProperties({ [name]: 'x' }, { textOf })).toThrow(
      new RegExp(`property ${name} of the Kafka client`),
    );
  },
);
