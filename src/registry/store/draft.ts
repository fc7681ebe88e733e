/** A change that is decided and not yet kept: its records, and the state as it will be. */
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

  /** @param ts when what it says began; the present where that is not said */
  put(record: StoreRecord, ts = this.ts): void {
    const encoded = encodeRecord(record, ts);
    this.records.push(encoded);
    // A removal that left another spelling of the key behind would bring the value back after log compaction.
    if (encoded.value === null)
      for (const key of this.state.aliases(record))
        this.records.push({ key: Buffer.from(key, 'utf8'), value: null, ts: this.ts });
    this.changes.push({ record, ts });
    this.state.apply(record, ts);
  }

  /** One request inside a batch: sees what the batch decided before, and takes nothing back from it. */
  fork(): Draft {
    return new Draft(this.state, this.ts, this);
  }

  mergeIntoParent(): void {
    this.state.merge();
    this.parent?.records.push(...this.records);
    this.parent?.changes.push(...this.changes);
  }

  /** What was decided and is kept. `moved`: the state has changed since, so that only the records can be trusted. */
  commit(base: State, moved: boolean): void {
    if (!moved) this.state.merge();
    else for (const { record, ts } of this.changes) base.apply(record, ts);
  }
}
