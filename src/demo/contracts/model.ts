/** Data that the contracts slice passes to its judge, and their access to the registry. */
import type { OrderVersion } from '../../gen/order.ts';
import type { OrderFormat } from '../../gen/order-versions.ts';
import type { QuarantineReason } from '../../serde/errors.ts';

export interface FlowPlan {
  readonly name: string;
  readonly format: OrderFormat;
  readonly writer: OrderVersion;
  readonly reader: OrderVersion;
  readonly topic: string;
  readonly quarantine: string;
  readonly seed: number;
  readonly orders: number;
  /** Output file of the consumer: one decoded record a line. */
  readonly decodedPath: string;
}

export interface BadRecord {
  readonly partition: number;
  readonly offset: string;
  readonly reason: QuarantineReason;
  readonly keyHex: string;
  readonly valueHex: string;
}

export interface FlowRun extends FlowPlan {
  readonly writerId: number;
  readonly bad: readonly BadRecord[];
  /** deserialize_errors_total by reason, from the consumer's last /metrics. */
  readonly counted: Readonly<Record<string, number>>;
}

export interface Refusal {
  readonly format: OrderFormat;
  readonly status: number;
  readonly message: string;
}

export interface ContractsRun {
  /** `http://host:port` of the registry, which runs until the demo ends. */
  readonly registry: string;
  /** Ids by subject, in version order, as assigned before the registry was killed. */
  readonly ids: Readonly<Record<string, readonly number[]>>;
  readonly refusals: readonly Refusal[];
  readonly flows: readonly FlowRun[];
  readonly producedPerSecond: number;
}

export const subjectOf = (format: OrderFormat): string => `orders-${format}-value`;
export const formatName = (format: OrderFormat): string => (format === 'avro' ? 'AVRO' : 'PROTOBUF');

export interface DemoAnswer {
  readonly status: number;
  readonly body: unknown;
}

export async function ask(url: string, method: string, path: string, body?: unknown): Promise<DemoAnswer> {
  const response = await fetch(`${url}${path}`, {
    method,
    ...(body === undefined
      ? {}
      : {
          body: JSON.stringify(body),
          headers: { 'content-type': 'application/vnd.schemaregistry.v1+json' },
        }),
  });
  return { status: response.status, body: await response.json() };
}
