/** Reads partitions without a consumer group: from given offsets, by assignment, and without
 *  commits, so the reader needs no right on a group.
 *  Invariants: (1) a record that cannot be read never ends the run; (2) while the registry is
 *  unavailable, the batch waits and no record is judged. */
import { sleep, type Timers } from '../../core/clock.ts';
import { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Logger } from '../../core/log.ts';
import type { BatchConsumer, TopicPartitionOffset } from '../../io/kafka/port.ts';
import { isRegistryAway } from '../../serde/client.ts';
import { registryError } from '../errors.ts';
import type { FailedRow, RecordDecoder } from './decoder.ts';
import type { EndTracker } from './ends.ts';
import type { ConsumerMetrics } from './member.ts';
import type { RegistryWait } from './registry-wait.ts';
import type { DecodedSink } from './sink.ts';

export interface PartitionReaderOptions {
  readonly consumer: BatchConsumer;
  readonly from: readonly TopicPartitionOffset[];
  /** Label of the metrics. */
  readonly subject: string;
  readonly decoder: RecordDecoder;
  readonly sink: DecodedSink | undefined;
  /** Resolves when the failed rows are stored or reported. */
  readonly onFailed: (records: RecordBatch, failed: readonly FailedRow[]) => Promise<void>;
  readonly metrics: ConsumerMetrics;
  readonly clock: Timers;
  readonly log: Logger;
  readonly drain: AbortSignal;
  readonly batchRows: number;
  readonly batchBytes: number;
  /** Undefined: run until the drain. */
  readonly ends: EndTracker | undefined;
  /** Limit of a wait for the registry; undefined: none. */
  readonly registryWait?: RegistryWait | undefined;
  readonly isEnough: () => boolean;
  readonly onRows: (rows: number, failed: number, selected: number) => void;
}

const WAIT_MS = 250;
const REGISTRY_RETRY_MS = 100;
const REGISTRY_RETRY_MS_MAX = 5000;

export class PartitionReader {
  private readonly options: PartitionReaderOptions;
  private readonly records: RecordBatch;

  constructor(options: PartitionReaderOptions) {
    this.options = options;
    this.records = RecordBatch.create(options.batchRows, options.batchBytes);
  }

  /** Reads until the drain, the end offsets, or enough records. @throws unreachable,
   *  not_delivered */
  async run(): Promise<void> {
    const { options, records } = this;
    const { consumer, drain, ends, log } = options;
    await consumer.assign(options.from);
    for (const { partition, offset } of options.from) ends?.reached(partition, offset);
    while (!drain.aborted && ends?.done() !== true && !options.isEnough()) {
      const result = await consumer.consume(records, WAIT_MS);
      for (const event of result.events) log.warn({ ...event }, 'broker event');
      if (result.rowCount > 0 && !(await this.finish())) return;
      for (const { partition, offset } of result.ends) ends?.reached(partition, offset);
    }
  }

  /** False: the drain came before the registry answered. */
  private async finish(): Promise<boolean> {
    const { options, records } = this;
    const { metrics, clock, subject, ends } = options;
    if (!(await prepared(options, records))) return false;
    const startMs = clock.monotonicMs();
    const { decoded, failed, skipped = 0, end = records.rowCount } = options.decoder.decode(records);
    const rows = decoded.length + failed.length + skipped;
    const seconds = (clock.monotonicMs() - startMs) / 1000;
    if (rows > 0) metrics.decodeSeconds.observeMany(seconds / rows, rows);
    if (failed.length > 0) await options.onFailed(records, failed);
    const refused = (await options.sink?.write(records, decoded)) ?? [];
    if (refused.length > 0) throw tooLarge(options.sink?.target ?? '', refused.length);
    metrics.consumed.add(rows);
    metrics.decoded.add(decoded.length + skipped);
    for (const { reason } of failed) metrics.errors.add(1, metrics.errors.series(subject, reason));
    const { partition, offset } = records.columns;
    for (let row = 0; row < end; row++) ends?.reached(partition[row] as number, (offset[row] as bigint) + 1n);
    options.onRows(rows, failed.length, decoded.length);
    return true;
  }
}

type Preparing = Pick<PartitionReaderOptions, 'clock' | 'drain' | 'log' | 'metrics'> & {
  readonly decoder: Pick<RecordDecoder, 'prepare'>;
  readonly registryWait?: RegistryWait | undefined;
};

/** Loads the schemas of a batch, and waits for the registry. False: the drain came before the
 *  registry answered. @throws the registry's error when the wait has a limit that is over */
export async function prepared(
  { decoder, clock, drain, log, metrics, registryWait }: Preparing,
  records: RecordBatch,
): Promise<boolean> {
  let delayMs = REGISTRY_RETRY_MS;
  let waits = false;
  registryWait?.begin();
  for (;;) {
    try {
      await decoder.prepare(records);
      registryWait?.end();
      if (waits) log.info({}, 'the registry answers again');
      return true;
    } catch (thrown) {
      if (!isRegistryAway(thrown)) throw thrown;
      if (!waits) {
        metrics.registryWaits.add();
        log.warn({ error: (thrown as Error).message }, 'the registry does not answer; paused until it does');
      }
      waits = true;
      if (drain.aborted) return false;
      const leftMs = registryWait?.leftMs() ?? delayMs;
      if (leftMs === 0) throw registryWait?.error(thrown);
      await sleep(clock, Math.min(delayMs, leftMs), drain);
      delayMs = Math.min(delayMs * 2, REGISTRY_RETRY_MS_MAX);
    }
  }
}

const tooLarge = (topic: string, count: number): Error =>
  registryError('not_delivered', `topic ${topic} refuses ${count} lines as too large`, {
    next: 'raise max.message.bytes of the topic',
  });
