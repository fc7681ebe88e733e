/** Stored records and transactions of the simulated cluster. */
import type { RecordHeader } from '../core/layout/record-batch.ts';
import type { TopicPartition } from '../io/kafka/port.ts';

export interface SimTransaction {
  state: 'open' | 'committed' | 'aborted';
  /** First offset by partition; an entry is removed when the end mark is stored in the partition.
   */
  readonly unmarked: Map<string, { readonly at: TopicPartition; readonly first: bigint }>;
  /** Resolves when all end marks are stored. */
  ended: Promise<void>;
}

export interface StoredRecord {
  readonly timestamp: bigint;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers: readonly RecordHeader[];
  readonly transaction?: SimTransaction;
  /** True for the end mark of a transaction; it is not delivered to readers. */
  readonly isMark?: boolean;
}

export const keyOf = (at: TopicPartition): string => `${at.partition}@${at.topic}`;
