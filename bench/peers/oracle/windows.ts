/** Reference results of the window engine, implemented independently from the requirements: obvious
 *  code, BigInt arithmetic, one object for each window and key. It shares no module with the
 *  engine; the layout of the 256-byte event is restated here.
 *
 *  It computes a batch result over the arrival log. Admission decides in log order which events
 *  count (admission.ts); accepted events are then grouped regardless of order (fixed-windows.ts,
 *  session-windows.ts). A window is final when its end <= the frontier; at the end of a bounded
 *  input every window is final. An event is invalid if its value is not 256 bytes or its event_ts
 *  lies outside [-2^52, 2^52); it changes only the counters. */
import { Admission, type Verdict } from './admission.ts';
import { FixedWindows } from './fixed-windows.ts';
import type { LogEntry, OracleRow, OracleRules, PartitionCounters } from './rules.ts';
import { SessionWindows } from './session-windows.ts';

const EVENT_BYTES = 256;

/** A record of the topic as an entry of the arrival log. */
export function entryOf(
  partition: number,
  value: Uint8Array | null,
  appendTs: bigint | undefined = undefined,
): LogEntry {
  if (value === null || value.length !== EVENT_BYTES) return { kind: 'broken', partition };
  const view = new DataView(value.buffer, value.byteOffset, EVENT_BYTES);
  return {
    kind: 'event',
    partition,
    accountId: view.getBigUint64(0, true),
    value: view.getBigInt64(8, true),
    eventTs: view.getBigInt64(16, true),
    appendTs,
  };
}

export class Oracle {
  private readonly admission: Admission;
  private readonly windows: FixedWindows | SessionWindows;

  /** `dropsLate` false: the batch result of all valid events, in any order. */
  constructor(rules: OracleRules, partitions: number, dropsLate = true) {
    this.admission = new Admission(rules, partitions, dropsLate);
    if (rules.window === 'session') this.windows = new SessionWindows(rules.gapMs);
    else
      this.windows = new FixedWindows(
        rules.sizeMs,
        rules.window === 'sliding' ? rules.slideMs : rules.sizeMs,
      );
  }

  /** Applies the value of one record; null for a record without a value. */
  value(partition: number, value: Uint8Array | null, appendTs?: bigint): Verdict {
    return this.apply(entryOf(partition, value, appendTs)) as Verdict;
  }

  event(
    partition: number,
    accountId: bigint,
    value: bigint,
    eventTs: bigint,
    appendTs: bigint | undefined = undefined,
  ): Verdict {
    const verdict = this.admission.event(partition, eventTs, appendTs);
    if (verdict === 'accepted') this.windows.add(accountId, value, eventTs);
    return verdict;
  }

  /** Changes skew and lateness from here on, as a job that resumes with other flags. */
  retime(rules: Pick<OracleRules, 'skewMs' | 'latenessMs'>): void {
    this.admission.retime(rules);
  }

  apply(entry: LogEntry): Verdict | undefined {
    switch (entry.kind) {
      case 'event':
        return this.event(entry.partition, entry.accountId, entry.value, entry.eventTs, entry.appendTs);
      case 'broken':
        return this.admission.broken(entry.partition);
      case 'idle':
        this.admission.idle(entry.partition);
        return undefined;
      case 'added':
        this.admission.add();
        return undefined;
    }
  }

  /** Rows ascending by (window_end, account_id). `finalOnly`: omits open windows. */
  *rows(finalOnly = false): Iterable<OracleRow> {
    const { frontier } = this.admission;
    for (const row of this.windows.rows()) {
      if (!finalOnly || (frontier !== undefined && row.windowEnd <= frontier)) yield row;
    }
  }

  /** Every window that ends at or before the frontier is final. */
  get frontier(): bigint | undefined {
    return this.admission.frontier;
  }

  /** Counters by partition. */
  get counters(): readonly PartitionCounters[] {
    return this.admission.counters;
  }
  get consumed(): bigint[] {
    return this.counters.map(({ consumed }) => consumed);
  }
  get droppedLate(): bigint[] {
    return this.counters.map(({ droppedLate }) => droppedLate);
  }
  get invalid(): bigint[] {
    return this.counters.map(({ invalid }) => invalid);
  }
}

/** The oracle after a whole arrival log. */
export function oracleOf(rules: OracleRules, partitions: number, log: Iterable<LogEntry>): Oracle {
  const oracle = new Oracle(rules, partitions);
  for (const entry of log) oracle.apply(entry);
  return oracle;
}
