/** Secret values of a broker's properties in messages of librdkafka. */
import { expect, it } from 'vitest';
import { unreachable } from '../../../../src/io/kafka/errors.ts';

const messageFor = (password: string): string =>
  unreachable(
    { brokers: 'b:9092', properties: { 'sasl.username': 'u', 'sasl.password': password } },
    `Broker transport failure of ${password}`,
  ).message;

it('a message of librdkafka hides a password', () => {
  expect(messageFor('a,b c')).toBe('no broker answers at b:9092: Broker transport failure of ***');
});

it('a value of one or two characters does not cut up the words of a message', () => {
  expect(messageFor('ab')).toBe('no broker answers at b:9092: Broker transport failure of ab');
});
