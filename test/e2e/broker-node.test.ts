import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { brokerContract } from '../contract/broker.contract.ts';
import { SilentLeader } from '../contract/broker-leader.ts';
import { transactionContract } from '../contract/broker-transactions.contract.ts';
import type { BrokerSubject } from '../contract/broker-world.ts';
import { sharedStack } from '../fixtures/stack.ts';

const stack = await sharedStack();
const subject: BrokerSubject = {
  driver: nodeRdkafkaDriver,
  brokers: () => stack.brokers,
  anyHeaders: false,
  timestampTypes: false,
  slowMember: (...of) => new SilentLeader(stack.brokers, ...of),
};
brokerContract(subject);
transactionContract(subject);
