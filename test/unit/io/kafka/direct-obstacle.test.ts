import { describe, expect, it } from 'vitest';
import { ACCEPTED } from '../../../../src/io/kafka/config/names.ts';
import { directObstacle } from '../../../../src/io/kafka/direct/obstacle.ts';
import { consumerProperties } from '../../../../src/io/kafka/properties.ts';

describe('obstacles of the direct client', () => {
  it('the properties of a consumer and of the engine are no obstacle', () => {
    const options = { brokers: 'localhost:9092', clientId: 'test' };
    const engine = { 'topic.metadata.refresh.interval.ms': 30_000, 'fetch.max.bytes': 1_048_576 };
    expect(directObstacle(consumerProperties({ ...options, properties: engine }))).toBeUndefined();
  });

  it.each(['PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512'])('the mechanism %s over TLS is no obstacle', (name) => {
    const tls = { 'security.protocol': 'sasl_ssl', 'ssl.ca.location': '/ca.pem', 'ssl.key.password': 'x' };
    expect(
      directObstacle({ ...tls, 'sasl.mechanism': name, 'sasl.username': 'u', 'sasl.password': 'p' }),
    ).toBeUndefined();
  });

  it.each([
    [
      { 'security.protocol': 'sasl_ssl', 'sasl.mechanisms': 'OAUTHBEARER' },
      'it has no SASL mechanism OAUTHBEARER',
    ],
    [{ 'security.protocol': 'SASL_PLAINTEXT' }, 'it has no SASL mechanism GSSAPI'],
    [{ 'client.rack': 'a' }, 'it does not know client.rack'],
    [
      { 'ssl.engine.location': '/secret', 'ssl.crl.location': '/b' },
      'it does not know ssl.engine.location, ssl.crl.location',
    ],
  ])('the properties %j are named without their values', (properties, why) => {
    expect(directObstacle(properties)).toBe(why);
  });

  it('each property that a user may set is obeyed, changes nothing, or is a known obstacle', () => {
    const oauthOrKerberos = /^sasl\.(kerberos|oauthbearer)\./;
    const obstacles = [...ACCEPTED].filter(
      (name) => !oauthOrKerberos.test(name) && directObstacle({ [name]: 'x' }) !== undefined,
    );
    expect(obstacles).toEqual([
      'allow.auto.create.topics',
      'broker.address.family',
      'broker.address.ttl',
      'client.dns.lookup',
      'client.rack',
      'enable.sasl.oauthbearer.unsecure.jwt',
      'https.ca.location',
      'https.ca.pem',
      'metadata.recovery.rebootstrap.trigger.ms',
      'metadata.recovery.strategy',
      'ssl.ca.certificate.stores',
      'ssl.cipher.suites',
      'ssl.crl.location',
      'ssl.curves.list',
      'ssl.sigalgs.list',
    ]);
  });

  it('a PKCS#12 keystore is no obstacle', () => {
    const keystore = { 'ssl.keystore.location': '/client.p12', 'ssl.keystore.password': 'x' };
    expect(directObstacle({ 'security.protocol': 'ssl', ...keystore })).toBeUndefined();
  });

  it('a mechanism has no meaning without SASL', () => {
    expect(directObstacle({ 'security.protocol': 'ssl', 'sasl.mechanisms': 'GSSAPI' })).toBeUndefined();
  });
});
