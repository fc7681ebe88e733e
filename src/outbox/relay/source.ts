/** Parts that every source of rows is constructed with. */
import type { Clock } from '../../core/clock.ts';
import type { Logger } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import type { Pipeline } from './pipeline/contract.ts';

/** Point at which a crash test ends the process. `commit`: a committed row was read and not yet
 *  published. `publish`: rows are acknowledged and not yet marked. `mark`: rows are marked and the
 *  source does not know yet. */
export type RelayCrashPoint = 'commit' | 'publish' | 'mark';

/** Shards of the outbox that this relay may publish. */
export interface Ownership {
  /** Number of shards of the outbox. */
  readonly shards: number;
  /** Owned shards, ascending; empty on standby. An owner whose lease may have expired owns none. */
  owned(): readonly number[];
  /** Counter that grows with each change of ownership: a source then scans again from the lowest
   *  id. */
  generation(): number;
}

export interface SourceParts {
  readonly pool: SqlPool;
  /** Number of connections that `pool` has opened so far. Absent: not known. */
  readonly connections?: () => number;
  /** Outbox table, `name` or `schema.name`; checked, so that SQL text may contain it. */
  readonly table: string;
  readonly pipeline: Pipeline;
  readonly ownership: Ownership;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly clock: Clock;
  /** Resolves after the time, or immediately when the drain starts. */
  readonly sleep: (ms: number) => Promise<void>;
  /** Resolves at the next wake-up, after the time, or immediately when the drain starts. */
  readonly sleepUntilWoken: (ms: number) => Promise<void>;
  readonly drain: AbortSignal;
  /** Payload bytes that a source may deliver in one call; a larger row is delivered alone. */
  readonly bytesMax: number;
  /** Ends the process if this is the requested crash point. `unfinished` is the number of rows that
   *  it interrupts. */
  readonly crashAt: (point: RelayCrashPoint, unfinished: number) => void;
  /** True: `run` resolves once all rows that were pending at its start are published and marked. */
  readonly exitWhenDrained: boolean;
}
