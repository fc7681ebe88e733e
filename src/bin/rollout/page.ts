/** Metrics page of an instance: the counters of a rollout, or the reason why they cannot be read.
 */
import type { Clock } from '../../core/clock.ts';
import { findMillraceError } from '../../core/errors.ts';
import type { FleetRole, InstanceCounts } from '../../registry/rollout/model.ts';
import { textOf } from '../../shell/fetch-text.ts';
import { EXPOSITION_BYTES_MAX, parseExposition, type ScrapedPage } from '../../slo/exposition.ts';
import { type MetricSelector, missingReason, sumOf } from './selector.ts';

const SCRAPE_MS_MAX = 2000;
/** An instance whose page cannot be read for this long counts as failed: its errors are unknown. */
export const SILENT_MS_MAX = 30_000;

/** Metrics of each count; undefined: not measured, which counts as 0. */
export type FleetMetrics = Readonly<Record<keyof InstanceCounts, MetricSelector | undefined>>;

/** Counts that a role must serve. */
const NEEDED: Readonly<Record<FleetRole, readonly (keyof InstanceCounts)[]>> = {
  consumer: ['errors', 'consumed', 'lag'],
  producer: ['produced'],
};

export class MetricsPage {
  private readonly url: string;
  private readonly needed: ReadonlyMap<keyof InstanceCounts, MetricSelector>;
  private readonly clock: Clock;
  private lastMs: number;
  private why: string | undefined;
  private isWrong = false;

  constructor(url: string, role: FleetRole, metrics: FleetMetrics, clock: Clock) {
    this.url = url;
    this.clock = clock;
    this.lastMs = clock.monotonicMs();
    this.needed = new Map(
      NEEDED[role].flatMap((count) => {
        const metric = metrics[count];
        return metric === undefined ? [] : [[count, metric] as const];
      }),
    );
  }

  /** Reads the counts. Undefined: they cannot be read now; `reason` says why. */
  async read(): Promise<InstanceCounts | undefined> {
    const page = await this.load();
    if (page === undefined) return undefined;
    for (const metric of this.needed.values()) {
      const missing = missingReason(metric, page);
      if (missing !== undefined) return this.wrong(missing);
    }
    this.lastMs = this.clock.monotonicMs();
    this.why = undefined;
    this.isWrong = false;
    const count = (name: keyof InstanceCounts): number => {
      const metric = this.needed.get(name);
      return metric === undefined ? 0 : sumOf(metric, page);
    };
    return {
      errors: count('errors'),
      produced: count('produced'),
      consumed: count('consumed'),
      lag: count('lag'),
    };
  }

  /** True if the page counts the records that the instance has produced or consumed. */
  get countsWork(): boolean {
    return this.needed.has('produced') || this.needed.has('consumed');
  }

  /** Reason why the last page could not be read. */
  get reason(): string | undefined {
    return this.why === undefined ? undefined : `its page ${this.url} cannot be read: ${this.why}`;
  }

  /** Reason why the instance counts as failed: its page has another content, or has been silent for
   *  too long. */
  get failure(): string | undefined {
    if (this.why === undefined) return undefined;
    const silentMs = this.clock.monotonicMs() - this.lastMs;
    return this.isWrong || silentMs >= SILENT_MS_MAX ? this.reason : undefined;
  }

  private async load(): Promise<ScrapedPage | undefined> {
    let text: string;
    try {
      text = await textOf(this.url, {
        timeoutMs: SCRAPE_MS_MAX,
        bytesMax: EXPOSITION_BYTES_MAX,
        accept: 'text/plain',
      });
    } catch (thrown) {
      // The instance may be busy or ending.
      this.why = (thrown as Error).message;
      return undefined;
    }
    const kept = new Set([...this.needed.values()].map(({ name }) => name));
    try {
      return parseExposition(text, 'it', kept);
    } catch (thrown) {
      return this.wrong(findMillraceError(thrown)?.message ?? String(thrown));
    }
  }

  private wrong(why: string): undefined {
    this.why = why;
    this.isWrong = true;
    return undefined;
  }
}
