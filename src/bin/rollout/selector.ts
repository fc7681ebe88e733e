/** Metrics of an instance by name and labels: `orders_failed_total{reason!="tombstone"}`. */
import { coreError } from '../../core/errors.ts';
import { nearest } from '../../core/settings.ts';
import { type Sample, type ScrapedPage, serves } from '../../slo/exposition.ts';

interface LabelMatch {
  readonly label: string;
  readonly value: string;
  readonly isEqual: boolean;
}

export interface MetricSelector {
  /** Flag that named it. */
  readonly flag: string;
  readonly name: string;
  readonly labels: readonly LabelMatch[];
}

const FORM = /^\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?\s*$/s;
const LABEL = /\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(!?=)\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*(?:,|$)/y;
/** Names that an error lists. */
const LISTED_MAX = 8;

/** Parses a selector. @returns undefined for an empty text: nothing is measured
 *  @throws bad_value */
export function metricSelector(flag: string, text: string): MetricSelector | undefined {
  if (text.trim() === '') return undefined;
  const bad = (why: string): Error =>
    coreError('bad_value', `${flag}=${text} ${why}`, {
      next: 'give a metric such as orders_failed_total or orders_failed_total{topic="orders",reason!="tombstone"}',
    });
  const [, name, inside = ''] = FORM.exec(text) ?? [];
  if (name === undefined) throw bad('is not the name of a metric');
  const labels: LabelMatch[] = [];
  for (LABEL.lastIndex = 0; LABEL.lastIndex < inside.trimEnd().length; ) {
    const from = LABEL.lastIndex;
    const [, label, sign, quoted = ''] = LABEL.exec(inside) ?? [];
    if (label === undefined) throw bad(`has labels that cannot be read from ${inside.slice(from)}`);
    labels.push({ label, isEqual: sign === '=', value: quoted.slice(1, -1).replace(/\\(.)/gs, '$1') });
  }
  return { flag, name, labels };
}

/** Reason why a page does not serve a metric; undefined: it does. A family without a sample is
 *  served: its counters have not counted yet. */
export function missingReason({ flag, name, labels }: MetricSelector, page: ScrapedPage): string | undefined {
  if (!serves(page, name)) {
    const known = [...new Set([...page.kinds.keys(), ...page.samples.keys()])];
    const near = nearest(name, known);
    const rest =
      near === undefined
        ? `it has ${known.slice(0, LISTED_MAX).join(', ')}${known.length > LISTED_MAX ? ` and ${known.length - LISTED_MAX} more` : ''}`
        : `did you mean ${near}?`;
    return `it has no metric ${name} (${flag}); ${rest}`;
  }
  const samples = page.samples.get(name) ?? [];
  const unknown = labels.find(
    ({ label }) => samples.length > 0 && !samples.some((one) => label in one.labels),
  );
  return unknown === undefined ? undefined : `its metric ${name} has no label ${unknown.label} (${flag})`;
}

const matches = (labels: readonly LabelMatch[], sample: Sample): boolean =>
  labels.every(({ label, value, isEqual }) => ((sample.labels[label] ?? '') === value) === isEqual);

/** Sum of the samples that match. Values that are not finite, such as the NaN of a gauge without a
 *  value, are left out. */
export function sumOf({ name, labels }: MetricSelector, page: ScrapedPage): number {
  return (page.samples.get(name) ?? [])
    .filter((sample) => Number.isFinite(sample.value) && matches(labels, sample))
    .reduce((sum, { value }) => sum + value, 0);
}
