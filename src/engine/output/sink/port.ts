/** Port of the sinks for results. A write is an upsert of absolute values keyed by (account_id,
 *  window_start, window_end), so writing a result again after a crash changes nothing. */
import type { KeyType } from '../../keys/type.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import type { FiredBounds, FiredPage } from '../../window/firing.ts';
import type { ResultShape } from '../columns.ts';

/** Lease of sinks that the engines of a job write one after the other. A sink awaits `held` before
 *  each step that its readers see. */
export interface SinkLease {
  /** Greater than that of every owner before. */
  readonly epoch: number;
  /** Settles while this process may write. @throws store_fenced when another process has taken the
   *  job */
  held(): Promise<void>;
}

export interface WindowSink {
  readonly name: string;
  /** Most rows of one write. */
  readonly writeRowsMax: number;
  /** Sets the type of the keys, undefined for integers, and the columns of the results, before the
   *  first write. Every call has the same.
   *  @throws job_changed if the sink has other keys; sink_missing, sink_refused */
  bind?(type: KeyType | undefined, shape: ResultShape): Promise<void>;
  /** Creates the tables or topics that the sink owns. */
  migrate(): Promise<void>;
  /** @throws sink_missing, unreachable */
  check(): Promise<void>;
  /** Settles when the rows are durable, or with `finish` when it has their pages. Borrows the pages
   *  until then; no key occurs twice in one call. An existing row with the same values is not
   *  changed. A repeated attempt has the same array. */
  write(pages: readonly FiredPage[]): Promise<void>;
  /** Called after the last rows of firings were written, with the bounds of each: settles when all
   *  of their rows are durable. A sink that writes whole windows has it. */
  finish?(ended: readonly FiredBounds[]): Promise<void>;
  /** Reads every key once, in a deterministic order that the sink defines. */
  read(): AsyncIterable<readonly WindowResult[]>;
  /** Type of the keys that `read` returns, once it has returned the first page; undefined: they are
   *  integers. */
  readonly keyType?: KeyType | undefined;
}
