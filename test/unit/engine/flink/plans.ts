/** Jobs for Flink in tests. */
import type { FlinkJob } from '../../../../src/engine/flink/script.ts';
import { checkJob, type Job, type JobWindows } from '../../../../src/engine/job.ts';
import type { InputDefinition } from '../../../../src/engine/source/input/definition.ts';
import { type AvroSchema, parseSchema } from '../../../../src/formats/schema.ts';

export const TUMBLING: JobWindows = { window: 'tumbling', sizeMs: 60_000 };
export const SLIDING: JobWindows = { window: 'sliding', sizeMs: 300_000, slideMs: 60_000 };
export const SESSION: JobWindows = { window: 'session', gapMs: 30_000 };

const ORDER = parseSchema(
  'AVRO',
  JSON.stringify({
    type: 'record',
    name: 'Order',
    namespace: 'shop',
    fields: [
      { name: 'id', type: 'string' },
      {
        name: 'customer',
        type: {
          type: 'record',
          name: 'Customer',
          fields: [
            { name: 'country', type: 'string' },
            { name: 'no', type: 'int' },
          ],
        },
      },
      { name: 'amount', type: ['null', 'long'], default: null },
      { name: 'price', type: 'double', default: 0.5 },
      { name: 'status', type: { type: 'enum', name: 'Status', symbols: ['NEW', 'PAID'] } },
      { name: 'created', type: { type: 'long', logicalType: 'timestamp-micros' } },
      { name: 'choice', type: ['int', 'string'] },
    ],
  }),
) as AvroSchema;

export type Plan = Omit<Partial<FlinkJob>, 'job'> & {
  readonly windows?: JobWindows;
  readonly input?: Partial<InputDefinition>;
};

/** A job over Avro records with the schema ORDER, or over JSON. */
export function planOf({ windows = TUMBLING, input = {}, ...more }: Plan = {}): FlinkJob {
  const format = input.format ?? 'avro';
  const job = checkJob({
    ...windows,
    topic: 'orders',
    skewMs: 5000,
    latenessMs: 10_000,
    watermark: 'partition',
    input: { format, key: 'customer.country:string', time: 'created', ...input },
  });
  return {
    job: job as Job & { input: InputDefinition },
    name: 'millrace orders',
    brokers: 'kafka-1:9092,kafka-2:9092',
    properties: {},
    ...(format === 'avro' ? { registry: { url: 'http://registry:8081', options: {}, schema: ORDER } } : {}),
    startup: { 'scan.startup.mode': 'earliest-offset' },
    isBounded: false,
    idleTimeoutMs: 10_000,
    checkpointMs: 30_000,
    parallelism: 4,
    from: undefined,
    settings: {},
    sink: { url: 'postgres://db:5432/shop', table: 'results', user: 'me', password: 'secret' },
    ...more,
  };
}
