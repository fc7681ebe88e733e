import { librdkafkaDriver } from '../../src/io/broker/librdkafka.ts';
import { brokerContract } from '../contract/broker.contract.ts';
import { SilentLeader } from '../contract/broker-leader.ts';
import { transactionContract } from '../contract/broker-transactions.contract.ts';
import type { BrokerSubject } from '../contract/broker-world.ts';
import { sharedStack } from './stack.ts';

const stack = await sharedStack();
const subject: BrokerSubject = {
  driver: librdkafkaDriver,
  brokers: () => stack.brokers,
  anyHeaders: true,
  timestampTypes: true,
  slowMember: (...of) => new SilentLeader(stack.brokers, ...of),
};
brokerContract(subject);
transactionContract(subject);
