/** Change that is decided but not yet durable: its records, and the state that results from them.
 */
import type { LogRecord } from './log.ts';
import type { State } from './state/model.ts';
import { encodeRecord, type StoreRecord } from './state/records.ts';

export class Draft {
  readonly state: State;
  readonly records: LogRecord[] = [];
  readonly changes: Array<{ readonly record: StoreRecord; readonly ts: number }> = [];
  private readonly ts: number;
  private readonly parent: Draft | undefined;

  constructor(base: State, ts: number, parent?: Draft) {
    this.state = base.fork();
    this.ts = ts;
    this.parent = parent;
  }

  /** @param ts time of the record, ms since 1970; default: the time of this draft */
  put(record: StoreRecord, ts = this.ts): void {
    const encoded = encodeRecord(record, ts);
    this.records.push(encoded);
    // Also removes every other spelling of the key, whose value would otherwise survive log
    // compaction.
    if (encoded.value === null)
      for (const key of this.state.aliases(record))
        this.records.push({ key: Buffer.from(key, 'utf8'), value: null, ts: this.ts });
    this.changes.push({ record, ts });
    this.state.apply(record, ts);
  }

  /** Draft of one request in a batch. It sees the earlier decisions of the batch and cannot undo
   *  them.
   */
  fork(): Draft {
    return new Draft(this.state, this.ts, this);
  }

  mergeIntoParent(): void {
    this.state.merge();
    this.parent?.records.push(...this.records);
    this.parent?.changes.push(...this.changes);
  }

  /** Applies the durable changes to `base`. `moved`: `base` has changed since this draft began, so
   *  only the records are valid and are applied one by one.
   */
  commit(base: State, moved: boolean): void {
    if (!moved) this.state.merge();
    else for (const { record, ts } of this.changes) base.apply(record, ts);
  }
}
