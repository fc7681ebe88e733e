/** Reads the state of the pipeline from outside: the pages of the load client, the outbox, and the
 *  offsets of the topic. */
import type { ChaosSample } from '../../chaos/report.ts';
import { sleep, type Timers } from '../../core/clock.ts';
import type { BatchConsumer, TopicPartition } from '../../io/kafka/port.ts';
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import type { StartedCommand } from '../../shell/children/started-command.ts';
import { textOf } from '../../shell/fetch-text.ts';
import { EXPOSITION_BYTES_MAX, parseExposition } from '../../slo/exposition.ts';

/** Time between two samples at first. It doubles each time that there are SAMPLES_MAX samples, of
 *  which every second one is then dropped. */
const SAMPLE_MS = 1000;
const SAMPLES_MAX = 4000;
const OFFSETS_MS_MAX = 5000;
const SCRAPE_MS_MAX = 2000;
const POLL_MS = 200;
const FINAL = ['acknowledged', 'refused'];

export interface ObserverOptions {
  readonly clock: Timers;
  readonly schema: string;
  readonly connect: () => Promise<SqlPool>;
  /** Client of the group of payments, which never joins. */
  readonly group: BatchConsumer;
  readonly partitions: readonly TopicPartition[];
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
  start(load: StartedCommand, startMs: number): void {
    this.running = this.sampleUntilStopped(load, startMs);
  }

  async stop(): Promise<void> {
    this.over.abort();
    await this.running;
    await this.pool?.close();
    this.pool = undefined;
  }

  /** Rows that are not marked. @throws unreachable */
  async pending(): Promise<number> {
    this.pool ??= await this.options.connect();
    const { rows } = await this.pool.query<{ n: bigint }>(
      `SELECT count(*) AS n FROM ${this.options.schema}.outbox WHERE published_at IS NULL`,
    );
    return Number(rows[0]?.n);
  }

  /** Records that payments has committed, and those that it has not. @throws timeout */
  async offsets(): Promise<Offsets> {
    const { group, partitions } = this.options;
    const committed = await group.committed(partitions);
    const positions = new Map(committed.map(({ partition, offset }) => [partition, offset]));
    let [lag, consumed] = [0, 0];
    for (const at of partitions) {
      const { low, high } = await group.watermarkOffsets(at, OFFSETS_MS_MAX);
      const position = positions.get(at.partition) ?? -1n;
      const from = position < low ? low : position;
      lag += Number(high - from);
      consumed += Number(from - low);
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

  private async sampleUntilStopped(load: StartedCommand, startMs: number): Promise<void> {
    let everyMs = SAMPLE_MS;
    const { clock, onSample } = this.options;
    const { signal } = this.over;
    let last: ChaosSample = {
      ...{ atMs: 0, answered: 0, answeredPerSecond: 0, pending: 0, lag: 0, consumed: 0 },
      consumedPerSecond: 0,
    };
    while (!signal.aborted) {
      const [answered, pending, offsets] = await Promise.all([
        answeredBy(load).catch(() => undefined),
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

/** Final answers on the page of the load client. */
async function answeredBy(load: StartedCommand): Promise<number> {
  const url = `http://${await load.address()}/metrics`;
  const page = parseExposition(
    await textOf(url, { timeoutMs: SCRAPE_MS_MAX, bytesMax: EXPOSITION_BYTES_MAX }),
    url,
  );
  return (page.samples.get('load_requests_total') ?? [])
    .filter(({ labels }) => FINAL.includes(labels['outcome'] ?? ''))
    .reduce((sum, { value }) => sum + value, 0);
}
