/** Records of the simulated cluster in their partitions, and the transactions that they belong to.
 */
import type { RecordHeader } from '../core/layout/record-batch.ts';
import type { TopicPartition } from '../io/kafka/port.ts';

export interface SimTransaction {
  state: 'open' | 'committed' | 'aborted';
  /** First offset by partition, as long as the mark of the end is not stored there. */
  readonly unmarked: Map<string, { readonly at: TopicPartition; readonly first: bigint }>;
  /** Settles when every mark is stored. */
  ended: Promise<void>;
}

export interface StoredRecord {
  readonly timestamp: bigint;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers: readonly RecordHeader[];
  readonly transaction?: SimTransaction;
  /** Marks the end of a transaction; no reader gets it. */
  readonly isMark?: boolean;
}

export const keyOf = (at: TopicPartition): string => `${at.partition}@${at.topic}`;
