/** Instances of one thread of `millrace producer`. */
import type { BrokerOptions } from '../../io/kafka/port.ts';
import { FramedProducer, type ProducerMetrics } from '../../registry/producer/instance.ts';
import type { WriterCodec } from '../../serde/codec.ts';
import { brokerDriver, kernels as chooseKernels } from '../../shell/drivers.ts';
import { connectOptions } from '../registry-clients/shared.ts';
import type { ProducerContext } from './settings.ts';

/** Header that names the producer of a record. */
const PRODUCER_HEADER = 'producer';

/** Context of a command, or of one of its threads. */
export type SenderContext = Pick<
  ProducerContext,
  'settings' | 'log' | 'metrics' | 'clock' | 'drain' | 'onClose'
>;

/** Parts that the instances of a thread share. */
export interface Senders {
  readonly topic: string;
  readonly metrics: ProducerMetrics;
  readonly codec: WriterCodec;
  readonly schemaId: () => Promise<number>;
  readonly keyOf: (value: unknown) => string | Uint8Array | null;
  readonly preparedMs?: (value: unknown) => number;
}

/** Broker options of the clients of a run. */
export const producerBase = (context: Pick<SenderContext, 'settings'>): BrokerOptions => ({
  brokers: context.settings.brokers,
  clientId: 'millrace-producer',
  ...connectOptions(context),
});

/** Connects the instances with these numbers. @throws unreachable */
export async function openInstances(
  context: SenderContext,
  numbers: readonly number[],
  senders: Senders,
): Promise<readonly FramedProducer[]> {
  const { settings, clock } = context;
  const driver = await brokerDriver(context);
  const kernels = chooseKernels(context);
  const name = settings['producer-name'];
  const headers = name === undefined ? undefined : [[PRODUCER_HEADER, Buffer.from(name, 'utf8')] as const];
  const instances: FramedProducer[] = [];
  for (const number of numbers) {
    const producer = await driver.producer({
      ...producerBase(context),
      clientId: `millrace-producer-${number}`,
      acks: -1,
      idempotence: true,
      compression: settings.compression as 'none',
    });
    context.onClose(() => producer.close());
    instances.push(
      new FramedProducer({
        ...senders,
        producer,
        kernels,
        clock,
        batchRows: settings['batch-rows'],
        headers,
      }),
    );
  }
  return instances;
}
