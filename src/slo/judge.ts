/** Evaluates rules over scrapes of metrics pages. Pure: scrapes in, verdicts out.
 *  Invariants: (1) A rule over a metric that no process serves is `no_data`, never met. (2) A
 *  histogram proves only what its buckets show: a quantile lies between two bounds, and meets a
 *  limit if the upper bound does. (3) A counter that decreased belongs to a restarted process, so
 *  its whole new value is added. */
import { type Sample, type ScrapedPage, serves } from './exposition.ts';
import type { Bound, Selection, SloRule } from './rules.ts';

/** Scrapes of one process, in order of time. */
export interface Scraped {
  readonly target: string;
  readonly scrapes: ReadonlyArray<{ readonly atMs: number; readonly page: ScrapedPage }>;
}

export interface RuleVerdict {
  readonly rule: SloRule;
  readonly verdict: 'met' | 'missed' | 'no_data';
  /** Measured value; for a quantile the upper bound of its bucket. Absent without data. */
  readonly value: number | undefined;
  /** Lower bound of the bucket: the quantile lies between it and `value`. */
  readonly from: number | undefined;
  /** Reason of missing data, or a remark on the value. */
  readonly note: string;
}

type Series = ReadonlyMap<string, number>;
type Measured =
  | { readonly value: number; readonly from?: number; readonly note?: string }
  | { readonly missing: string };

const meets: Readonly<Record<Bound, (value: number, limit: number) => boolean>> = {
  below: (value, limit) => value < limit,
  above: (value, limit) => value > limit,
  atMost: (value, limit) => value <= limit,
  atLeast: (value, limit) => value >= limit,
};

/** Evaluates all rules. With a single scrape, every rule is evaluated over the life of the
 *  processes, except ratios between two processes. */
export function judge(rules: readonly SloRule[], scraped: readonly Scraped[]): readonly RuleVerdict[] {
  const isSingleScrape = scraped.every(({ scrapes }) => scrapes.length <= 1);
  return rules.map((given) => {
    const rule: SloRule = isSingleScrape ? { ...given, over: 'life' } : given;
    const unserved = [...rule.of, ...rule.to]
      .map(({ metric }) => metric)
      .filter((metric) => !scraped.some(({ scrapes }) => scrapes.some(({ page }) => serves(page, metric))));
    const measured: Measured =
      unserved.length > 0
        ? { missing: `no process serves ${unserved.join(', ')}` }
        : isSingleScrape && given.over === 'window' && spansProcesses(given, scraped)
          ? { missing: 'its counters belong to processes that started at different times; give -for' }
          : measure(rule, scraped);
    if ('missing' in measured)
      return { rule, verdict: 'no_data', value: undefined, from: undefined, note: measured.missing };
    const { value, from, note } = measured;
    // Buckets include their upper bound, so `below` and `atMost` are the same here.
    const bound = rule.measure === 'quantile' && rule.bound === 'below' ? 'atMost' : rule.bound;
    const verdict = meets[bound](value, rule.limit) ? 'met' : 'missed';
    return { rule, verdict, value, from, note: note ?? '' };
  });
}

function measure(rule: SloRule, scraped: readonly Scraped[]): Measured {
  switch (rule.measure) {
    case 'total':
      return { value: sum(scraped.map((one) => totalOf(one, rule.of, rule.over))) };
    case 'rate':
      return rateOf(rule, scraped);
    case 'ratio':
      return ratioOf(rule, scraped);
    case 'rise':
      return riseOf(rule, scraped);
    case 'spread':
      return spreadOf(rule, scraped);
    case 'quantile':
      return quantileOf(rule, scraped);
  }
}

const sum = (values: readonly number[]): number => values.reduce((all, one) => all + one, 0);

function matches({ where }: Selection, sample: Sample): boolean {
  return Object.entries(where).every(([label, values]) => values.includes(sample.labels[label] ?? ''));
}

function seriesOf(page: ScrapedPage, selection: Selection, name: string): Series {
  const series = new Map<string, number>();
  for (const sample of page.samples.get(name) ?? []) {
    if (matches(selection, sample))
      series.set(JSON.stringify(Object.entries(sample.labels).sort()), sample.value);
  }
  return series;
}

/** Returns the growth of each series, or its last value if `over` is `life`. */
function growthOf(
  { scrapes }: Scraped,
  selection: Selection,
  name: string,
  over: SloRule['over'],
): Map<string, number> {
  const pages = over === 'life' ? scrapes.slice(-1) : scrapes;
  const growth = new Map<string, number>();
  let before: Series | undefined;
  for (const { page } of pages) {
    const now = seriesOf(page, selection, name);
    for (const [key, value] of now) {
      const old = before?.get(key) ?? 0;
      const more = over === 'life' || value < old ? value : before === undefined ? 0 : value - old;
      growth.set(key, (growth.get(key) ?? 0) + more);
    }
    before = now;
  }
  return growth;
}

function totalOf(scraped: Scraped, selections: readonly Selection[], over: SloRule['over']): number {
  return sum(selections.flatMap((one) => [...growthOf(scraped, one, one.metric, over).values()]));
}

function secondsOf({ scrapes }: Scraped): number {
  return ((scrapes.at(-1)?.atMs ?? 0) - (scrapes[0]?.atMs ?? 0)) / 1000;
}

function rateOf(rule: SloRule, scraped: readonly Scraped[]): Measured {
  const seconds = Math.max(...scraped.map(secondsOf));
  if (seconds <= 0) return { missing: 'a rate needs two scrapes; give -for' };
  // All processes share one duration: a process that ended early counted nothing afterwards.
  return { value: sum(scraped.map((one) => totalOf(one, rule.of, 'window'))) / seconds };
}

/** True if different processes count the two sides of a ratio. Each counts since its own start, so
 *  the totals of a single scrape are not comparable: a restarted relay has published less than
 *  orders has created, although it keeps up. */
function spansProcesses({ measure: kind, each, of, to }: SloRule, scraped: readonly Scraped[]): boolean {
  if (kind !== 'ratio' || each === 'process') return false;
  const servers = (side: readonly Selection[]): string =>
    scraped
      .filter(({ scrapes }) => side.some(({ metric }) => scrapes.some(({ page }) => serves(page, metric))))
      .map(({ target }) => target)
      .join();
  return servers(of) !== servers(to);
}

function ratioOf(rule: SloRule, scraped: readonly Scraped[]): Measured {
  const parts = scraped.map((one) => ({
    target: one.target,
    of: totalOf(one, rule.of, rule.over),
    to: totalOf(one, rule.to, rule.over),
  }));
  // Without counts, an upper limit is met; a lower limit has no data.
  const isCeiling = rule.bound === 'atMost' || rule.bound === 'below';
  const nothing: Measured = isCeiling
    ? { value: 0, note: 'nothing was counted' }
    : {
        missing: rule.over === 'window' ? 'nothing was counted in this time' : 'nothing was counted',
      };
  if (rule.each === 'all') {
    const to = sum(parts.map((part) => part.to));
    return to === 0 ? nothing : { value: sum(parts.map((part) => part.of)) / to };
  }
  let worst: { readonly target: string; readonly value: number } | undefined;
  for (const { target, of, to } of parts) {
    if (of === 0 && to === 0) continue;
    const value = to === 0 ? Number.POSITIVE_INFINITY : of / to;
    if (worst === undefined || value > worst.value) worst = { target, value };
  }
  return worst === undefined ? nothing : { value: worst.value, note: `at ${worst.target}` };
}

/** Least number of scrapes from which a rise is computed. */
const RISE_SCRAPES_MIN = 6;

function riseOf(rule: SloRule, scraped: readonly Scraped[]): Measured {
  const rounds = Math.max(...scraped.map(({ scrapes }) => scrapes.length));
  if (rounds < RISE_SCRAPES_MIN)
    return {
      missing: `a rise needs at least ${RISE_SCRAPES_MIN} scrapes; give a longer -for or a shorter -every`,
    };
  // The last value of a process that ended still counts: its backlog still exists.
  const values = Array.from({ length: rounds }, (_, round) =>
    sum(
      scraped.map(({ scrapes }) => {
        const page = scrapes[Math.min(round, scrapes.length - 1)]?.page;
        return page === undefined
          ? 0
          : sum(rule.of.flatMap((one) => [...seriesOf(page, one, one.metric).values()]));
      }),
    ),
  );
  const third = Math.floor(rounds / 3);
  const value = Math.min(...values.slice(-third)) - Math.max(...values.slice(0, third));
  return {
    value,
    note: `from ${Math.max(...values.slice(0, third))} to ${Math.min(...values.slice(-third))}`,
  };
}

function spreadOf(rule: SloRule, scraped: readonly Scraped[]): Measured {
  /** Values of the last scrapes, by series. */
  const values = new Map<string, Array<{ readonly target: string; readonly value: number }>>();
  for (const { target, scrapes } of scraped) {
    const page = scrapes.at(-1)?.page;
    if (page === undefined) continue;
    for (const selection of rule.of)
      for (const [key, value] of seriesOf(page, selection, selection.metric)) {
        const known = values.get(key);
        if (known === undefined) values.set(key, [{ target, value }]);
        else known.push({ target, value });
      }
  }
  let widest: { readonly value: number; readonly note: string } | undefined;
  for (const all of values.values()) {
    const sorted = all.sort((a, b) => a.value - b.value);
    const [least, greatest] = [sorted[0], sorted.at(-1)];
    if (least === undefined || greatest === undefined) continue;
    const value = greatest.value - least.value;
    if (widest !== undefined && value <= widest.value) continue;
    const note =
      value === 0
        ? `${least.value} everywhere`
        : `${least.value} at ${least.target}, ${greatest.value} at ${greatest.target}`;
    widest = { value, note };
  }
  return widest ?? { missing: 'no process has a value' };
}

function quantileOf(rule: SloRule, scraped: readonly Scraped[]): Measured {
  /** Cumulative counts by upper bound. */
  const buckets = new Map<number, number>();
  const shapes = new Set<string>();
  let isHistogram = true;
  for (const one of scraped) {
    for (const selection of rule.of) {
      const own = new Set<number>();
      for (const [key, count] of growthOf(one, selection, `${selection.metric}_bucket`, rule.over)) {
        const le = new Map(JSON.parse(key) as Array<[string, string]>).get('le');
        const bound = le === undefined ? Number.NaN : Number(le.replace(/^\+?Inf$/i, 'Infinity'));
        if (Number.isNaN(bound)) isHistogram = false;
        else buckets.set(bound, (buckets.get(bound) ?? 0) + count);
        own.add(bound);
      }
      if (own.size > 0) shapes.add([...own].sort((a, b) => a - b).join());
    }
  }
  const bounds = [...buckets.keys()].sort((a, b) => a - b);
  const total = buckets.get(Number.POSITIVE_INFINITY) ?? 0;
  if (!isHistogram) return { missing: 'the metric is not a histogram' };
  if (shapes.size > 1) return { missing: 'the processes have different buckets' };
  if (total === 0)
    return { missing: rule.over === 'window' ? 'nothing was observed in this time' : 'nothing was observed' };
  let from = 0;
  for (const bound of bounds) {
    if ((buckets.get(bound) as number) >= rule.q * total)
      return { value: bound, from, note: `of ${total} observations, to the bucket's width` };
    from = bound;
  }
  return { missing: 'its buckets do not add up' };
}
