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

/** Versions of Order between which the fleets are upgraded: only a reader of the new one reads
 *  both. */
export const UPGRADE = { from: 3, to: 4 } as const;

/** Upgrade of a live fleet of one producer and one consumer. */
export interface FleetRun {
  readonly topic: string;
  readonly quarantine: string;
  readonly group: string;
  readonly subject: string;
  /** Schema ids of the old and the new version. */
  readonly ids: { readonly from: number; readonly to: number };
  /** Seed of the orders of every producer. */
  readonly seed: number;
  /** Outputs of the consumers of the old and the new version: one decoded record a line. */
  readonly decoded: { readonly from: string; readonly to: string };
  /** Exit code of `millrace rollout`, and the parts of its report. */
  readonly code: number | null;
  readonly verdict: string;
  readonly order: string;
  readonly errors: number;
}

/** Redrive of a quarantine back to its topic. */
export interface RedriveRun {
  readonly topic: string;
  readonly quarantine: string;
  /** Version and schema id of the writer, and version of the reader that read what came back. */
  readonly writer: OrderVersion;
  readonly writerId: number;
  readonly reader: OrderVersion;
  readonly seed: number;
  /** Reason of the records that the fix makes readable. */
  readonly reason: QuarantineReason;
  /** Output of the consumer that read what came back. */
  readonly decodedPath: string;
  /** Counts that the last redrive reports. */
  readonly reported: { readonly redriven: number; readonly repeated: number; readonly failed: number };
}

/** Redrive that was killed with SIGKILL and started again. */
export interface KilledRedriveRun extends RedriveRun {
  /** Signal that ended it, and number of records that were back in the topic then. */
  readonly killed: { readonly signal: string | null; readonly back: number };
  /** Counts of `consumer -quarantine` at the end. */
  readonly listed: { readonly left: number; readonly redriven: number };
}

export interface ContractsRun {
  /** `http://host:port` of the registry, which runs until the demo ends. */
  readonly registry: string;
  /** Ids by subject, in version order, as assigned before the registry was killed. */
  readonly ids: Readonly<Record<string, readonly number[]>>;
  readonly refusals: readonly Refusal[];
  readonly flows: readonly FlowRun[];
  readonly producedPerSecond: number;
  /** Upgrade with the producers first, which breaks the consumer, and the redrive after it. */
  readonly wrongOrder: FleetRun;
  readonly rescue: RedriveRun;
  /** Upgrade in the order of the plan. */
  readonly rightOrder: FleetRun;
  readonly redrive: KilledRedriveRun;
}

/** Header `origin` of the records that the demo injects. */
export const ORIGIN = 'demo';

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
