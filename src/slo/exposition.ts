/** Parses the Prometheus text format (version 0.0.4) into families and samples. Keeps families
 *  without a sample. */
import { coreError } from '../core/errors.ts';

export interface Sample {
  /** Name of the sample; for a histogram with `_bucket`, `_sum` or `_count`. */
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface ScrapedPage {
  /** Kinds of the served families, including those without a sample. */
  readonly kinds: ReadonlyMap<string, string>;
  readonly samples: ReadonlyMap<string, readonly Sample[]>;
}

export const EXPOSITION_BYTES_MAX = 16 << 20;
const SAMPLES_MAX = 200_000;
const LINE_CHARS_MAX = 65_536;
const NUMBER_CHARS_MAX = 64;

const NAME = /[a-zA-Z_:][a-zA-Z0-9_:]*/y;
const LABEL = /\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|(?=\}))/y;
const ESCAPES: Readonly<Record<string, string>> = { n: '\n', '"': '"', '\\': '\\' };

function numberOf(text: string): number | undefined {
  if (/^[+-]?inf$/i.test(text))
    return text.startsWith('-') ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  if (/^nan$/i.test(text)) return Number.NaN;
  if (text.length > NUMBER_CHARS_MAX) return undefined;
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : undefined;
}

/** Parses one line; undefined: it is not a sample. */
function sampleOf(line: string): Sample | undefined {
  NAME.lastIndex = 0;
  const name = NAME.exec(line)?.[0];
  if (name === undefined) return undefined;
  let at = name.length;
  const labels: Record<string, string> = Object.create(null) as Record<string, string>;
  if (line[at] === '{') {
    at++;
    while (line[at] !== '}') {
      LABEL.lastIndex = at;
      const match = LABEL.exec(line);
      if (match === null) return undefined;
      labels[match[1] as string] = (match[2] as string).replace(
        /\\(.)/gsu,
        (all, char: string) => ESCAPES[char] ?? all,
      );
      at = LABEL.lastIndex;
    }
    at++;
  }
  // A timestamp may follow the value, then an OpenMetrics exemplar after a hash.
  const [, text] = /^\s+(\S+)(?:\s+-?\d+(?:\.\d+)?)?\s*(?:#.*)?$/u.exec(line.slice(at)) ?? [];
  const value = text === undefined ? undefined : numberOf(text);
  return value === undefined ? undefined : { name, labels, value };
}

/** Parses a metrics page.
 *  @param keep names of the families whose samples are kept; absent: all
 *  @throws wrong_server if the text is not a metrics page */
export function parseExposition(text: string, where: string, keep?: ReadonlySet<string>): ScrapedPage {
  const bad = (why: string): Error =>
    coreError('wrong_server', `${where} is not a Prometheus metrics page: ${why}`, {
      next: 'give -scrape=http://host:port of a process that serves /metrics',
    });
  const kinds = new Map<string, string>();
  const samples = new Map<string, Sample[]>();
  let count = 0;
  text.split('\n').forEach((raw, index) => {
    const line = raw.trim();
    const type = /^#\s*TYPE\s+(\S+)\s+(\S+)$/u.exec(line);
    if (type !== null) kinds.set(type[1] as string, type[2] as string);
    if (line === '' || line.startsWith('#')) return;
    const sample = line.length > LINE_CHARS_MAX ? undefined : sampleOf(line);
    if (sample === undefined) throw bad(`line ${index + 1} is not a sample`);
    if (++count > SAMPLES_MAX) throw bad(`more than ${SAMPLES_MAX} samples`);
    if (keep !== undefined && !keep.has(sample.name.replace(/_bucket$/, ''))) return;
    const known = samples.get(sample.name);
    if (known === undefined) samples.set(sample.name, [sample]);
    else known.push(sample);
  });
  if (count === 0 && kinds.size === 0) throw bad('it has no sample');
  return { kinds, samples };
}

export function serves({ kinds, samples }: ScrapedPage, metric: string): boolean {
  return kinds.has(metric) || samples.has(metric) || samples.has(`${metric}_bucket`);
}
