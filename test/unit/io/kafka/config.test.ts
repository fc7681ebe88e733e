/** Client properties of librdkafka and of the Java client: reading, translation, refusals. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import { MillraceError } from '../../../../src/core/errors.ts';
import { readBrokerConfig, readClientFile } from '../../../../src/io/kafka/config/client.ts';
import { parseClientFile } from '../../../../src/io/kafka/config/file.ts';
import { translateJaas } from '../../../../src/io/kafka/config/jaas.ts';
import { ACCEPTED, REFUSED, RENAMED } from '../../../../src/io/kafka/config/names.ts';
import { translate } from '../../../../src/io/kafka/config/translate.ts';
import { configured } from '../../../../src/io/kafka/configured.ts';
import type { BrokerDriver, BrokerOptions } from '../../../../src/io/kafka/port.ts';

const dir = mkdtempSync(join(tmpdir(), 'client-config-'));
afterAll(() => rmSync(dir, { recursive: true }));

let files = 0;
function fileOf(text: string): string {
  const path = join(dir, `${files++}.properties`);
  writeFileSync(path, text);
  return path;
}
const read = (text: string) => readClientFile(fileOf(text));

function errorOf(work: () => unknown): MillraceError {
  try {
    work();
  } catch (thrown) {
    if (thrown instanceof MillraceError) return thrown;
    throw thrown;
  }
  throw new Error('nothing was thrown');
}

describe('a file of client properties', () => {
  test('properties of librdkafka are read as they stand, backslashes included', () => {
    const { brokers, properties } = read(
      '# cluster\nbootstrap.servers=a:9093, b:9093\nsecurity.protocol=SASL_SSL\r\nsasl.mechanisms=SCRAM-SHA-512\nsasl.username=app\nsasl.password=a\\b=c#d \n\nssl.ca.location=/etc/ca.pem\n',
    );
    expect(brokers).toBe('a:9093,b:9093');
    expect(properties).toEqual({
      'security.protocol': 'sasl_ssl',
      'sasl.mechanisms': 'SCRAM-SHA-512',
      'sasl.username': 'app',
      'sasl.password': 'a\\b=c#d',
      'ssl.ca.location': '/etc/ca.pem',
    });
  });

  test('properties of the Java client get the names and values of librdkafka', () => {
    const { brokers, properties, ignored } = read(`bootstrap.servers=kafka:9093
security.protocol : SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="app" \\
    password="p\\\\"q\\u0041,=;r";
ssl.truststore.type=PEM
ssl.truststore.location=/etc/ca.pem
ssl.keystore.type=PKCS12
ssl.keystore.location=/etc/app.p12
ssl.keystore.password=changeit
ssl.endpoint.identification.algorithm=
fetch.max.wait.ms=100
key.deserializer=org.apache.kafka.common.serialization.ByteArrayDeserializer
`);
    expect(brokers).toBe('kafka:9093');
    expect(properties).toEqual({
      'security.protocol': 'sasl_ssl',
      'sasl.mechanisms': 'SCRAM-SHA-512',
      'sasl.username': 'app',
      'sasl.password': 'p"qA,=;r',
      'ssl.ca.location': '/etc/ca.pem',
      'ssl.keystore.location': '/etc/app.p12',
      'ssl.keystore.password': 'changeit',
      'ssl.endpoint.identification.algorithm': 'none',
      'fetch.wait.max.ms': '100',
    });
    expect(ignored).toEqual(['key.deserializer']);
  });

  test('PEM stores of the Java client become certificate, key and authorities', () => {
    const pem = '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----';
    expect(
      read(
        `ssl.keystore.type=PEM\nssl.keystore.location=/k.pem\nssl.key.password=x\nssl.truststore.certificates=${pem.replaceAll('\n', '\\n')}`,
      ).properties,
    ).toEqual({
      'ssl.certificate.location': '/k.pem',
      'ssl.key.location': '/k.pem',
      'ssl.key.password': 'x',
      'ssl.ca.pem': pem,
    });
  });

  test('every unusable line is named in one error, with the remedy and without a value', () => {
    const secret = 'hunter2-zq';
    const { code, message, row } = errorOf(() =>
      read(`ssl.truststore.location=/${secret}/trust.jks
ssl.keystore.location=/${secret}.jks
sasl.jaas.config=com.example.OtherLoginModule required password="${secret}";
sasl.passwrod=${secret}
group.id=${secret}
plugin.library.paths=/${secret}.so
security.protocol=${secret}
nonsense ${secret}!
=${secret}
`),
    );
    expect(code).toBe('bad_broker_property');
    expect(row.exit).toBe(2);
    expect(message).not.toContain(secret);
    expect(message).toContain('line 1: ssl.truststore.location is a store of Java');
    expect(message).toContain('line 2: ssl.keystore.location is a JKS store');
    expect(message).toContain('line 3: sasl.jaas.config has none of the login modules PlainLoginModule');
    expect(message).toContain(
      'line 4: sasl.passwrod is no property of librdkafka: did you mean sasl.password?',
    );
    expect(message).toContain('line 5: group.id is refused: give -group');
    expect(message).toContain('line 6: plugin.library.paths is refused: it loads or runs other code');
    expect(message).toContain('line 7: security.protocol is not plaintext, ssl');
    expect(message).toContain('line 8: nonsense is no property');
    expect(message).toContain('line 9: no name=value');
  });

  test('a missing file and a folder are errors that name the path', () => {
    expect(errorOf(() => readClientFile(join(dir, 'none')))).toMatchObject({ code: 'bad_file' });
    expect(errorOf(() => readClientFile(join(dir, 'none'))).message).toContain(
      `${join(dir, 'none')} cannot be read (ENOENT)`,
    );
    expect(errorOf(() => readClientFile(dir)).code).toBe('bad_file');
  });

  test('any text is entries or one error, and no error quotes a value', () => {
    const value = fc.stringMatching(/^zq[0-9]{4}[\\ =:;"'a-z]{0,8}$/);
    const name = fc.constantFrom(
      'sasl.jaas.config',
      'sasl.password',
      'ssl.truststore.location',
      'acks',
      'x',
      '',
    );
    fc.assert(
      fc.property(fc.array(fc.tuple(name, fc.constantFrom('=', ':', ' ', ''), value)), (rows) => {
        const text = rows.map((row) => row.join('')).join('\n');
        const placed = parseClientFile(text).map((one) => ({ ...one, place: `line ${one.line}: ` }));
        const { problems } = translate(placed, true);
        // A word without a separator is read as a name.
        for (const [one, separator, hidden] of rows)
          if (one !== '' && separator === '=') expect(problems.join()).not.toContain(hidden.slice(0, 6));
      }),
    );
  });
});

describe('sasl.jaas.config', () => {
  test('the four known login modules give the properties of librdkafka', () => {
    expect(translateJaas(`a.b.PlainLoginModule required username='u' password="p w";`)).toEqual({
      'sasl.username': 'u',
      'sasl.password': 'p w',
    });
    expect(
      translateJaas('x.OAuthBearerLoginModule required clientId="c" clientSecret="s" scope="kafka";'),
    ).toEqual({
      'sasl.oauthbearer.client.id': 'c',
      'sasl.oauthbearer.client.secret': 's',
      'sasl.oauthbearer.scope': 'kafka',
      'sasl.oauthbearer.method': 'oidc',
    });
    expect(
      translateJaas(
        'x.Krb5LoginModule required useKeyTab=true keyTab="/k" principal="a@B" serviceName=kafka;',
      ),
    ).toEqual({
      'sasl.kerberos.keytab': '/k',
      'sasl.kerberos.principal': 'a@B',
      'sasl.kerberos.service.name': 'kafka',
    });
  });

  test.each([
    ['', 'is not `module required'],
    ['x.PlainLoginModule required username="u', 'is not `module required'],
    ['x.LdapLoginModule required;', 'has none of the login modules'],
    ['x.ScramLoginModule required tokenauth="true";', 'has the option tokenauth'],
  ])('the login module text "%s" is refused', (text, why) => {
    expect(translateJaas(text)).toContain(why);
  });
});

describe('names of properties', () => {
  test('each property of the installed librdkafka is accepted or refused, and no other is accepted', () => {
    const home = dirname(createRequire(import.meta.url).resolve('node-rdkafka/package.json'));
    const page = readFileSync(join(home, 'deps', 'librdkafka', 'CONFIGURATION.md'), 'utf8');
    const rows = [...page.matchAll(/^([a-z][\w.]*) +\| +[*CP] +\|.*\*Type: ([^*]+)\*/gm)];
    const settable = rows
      .filter(([, , type]) => !/pointer|dedicated/.test(type as string))
      .map(([, name]) => name);
    expect(settable.length).toBeGreaterThan(150);
    expect([...new Set(settable)].sort()).toEqual([...ACCEPTED, ...REFUSED.keys()].sort());
    expect([...RENAMED.values()].filter((name) => !ACCEPTED.has(name))).toEqual([]);
  });
});

describe('sources of the configuration', () => {
  test('options win over the environment and the environment over the file, property by property', () => {
    const file = fileOf(
      'bootstrap.servers=file:1\nsasl.username=file\nsasl.password=file\nsasl.mechanism=PLAIN\nclient.id=file\n',
    );
    const env = {
      MILLRACE_BROKER_CONFIG: file,
      MILLRACE_BROKER_PROPERTY: 'sasl.password=env\nsasl.mechanisms=SCRAM-SHA-256',
    };
    const config = readBrokerConfig({ env, properties: { 'sasl.mechanism': 'SCRAM-SHA-512' } });
    expect(config.brokers).toBe('file:1');
    expect(config.properties).toEqual({
      'sasl.username': 'file',
      'sasl.password': 'env',
      'sasl.mechanisms': 'SCRAM-SHA-512',
      'client.id': 'file',
    });
    expect(readBrokerConfig({ env: { ...env, MILLRACE_BROKERS: 'env:1' } }).brokers).toBe('env:1');
    expect(readBrokerConfig({ env: { ...env, MILLRACE_BROKERS: 'env:1' }, brokers: 'own:1' }).brokers).toBe(
      'own:1',
    );
    expect(readBrokerConfig({}).properties).toEqual({});
  });

  test('brokers in a property are refused', () => {
    const error = errorOf(() => readBrokerConfig({ properties: { 'bootstrap.servers': 'a:1' } }));
    expect(error.message).toContain('bootstrap.servers is refused: give -brokers');
    expect(
      errorOf(() => readBrokerConfig({ env: { MILLRACE_BROKER_PROPERTY: 'hunter2' } })).toLine(),
    ).not.toContain('hunter2');
  });
});

test('every client of a configured driver has the shared properties, above its own', async () => {
  const seen: BrokerOptions[] = [];
  const open = (options: BrokerOptions): Promise<never> => {
    seen.push(options);
    return Promise.resolve({} as never);
  };
  const bare: BrokerDriver = {
    name: 'bare',
    consumer: open,
    producer: open,
    transactional: open,
    admin: open,
  };
  const driver = configured(bare, { 'security.protocol': 'ssl', 'linger.ms': 1 });
  const options = { brokers: 'a:1', clientId: 'c', properties: { 'linger.ms': 9, 'batch.size': 5 } };
  await driver.consumer(options);
  await driver.producer(options);
  await driver.transactional({ ...options, transactionalId: 't' });
  await driver.admin({ brokers: 'a:1', clientId: 'c' });
  const both = { 'security.protocol': 'ssl', 'linger.ms': 1, 'batch.size': 5 };
  expect(seen.map(({ properties }) => properties)).toEqual([
    both,
    both,
    both,
    { 'security.protocol': 'ssl', 'linger.ms': 1 },
  ]);
  expect(configured(bare, {})).toBe(bare);
});
