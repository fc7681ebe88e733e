/** Redrive: reads a quarantine from its first record, and writes the selected records that can be
 *  read again to an output.
 *
 *  Invariants: (1) a record that cannot be read again stays quarantined as it is: it is neither
 *  written to the output nor quarantined a second time; (2) while the registry is unavailable, no
 *  record is judged and no transaction is open; (3) a record that is skipped leaves no trace, so a
 *  later redrive finds it. */
import type { Timers } from '../../core/clock.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Logger } from '../../core/log.ts';
import type { Counter, Metrics } from '../../core/metrics.ts';
import type { RecordDecoder } from '../consumer/decoder.ts';
import { batchOf } from '../consumer/deliver.ts';
import type { ConsumerMetrics } from '../consumer/member.ts';
import { prepared } from '../consumer/partitions.ts';
import { isSelected, type QuarantineFilter } from './filter.ts';
import type { RedriveOutput, RedriveRow } from './output.ts';
import { type Quarantined, type RedriveReason, readQuarantined, restored } from './record.ts';
import type { Scan } from './scan.ts';

/** Outcomes of a selected record.
 *    redriven   written to the output
 *    repeated   the output has the record
 *    failed     still cannot be read
 *    refused    the output refuses it for good, such as for its size */
export const REDRIVE_OUTCOMES = ['redriven', 'repeated', 'failed', 'refused'] as const;
export type RedriveOutcome = (typeof REDRIVE_OUTCOMES)[number];

export interface RedriveMetrics {
  readonly redriven: Counter;
  readonly foreign: Counter;
}

export const redriveMetrics = (metrics: Metrics): RedriveMetrics => ({
  redriven: metrics.counter(
    'redriven_total',
    'Quarantined records that a redrive selected, by the reason of the quarantine and the outcome.',
    ['reason', 'outcome'],
  ),
  foreign: metrics.counter(
    'quarantine_foreign_total',
    'Records of the quarantine topic that have no headers of a quarantine; they are left alone.',
  ),
});

type Counts = Record<RedriveOutcome, number>;

export interface RedriveTally {
  /** Records of the quarantine that were read. */
  read: number;
  /** Without the headers of a quarantine. */
  foreign: number;
  /** From other source topics. */
  otherTopics: number;
  /** Not selected by reason, partition, time or filter. */
  skipped: number;
  readonly byReason: Map<RedriveReason, Counts>;
}

export const sumOf = ({ byReason }: RedriveTally, outcome: RedriveOutcome): number =>
  [...byReason.values()].reduce((sum, counts) => sum + counts[outcome], 0);

export interface QuarantineRedriveOptions {
  readonly scan: Scan;
  /** Source topic: records of other topics are left alone. */
  readonly topic: string;
  readonly filter: QuarantineFilter;
  readonly decoder: RecordDecoder;
  readonly output: RedriveOutput;
  readonly metrics: RedriveMetrics;
  /** Counts the pauses of the registry. */
  readonly consumerMetrics: ConsumerMetrics;
  readonly clock: Timers;
  readonly log: Logger;
  readonly drain: AbortSignal;
  /** True when no further record is wanted. */
  readonly isEnough: () => boolean;
  readonly onRead: (records: number, failed: number) => void;
}

/** Records that are logged one by one; further ones are only counted. */
const LOGGED_MAX = 100;

interface Selected {
  readonly one: Quarantined;
  readonly row: number;
}

export class Redrive {
  readonly tally: RedriveTally = { read: 0, foreign: 0, otherTopics: 0, skipped: 0, byReason: new Map() };
  private readonly options: QuarantineRedriveOptions;
  private logged = 0;

  constructor(options: QuarantineRedriveOptions) {
    this.options = options;
  }

  /** @returns false if the run ended before the last record
   *  @throws redrive_fenced, not_delivered, timeout */
  async run(): Promise<boolean> {
    const { scan, drain, isEnough } = this.options;
    let isWhole = !drain.aborted;
    if (isWhole)
      await scan.run(async (records, isInRange) => {
        isWhole = await this.batch(records, isInRange);
        return isWhole;
      });
    return isWhole && !isEnough();
  }

  /** False: stop. */
  private async batch(records: RecordBatch, isInRange: (row: number) => boolean): Promise<boolean> {
    const { decoder, output, drain, isEnough, onRead } = this.options;
    const { selected, read } = this.select(records, isInRange);
    let failures = 0;
    if (selected.length > 0) {
      const batch = batchOf(selected.map(({ one, row }) => restored(records, row, one)));
      if (!(await prepared({ ...this.options, metrics: this.options.consumerMetrics }, batch))) return false;
      const { decoded, failed, skipped = 0 } = decoder.decode(batch);
      const oneOf = (row: number): Quarantined => (selected[row] as Selected).one;
      for (const { row, error, reason } of failed) {
        this.count(oneOf(row), 'failed');
        this.note(
          { record: oneOf(row).id, reason, error: error.message },
          'still unreadable; the record stays quarantined',
        );
      }
      failures = failed.length;
      this.tally.skipped += skipped;
      const rows = decoded.map((row): RedriveRow => ({ one: oneOf(row.row), records: batch, decoded: row }));
      const refused = new Map((await output.write(rows)).map(({ row, why }) => [row, why]));
      for (const row of rows) this.count(row.one, refused.has(row) ? 'refused' : 'redriven');
      for (const [{ one }, why] of refused)
        this.note({ record: one.id, why }, 'the output refuses the record; it stays quarantined');
    }
    this.tally.read += read;
    onRead(read, failures);
    return !drain.aborted && !isEnough();
  }

  private select(
    records: RecordBatch,
    isInRange: (row: number) => boolean,
  ): { readonly selected: readonly Selected[]; readonly read: number } {
    const { topic, filter, output, metrics } = this.options;
    const { partition, offset } = records.columns;
    const selected: Selected[] = [];
    const ids = new Set<string>();
    let read = 0;
    for (let row = 0; row < records.rowCount; row++) {
      if (!isInRange(row)) continue;
      read++;
      const one = readQuarantined(records, row);
      if (one.kind === 'foreign') {
        this.tally.foreign++;
        metrics.foreign.add();
        this.note(
          { partition: partition[row], offset: String(offset[row]), why: one.why },
          'not a quarantined record; it is left alone',
        );
      } else if (one.source.topic !== topic) this.tally.otherTopics++;
      else if (!isSelected(filter, one, records, row)) this.tally.skipped++;
      else if (output.has(one.id) || ids.has(one.id)) this.count(one, 'repeated');
      else {
        ids.add(one.id);
        selected.push({ one, row });
      }
    }
    return { selected, read };
  }

  private count({ reason }: Quarantined, outcome: RedriveOutcome): void {
    const counts = this.tally.byReason.get(reason) ?? { redriven: 0, repeated: 0, failed: 0, refused: 0 };
    counts[outcome]++;
    this.tally.byReason.set(reason, counts);
    const { redriven } = this.options.metrics;
    redriven.add(1, redriven.series(reason, outcome));
  }

  private note(fields: Readonly<Record<string, unknown>>, event: string): void {
    if (this.logged++ < LOGGED_MAX) this.options.log.warn({ ...fields }, event);
    else if (this.logged === LOGGED_MAX + 1) this.options.log.warn({}, 'further records are only counted');
  }
}
