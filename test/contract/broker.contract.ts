/** Contract of every broker driver, run against a real broker by test/e2e/broker-*.test.ts. */

import { consumerContract } from './broker-consumer.contract.ts';
import { groupContract } from './broker-group.contract.ts';
import { producerContract } from './broker-producer.contract.ts';
import { recordContract } from './broker-records.contract.ts';
import type { BrokerSubject } from './broker-world.ts';

export function brokerContract(subject: BrokerSubject): void {
  recordContract(subject);
  producerContract(subject);
  consumerContract(subject);
  groupContract(subject);
}
