/** Clients of both drivers before a broker that asks for a password. */
import { afterEach, describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BrokerDriver, BrokerOptions } from '../../src/io/kafka/port.ts';
import { until } from '../wait.ts';
import { type AuthenticatingBroker, startAuthenticatingBroker } from './authenticating-broker.ts';

const PASSWORD = 'wrong-zq-password';
/** A wait for this time would fail the test. */
const HOUR_MS = 3_600_000;

let broker: AuthenticatingBroker | undefined;
afterEach(() => broker?.close());

const options = (): BrokerOptions => ({
  brokers: (broker as AuthenticatingBroker).address,
  clientId: 'test',
  connectTimeoutMs: HOUR_MS,
  properties: {
    'security.protocol': 'sasl_plaintext',
    'sasl.mechanisms': 'PLAIN',
    'sasl.username': 'client',
    'sasl.password': PASSWORD,
    'reconnect.backoff.ms': 10,
  },
});

type Opens = (driver: BrokerDriver) => Promise<{ close(): Promise<void> }>;
const CLIENTS: ReadonlyArray<readonly [string, Opens]> = [
  ['a consumer', (driver) => driver.consumer(options())],
  ['a producer', (driver) => driver.producer(options())],
  ['a transactional producer', (driver) => driver.transactional({ ...options(), transactionalId: 't' })],
  ['an admin client', (driver) => driver.admin(options())],
];

describe.each([librdkafkaDriver, nodeRdkafkaDriver])('$name', (driver) => {
  it.each(CLIENTS)('a wrong password ends the connect of %s long before its timeout', async (_, open) => {
    broker = await startAuthenticatingBroker(() => 'refuse');
    const error = findMillraceError(
      await open(driver).then(
        () => undefined,
        (thrown: unknown) => thrown,
      ),
    );
    expect(error).toMatchObject({
      code: 'broker_unauthenticated',
      row: { exit: 2 },
      next: 'check sasl.username, sasl.password and sasl.mechanism',
    });
    expect(error?.message).toContain(`the broker does not accept the credentials at ${broker.address}`);
    expect(error?.message).toContain('Invalid username or password');
    expect(error?.message).not.toContain(PASSWORD);
  });

  it('the error of a client that speaks TLS to a listener without names the protocol', async () => {
    broker = await startAuthenticatingBroker(() => 'accept');
    const properties = { 'security.protocol': 'ssl' };
    // On a stalled machine the client may not have spoken to the broker when its time is over.
    let connectTimeoutMs = 500;
    const error = await until('an error that names the protocol', async () => {
      connectTimeoutMs *= 2;
      const thrown = await driver.producer({ ...options(), properties, connectTimeoutMs }).then(
        () => undefined,
        (reason: unknown) => findMillraceError(reason),
      );
      return thrown?.next?.includes('security.protocol') === true ? thrown : undefined;
    });
    expect(error).toMatchObject({ code: 'unreachable' });
  });

  it('a broker that breaks off the authentication is asked again until it decides', async () => {
    broker = await startAuthenticatingBroker((count) => (count < 3 ? 'drop' : 'accept'));
    const client = await driver.producer(options());
    expect(broker.checked()).toBeGreaterThan(3);
    await client.close();
  });
});
