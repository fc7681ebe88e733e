/** Broker clients of `millrace consumer`. */
import type { BatchProducer, BrokerDriver, BrokerOptions } from '../../io/kafka/port.ts';
import { connectOptions } from '../registry-clients/shared.ts';
import type { ConsumerContext } from './settings.ts';

/** Largest record that librdkafka may send. The limit of the topic decides. */
const PRODUCER_RECORD_BYTES_MAX = 1_000_000_000;

/** Broker options of the clients of a run. */
export const brokerBase = (context: Pick<ConsumerContext, 'settings'>): BrokerOptions => ({
  brokers: context.settings.brokers,
  clientId: 'millrace-consumer',
  ...connectOptions(context),
});

/** Producer for decoded and quarantined records. */
export function outputProducer(driver: BrokerDriver, base: BrokerOptions): Promise<BatchProducer> {
  return driver.producer({
    ...base,
    clientId: 'millrace-consumer-out',
    acks: -1,
    idempotence: true,
    properties: {
      ...base.properties,
      'message.max.bytes': PRODUCER_RECORD_BYTES_MAX,
      // Each batch is produced as a whole and awaited before the next one.
      'linger.ms': 1,
    },
  });
}
