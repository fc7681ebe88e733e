/** Worker thread of `millrace producer`: a share of its instances, which send generated orders. */
import type { Reference, ResolvedReference } from '../../formats/content.ts';
import type { SchemaFormat } from '../../formats/format.ts';
import { parseSchema } from '../../formats/schema.ts';
import { producerMetrics } from '../../registry/producer/instance.ts';
import { Sequence, type SequenceCells } from '../../registry/producer/sequence.ts';
import { RegistryClient } from '../../serde/client.ts';
import { type CodecChoice, recordCodecs } from '../../serde/codec-choice.ts';
import type { ThreadRequests } from '../../serde/shared-client.ts';
import { runThread } from '../../shell/threads/worker.ts';
import { UNKNOWN_ID_MS } from '../registry-clients/shared.ts';
import { orderKey, sendOrders } from './generate.ts';
import { openInstances } from './senders.ts';
import type { ProducerContext } from './settings.ts';

export interface ProducerJob {
  readonly topic: string;
  readonly subject: string;
  readonly format: SchemaFormat;
  readonly source: string;
  /** References of the schema, with their texts. */
  readonly resolved: readonly ResolvedReference[];
  /** References of the schema in the registry. */
  readonly references: readonly Reference[];
  /** Path of the key's field; undefined for no key. */
  readonly keyPath: readonly string[] | undefined;
  readonly sequence: SequenceCells;
  readonly instances: readonly number[];
}

/** State in a thread's reports: records sent since its start. */
export interface ProducerState {
  readonly sent: number;
}

await runThread<ProducerContext['settings'], ProducerJob>(async (context) => {
  const { job, settings, clock, metrics } = context;
  const { format, source, resolved, references } = job;
  const client = new RegistryClient({
    requests: context.registry as ThreadRequests,
    clock,
    metrics,
    unknownForMs: UNKNOWN_ID_MS,
  });
  const schema = parseSchema(format, source, { references: resolved });
  const codecs = await recordCodecs(settings.codec as CodecChoice);
  let sent = 0;
  context.onReport((): ProducerState => ({ sent }));
  const instances = await openInstances(context, job.instances, {
    topic: job.topic,
    metrics: producerMetrics(metrics),
    codec: codecs.writer(schema, settings.message),
    keyOf: orderKey(job.keyPath),
    // Served from the write cache: the registry gets one request for all threads.
    schemaId: () => client.register(job.subject, format, source, references),
  });
  context.setReady();
  const sequence = new Sequence(settings.count, job.sequence);
  return sendOrders(context, instances, schema, sequence, (rows) => {
    sent += rows;
  });
});
