/** What every source of rows is made with. */
import type { Clock } from '../../core/clock.ts';
import type { Logger } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import type { Pipeline } from './pipeline/contract.ts';

/** Where a test or a chaos run ends the process: `commit` a committed row was seen and not yet published, `publish` rows are
 *  acknowledged and not yet marked, `mark` they are marked and the source has not yet taken note. */
export type RelayCrashPoint = 'commit' | 'publish' | 'mark';

/** The shards of the outbox that this relay may publish. */
export interface Ownership {
  /** How many shards there are. */
  readonly shards: number;
  /** Ascending; empty on standby. An owner whose lease may have run out owns nothing. */
  owned(): readonly number[];
  /** Grows with each change of what is owned: a source that sees it changed looks from the lowest id again. */
  generation(): number;
}

export interface SourceParts {
  readonly pool: SqlPool;
  /** `name` or `schema.name`, checked; may stand in SQL text. */
  readonly table: string;
  readonly pipeline: Pipeline;
  readonly ownership: Ownership;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly clock: Clock;
  /** Resolves after the time, or at once when the drain starts. */
  readonly sleep: (ms: number) => Promise<void>;
  /** Resolves at the next wake-up, after the time, or at once when the drain starts. */
  readonly sleepUntilWoken: (ms: number) => Promise<void>;
  readonly drain: AbortSignal;
  /** Payload bytes that a source may bring at once; one row above it is brought alone. */
  readonly bytesMax: number;
  /** Ends the process when this crash point was asked for; `unfinished` rows are cut off in the middle. */
  readonly crashAt: (point: RelayCrashPoint, unfinished: number) => void;
  /** Resolve when what was pending at the start is published and marked, instead of waiting for more. */
  readonly exitWhenDrained: boolean;
}
