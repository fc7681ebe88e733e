import { librdkafkaDriver } from '../../src/io/broker/librdkafka.ts';
import { brokerContract } from '../contract/broker.contract.ts';
import { sharedStack } from './stack.ts';

const stack = await sharedStack();
brokerContract({
  driver: librdkafkaDriver,
  brokers: () => stack.brokers,
  anyHeaders: true,
  timestampTypes: true,
});
