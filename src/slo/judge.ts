/** Judges scrapes by rules. Pure: what was read goes in, verdicts come out.
 *
 *  Invariants: (1) a metric that no process serves is `no data`, never met; (2) of a histogram no
 *  more is claimed than its buckets show: a quantile lies between two bounds, and a limit counts as
 *  met when the upper one meets it; (3) a counter that fell was started again, and what it shows
 *  since then counts whole.
 */
import { type Sample, type ScrapedPage, serves } from './exposition.ts';
import type { Bound, Selection, SloRule } from './rules.ts';

/** What one process said, in the order of time. */
export interface Scraped {
  readonly target: string;
  readonly scrapes: ReadonlyArray<{ readonly atMs: number; readonly page: ScrapedPage }>;
}

export interface RuleVerdict {
  readonly rule: SloRule;
  readonly verdict: 'met' | 'missed' | 'no_data';
  /** For a quantile the upper end of its bucket. Absent without data. */
  readonly value: number | undefined;
  /** The lower end of the bucket: the quantile lies between it and `value`. */
  readonly from: number | undefined;
  /** Why there is no data, or what else is to be known. */
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

/** With one scrape alone, every rule is judged over the life of the processes, except a ratio
 *  between two of them. */
export function judge(rules: readonly SloRule[], scraped: readonly Scraped[]): readonly RuleVerdict[] {
  const isOneLook = scraped.every(({ scrapes }) => scrapes.length <= 1);
  return rules.map((given) => {
    const rule: SloRule = isOneLook ? { ...given, over: 'life' } : given;
    const unserved = [...rule.of, ...rule.to]
      .map(({ metric }) => metric)
      .filter((metric) => !scraped.some(({ scrapes }) => scrapes.some(({ page }) => serves(page, metric))));
    const measured: Measured =
      unserved.length > 0
        ? { missing: `no process serves ${unserved.join(', ')}` }
        : isOneLook && given.over === 'window' && spansProcesses(given, scraped)
          ? { missing: 'its counters belong to processes that started at different times; give -for' }
          : measure(rule, scraped);
    if ('missing' in measured)
      return { rule, verdict: 'no_data', value: undefined, from: undefined, note: measured.missing };
    const { value, from, note } = measured;
    // The buckets of a histogram include their bound, so `below` cannot be told from `atMost`
    // there.
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

/** How much each series grew, or its value at the end. */
function grown(
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
  return sum(selections.flatMap((one) => [...grown(scraped, one, one.metric, over).values()]));
}

function secondsOf({ scrapes }: Scraped): number {
  return ((scrapes.at(-1)?.atMs ?? 0) - (scrapes[0]?.atMs ?? 0)) / 1000;
}

function rateOf(rule: SloRule, scraped: readonly Scraped[]): Measured {
  const seconds = Math.max(...scraped.map(secondsOf));
  if (seconds <= 0) return { missing: 'a rate needs two scrapes; give -for' };
  // Over the same time for all: a process that ended early made nothing after it.
  return { value: sum(scraped.map((one) => totalOf(one, rule.of, 'window'))) / seconds };
}

/** A ratio whose two sides are counted by different processes. Each counts since its own start, so
 *  the totals of one scrape do not compare: a relay that was restarted has published less than
 *  orders has created, and keeps up all the same. */
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
  // Where little is asked, nothing is fine; where much is, it says nothing.
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

/** Scrapes that a rise is told from. */
const RISE_SCRAPES_MIN = 6;

function riseOf(rule: SloRule, scraped: readonly Scraped[]): Measured {
  const rounds = Math.max(...scraped.map(({ scrapes }) => scrapes.length));
  if (rounds < RISE_SCRAPES_MIN)
    return {
      missing: `a rise is told from ${RISE_SCRAPES_MIN} scrapes or more; give a longer -for or a shorter -every`,
    };
  // A process that ended keeps what it said last: its backlog is still there.
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

function quantileOf(rule: SloRule, scraped: readonly Scraped[]): Measured {
  /** Cumulative, by the upper bound. */
  const buckets = new Map<number, number>();
  const shapes = new Set<string>();
  let whole = true;
  for (const one of scraped) {
    for (const selection of rule.of) {
      const own = new Set<number>();
      for (const [key, count] of grown(one, selection, `${selection.metric}_bucket`, rule.over)) {
        const le = new Map(JSON.parse(key) as Array<[string, string]>).get('le');
        const bound = le === undefined ? Number.NaN : Number(le.replace(/^\+?Inf$/i, 'Infinity'));
        if (Number.isNaN(bound)) whole = false;
        else buckets.set(bound, (buckets.get(bound) ?? 0) + count);
        own.add(bound);
      }
      if (own.size > 0) shapes.add([...own].sort((a, b) => a - b).join());
    }
  }
  const bounds = [...buckets.keys()].sort((a, b) => a - b);
  const total = buckets.get(Number.POSITIVE_INFINITY) ?? 0;
  if (!whole) return { missing: 'it is no histogram' };
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
