/** Output of a redrive into a topic, exactly once: the records and their ids in the progress topic
 *  are written in one transaction.
 *
 *  Invariant: a record is in the output exactly if its id is noted for the output. A new redrive
 *  first fences the earlier ones, then reads the ids to their end, which no other process can move
 *  any more. */
import type { Timers } from '../../core/clock.ts';
import type { RecordInput } from '../../core/layout/record-batch.ts';
import type { RedriveOutput, RedriveRow, RefusedRow } from './output.ts';
import { progressRecord, progressTopicOf, RecordIds, RedriveProgress } from './progress.ts';
import type { ScanOptions } from './scan.ts';
import { type TransactionOutcome, Transactions } from './transactions.ts';

export interface TopicOutputOptions {
  readonly scan: ScanOptions;
  readonly clock: Timers;
  readonly quarantineTopic: string;
  /** Name of the output in the progress topic. */
  readonly name: string;
  readonly topic: string;
  readonly record: (row: RedriveRow) => RecordInput;
}

/** Transactional id of every redrive of a quarantine: one of them writes at a time. */
const transactionalIdOf = (quarantineTopic: string): string => `millrace-redrive-${quarantineTopic}`;

export class TopicOutput implements RedriveOutput {
  private readonly options: TopicOutputOptions;
  private readonly progressTopic: string;
  private readonly done = new RecordIds();
  private readonly progress: RedriveProgress;
  private transactions: Transactions | undefined;

  private constructor(options: TopicOutputOptions) {
    this.options = options;
    this.progressTopic = progressTopicOf(options.quarantineTopic);
    this.progress = new RedriveProgress(options.scan, this.progressTopic);
  }

  /** Fences every other redrive of the quarantine, and reads what it has redriven.
   *  @throws redrive_fenced, not_delivered, unreachable, timeout */
  static async open(options: TopicOutputOptions): Promise<TopicOutput> {
    const output = new TopicOutput(options);
    const { driver, broker, log } = options.scan;
    output.transactions = new Transactions({
      ...{ driver, broker, log },
      clock: options.clock,
      transactionalId: transactionalIdOf(options.quarantineTopic),
      onOwned: () => output.load('written'),
    });
    try {
      await output.transactions.open();
    } catch (thrown) {
      await output.close();
      throw thrown;
    }
    return output;
  }

  /** Output that only counts, and fences no other redrive.
   *  @param hasProgress false: the progress topic does not exist
   *  @throws timeout, broker_unavailable */
  static async dry(options: TopicOutputOptions, hasProgress: boolean): Promise<TopicOutput> {
    const output = new TopicOutput(options);
    if (hasProgress) await output.load('stable');
    return output;
  }

  has(id: string): boolean {
    return this.done.has(id);
  }

  async write(rows: readonly RedriveRow[]): Promise<readonly RefusedRow[]> {
    const refused: RefusedRow[] = [];
    const parts = [rows];
    for (let part = parts.pop(); part !== undefined; part = parts.pop()) {
      const left = part.filter(({ one }) => !this.done.has(one.id));
      if (left.length === 0) continue;
      const outcome = await this.transact(left);
      if (outcome === 'written') for (const { one } of left) this.done.add(one.id);
      else if (outcome === 'repeat') parts.push(left);
      else if (left.length === 1) refused.push({ row: left[0] as RedriveRow, why: outcome.refused });
      else {
        // Halves, until the refused records are alone. The first half is written first.
        const middle = Math.ceil(left.length / 2);
        parts.push(left.slice(middle), left.slice(0, middle));
      }
    }
    return refused;
  }

  async close(): Promise<void> {
    await this.transactions?.close();
  }

  private async transact(rows: readonly RedriveRow[]): Promise<TransactionOutcome> {
    const { name, topic, record, clock } = this.options;
    if (this.transactions === undefined) return 'written';
    const nowMs = clock.wallNowMs();
    const notes = rows.map(({ one }) => ({ ...progressRecord(name, one, nowMs), topicIndex: 1 }));
    return this.transactions.write([...rows.map(record), ...notes], [topic, this.progressTopic]);
  }

  private load(to: 'stable' | 'written'): Promise<void> {
    return this.progress.read(to, (output, id) => {
      if (output === this.options.name) this.done.add(id);
    });
  }
}
