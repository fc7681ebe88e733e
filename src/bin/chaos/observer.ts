/** Reads the state of the services from outside: the answers to the load client, the rows that are
 *  pending, and the offsets of the consumer groups. */
import type { ChaosSample } from '../../chaos/report.ts';
import { sleep, type Timers } from '../../core/clock.ts';
import { coreError } from '../../core/errors.ts';
import type { BatchConsumer, TopicPartition } from '../../io/kafka/port.ts';
import type { SqlPool } from '../../io/postgres/sql/port.ts';

/** Time between two samples at first. It doubles each time that there are SAMPLES_MAX samples, of
 *  which every second one is then dropped. */
const SAMPLE_MS = 1000;
const SAMPLES_MAX = 4000;
const OFFSETS_MS_MAX = 5000;
const POLL_MS = 200;

/** Consumer group with its client, which never joins it. */
export interface ObservedGroup {
  readonly client: BatchConsumer;
  readonly partitions: readonly TopicPartition[];
}

/** Number of final answers since the start of the load. @throws where it cannot be read now */
export type AnsweredCount = () => Promise<number>;

export interface ObserverOptions {
  readonly clock: Timers;
  readonly connect: () => Promise<SqlPool>;
  /** Query of one number: the units that are not finished. Absent: none are counted. */
  readonly pendingQuery: string | undefined;
  readonly groups: readonly ObservedGroup[];
  readonly onSample: (sample: ChaosSample) => void;
}

interface Offsets {
  readonly lag: number;
  readonly consumed: number;
}

export class Observer {
  samples: ChaosSample[] = [];
  private readonly options: ObserverOptions;
  private pool: SqlPool | undefined;
  private readonly over = new AbortController();
  private running: Promise<void> = Promise.resolve();

  constructor(options: ObserverOptions) {
    this.options = options;
  }

  /** Samples until `stop`. A value that cannot be read keeps its last one.
   *  @param startMs monotonic time of the start */
  start(answered: AnsweredCount, startMs: number): void {
    this.running = this.sampleUntilStopped(answered, startMs);
  }

  async stop(): Promise<void> {
    this.over.abort();
    await this.running;
    await this.pool?.close();
    this.pool = undefined;
  }

  /** Units that are not finished. @throws unreachable, sql_failed; bad_value where the query
   *  returns no number */
  async pending(): Promise<number> {
    const { pendingQuery, connect } = this.options;
    if (pendingQuery === undefined) return 0;
    this.pool ??= await connect();
    const { rows } = await this.pool.query(pendingQuery);
    const count = Number(Object.values(rows[0] ?? {})[0] ?? Number.NaN);
    if (Number.isNaN(count))
      throw coreError('bad_value', 'the query pending returns no number', {
        next: 'give a query that returns one row with one number, such as SELECT count(*) ...',
      });
    return count;
  }

  /** Records that the groups have committed, and those that they have not. @throws timeout */
  async offsets(): Promise<Offsets> {
    let [lag, consumed] = [0, 0];
    for (const { client, partitions } of this.options.groups) {
      const committed = await client.committed(partitions);
      const positions = new Map(committed.map(({ partition, offset }) => [partition, offset]));
      for (const at of partitions) {
        const { low, high } = await client.watermarkOffsets(at, OFFSETS_MS_MAX);
        const position = positions.get(at.partition) ?? -1n;
        const from = position < low ? low : position;
        lag += Number(high - from);
        consumed += Number(from - low);
      }
    }
    return { lag, consumed };
  }

  /** Waits until nothing is pending and everything is consumed.
   *  @returns undefined, or what is left after `timeoutMs` or an abort */
  async drained(timeoutMs: number, signal: AbortSignal): Promise<string | undefined> {
    const { clock } = this.options;
    const endMs = clock.monotonicMs() + timeoutMs;
    let left = '';
    for (;;) {
      try {
        const [pending, { lag }] = [await this.pending(), await this.offsets()];
        if (pending === 0 && lag === 0) return undefined;
        left = `${pending} rows are pending, and ${lag} records are not consumed`;
      } catch (thrown) {
        left = (thrown as Error).message;
      }
      if (signal.aborted || clock.monotonicMs() >= endMs)
        return `the pipeline did not drain within ${timeoutMs} ms: ${left}`;
      await sleep(clock, POLL_MS, signal);
    }
  }

  /** Waits until payments has consumed a record. @returns false after `timeoutMs` or an abort */
  async consumed(timeoutMs: number, signal: AbortSignal): Promise<boolean> {
    const { clock } = this.options;
    const endMs = clock.monotonicMs() + timeoutMs;
    while (!signal.aborted && clock.monotonicMs() < endMs) {
      const offsets = await this.offsets().catch(() => undefined);
      if (offsets !== undefined && offsets.consumed > 0) return true;
      await sleep(clock, POLL_MS, signal);
    }
    return false;
  }

  private async sampleUntilStopped(answeredNow: AnsweredCount, startMs: number): Promise<void> {
    let everyMs = SAMPLE_MS;
    const { clock, onSample } = this.options;
    const { signal } = this.over;
    let last: ChaosSample = {
      ...{ atMs: 0, answered: 0, answeredPerSecond: 0, pending: 0, lag: 0, consumed: 0 },
      consumedPerSecond: 0,
    };
    while (!signal.aborted) {
      const [answered, pending, offsets] = await Promise.all([
        answeredNow().catch(() => undefined),
        this.pending().catch(() => undefined),
        this.offsets().catch(() => undefined),
      ]);
      const atMs = clock.monotonicMs() - startMs;
      const perSecond = (now: number, before: number): number =>
        Math.max(0, (1000 * (now - before)) / Math.max(1, atMs - last.atMs));
      const now = { answered: answered ?? last.answered, consumed: offsets?.consumed ?? last.consumed };
      last = {
        ...now,
        atMs,
        answeredPerSecond: perSecond(now.answered, last.answered),
        consumedPerSecond: perSecond(now.consumed, last.consumed),
        pending: pending ?? last.pending,
        lag: offsets?.lag ?? last.lag,
      };
      this.samples.push(last);
      onSample(last);
      if (this.samples.length >= SAMPLES_MAX) {
        this.samples = this.samples.filter((_, index) => index % 2 === 0);
        everyMs *= 2;
      }
      await sleep(clock, everyMs, signal);
    }
  }
}
