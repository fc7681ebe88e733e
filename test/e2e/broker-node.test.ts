import { nodeRdkafkaDriver } from '../../src/io/broker/node-rdkafka.ts';
import { brokerContract } from '../contract/broker.contract.ts';
import { sharedStack } from './stack.ts';

const stack = await sharedStack();
brokerContract({
  driver: nodeRdkafkaDriver,
  brokers: () => stack.brokers,
  anyHeaders: false,
  timestampTypes: false,
});
