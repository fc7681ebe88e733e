/** Port of the sinks for results. A write is an upsert of absolute values keyed by (account_id,
 *  window_start, window_end), so writing a result again after a crash changes nothing. */
import type { KeyType } from '../../keys/type.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import type { FiredPage } from '../../window/firing.ts';

export interface WindowSink {
  readonly name: string;
  /** Most rows of one write. */
  readonly writeRowsMax: number;
  /** Sets the type of the keys, before the first write; undefined: they are integers. Every call
   *  has the same type. @throws job_changed if the sink has other keys; sink_missing */
  bind?(type: KeyType | undefined): Promise<void>;
  /** Creates the tables or topics that the sink owns. */
  migrate(): Promise<void>;
  /** @throws sink_missing, unreachable */
  check(): Promise<void>;
  /** Settles when the rows are durable. Borrows the pages until then; no key occurs twice in one
   *  call. An existing row with the same values is not changed. */
  write(pages: readonly FiredPage[]): Promise<void>;
  /** Reads every key once, in a deterministic order that the sink defines. */
  read(): AsyncIterable<readonly WindowResult[]>;
  /** Type of the keys that `read` returns, once it has returned the first page; undefined: they are
   *  integers. */
  readonly keyType?: KeyType | undefined;
}
