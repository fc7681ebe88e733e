/** Parses SLO rules: a measure over metrics, and the limit that the requirements set for it.
 *
 *  measure   quantile   of a histogram over all processes; `q` from 0 to 1
 *            rate       growth of a counter per second, over all processes
 *            total      of a counter or gauge, over all processes
 *            ratio      of two totals, `of` to `to`; with `each: "process"` the greatest ratio of
 *                       any one process
 *            rise       of a gauge: its least value in the last third of the scrapes minus its
 *                       greatest in the first third, so an oscillation is not a rise
 *            spread     of a gauge: the greatest difference between two processes in a series of
 *                       the same labels
 *  over      window: from the first scrape to the last; life: since the processes started, and
 *            the last value of a gauge
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { coreError } from '../core/errors.ts';
import { packageRoot } from '../shell/package.ts';

export const MEASURES = ['quantile', 'rate', 'total', 'ratio', 'rise', 'spread'] as const;
export const BOUNDS = ['below', 'above', 'atMost', 'atLeast'] as const;
export type Bound = (typeof BOUNDS)[number];

export interface Selection {
  readonly metric: string;
  /** Label values that a series must have; if a label lists several, one of them. */
  readonly where: Readonly<Record<string, readonly string[]>>;
}

export interface SloRule {
  readonly id: string;
  /** Limit in the words of the requirements. */
  readonly says: string;
  readonly measure: (typeof MEASURES)[number];
  /** Metrics whose values are summed. */
  readonly of: readonly Selection[];
  /** Denominator of a ratio. */
  readonly to: readonly Selection[];
  readonly q: number;
  readonly each: 'all' | 'process';
  readonly over: 'window' | 'life';
  readonly bound: Bound;
  readonly limit: number;
  readonly unit: string;
}

export interface RuleSet {
  readonly name: string;
  readonly source: string;
  readonly rules: readonly SloRule[];
}

const RULES_BYTES_MAX = 1 << 20;
/** Built-in rules, one set for each product. */
export const BUILT_IN = ['registry', 'outbox', 'engine'] as const;

function builtInPath(name: string): string {
  return join(packageRoot(), 'docs', 'reference', 'slo', `${name}.json`);
}

/** @throws bad_file */
export function readRules(nameOrPath: string): RuleSet {
  const path = (BUILT_IN as readonly string[]).includes(nameOrPath) ? builtInPath(nameOrPath) : nameOrPath;
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw coreError(
      'bad_file',
      `the rules ${path} cannot be read (${(cause as NodeJS.ErrnoException).code})`,
      {
        next: `give -rules=FILE, or one of ${BUILT_IN.join(', ')}`,
        cause,
      },
    );
  }
  return parseRules(text, path);
}

type Document = Readonly<Record<string, unknown>>;

/** Parses a rule file. @throws bad_file with the position of the rule */
export function parseRules(text: string, where: string): RuleSet {
  const bad = (why: string, cause?: unknown): Error =>
    coreError('bad_file', `${where}: ${why}`, {
      next: 'docs/reference/slo/registry.json is an example',
      cause,
    });
  if (text.length > RULES_BYTES_MAX) throw bad(`over ${RULES_BYTES_MAX} bytes`);
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch (cause) {
    throw bad(`not JSON (${(cause as Error).message})`, cause);
  }
  if (!isDocument(document) || !Array.isArray(document['rules']) || document['rules'].length === 0)
    throw bad('not a document with a list of rules');
  const ids = new Set<string>();
  const rules = document['rules'].map((one: unknown, index) => {
    const rule = isDocument(one) ? ruleOf(one) : 'is not an object';
    if (typeof rule === 'string') throw bad(`rule ${index + 1} ${rule}`);
    if (ids.has(rule.id)) throw bad(`rule ${index + 1} repeats the id ${rule.id}`);
    ids.add(rule.id);
    return rule;
  });
  return {
    name: typeof document['name'] === 'string' ? document['name'] : where,
    source: typeof document['source'] === 'string' ? document['source'] : '',
    rules,
  };
}

const isDocument = (value: unknown): value is Document =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const KNOWN = ['id', 'says', 'measure', 'of', 'to', 'q', 'each', 'over', 'unit', ...BOUNDS];

/** Returns the rule, or the reason why it is invalid. */
function ruleOf(document: Document): SloRule | string {
  const unknown = Object.keys(document).find((name) => !KNOWN.includes(name));
  if (unknown !== undefined) return `has a property ${JSON.stringify(unknown)} that is not known`;
  const { id, says, measure, q, each, over, unit } = document;
  if (typeof id !== 'string' || !/^[a-z0-9_]{1,64}$/.test(id))
    return 'has no id of letters, digits and underscores';
  if (typeof says !== 'string' || says === '') return 'has no text in "says"';
  const known = MEASURES.find((one) => one === measure);
  if (known === undefined) return `needs a measure of ${MEASURES.join(', ')}`;
  const bounds = BOUNDS.filter((one) => one in document);
  const bound = bounds[0];
  const limit = bound === undefined ? undefined : document[bound];
  if (bound === undefined || bounds.length > 1 || typeof limit !== 'number' || !Number.isFinite(limit))
    return `needs exactly one limit of ${BOUNDS.join(', ')}`;
  if (known === 'quantile' && !(typeof q === 'number' && q > 0 && q <= 1))
    return 'has no q over 0 and up to 1';
  if (each !== undefined && each !== 'process' && each !== 'all')
    return 'has an each that is not process or all';
  if (over !== undefined && over !== 'window' && over !== 'life')
    return 'has an over that is not window or life';
  if (over === 'life' && (known === 'rate' || known === 'rise')) return `cannot measure a ${known} over life`;
  const of = selectionsOf(document['of']);
  const to = known === 'ratio' ? selectionsOf(document['to']) : [];
  if (of === undefined || to === undefined) return 'does not select metrics';
  return {
    id,
    says,
    measure: known,
    of,
    to,
    q: typeof q === 'number' ? q : 0,
    each: each === 'process' ? 'process' : 'all',
    over: over === 'life' ? 'life' : 'window',
    bound,
    limit,
    unit: typeof unit === 'string' ? unit : '',
  };
}

function selectionsOf(value: unknown): readonly Selection[] | undefined {
  const all = Array.isArray(value) ? value : [value];
  const selections = all.map((one: unknown): Selection | undefined => {
    if (!isDocument(one) || typeof one['metric'] !== 'string') return undefined;
    const where = one['where'] ?? {};
    if (!isDocument(where)) return undefined;
    const entries = Object.entries(where).map(
      ([label, values]) => [label, (Array.isArray(values) ? values : [values]).map(String)] as const,
    );
    return { metric: one['metric'], where: Object.fromEntries(entries) };
  });
  return selections.length === 0 || selections.includes(undefined) ? undefined : (selections as Selection[]);
}
