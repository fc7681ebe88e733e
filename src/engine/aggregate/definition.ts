/** Aggregates of a job: `count,sum(amount),avg(price:double),sum(total:decimal2)`,
 *  `p99(latency),distinct(user),topk(sku,10)`.
 *
 *  Each is a function of the set of events of a window: it ignores null, and ties of first and last
 *  are decided by event time, partition, offset and the element of a list. */
import { AGGREGATE } from '../../core/layout/layouts.gen.ts';
import { type AggregateStep, isPlaced, PLACE_COLUMNS, RowForm } from '../../core/layout/row-form.ts';
import { engineError } from '../errors.ts';
import { PATH_NEXT, pathFault, plainPath } from '../source/list/path.ts';

export const AGGREGATE_FUNCTIONS = [
  'count',
  'sum',
  'min',
  'max',
  'avg',
  'first',
  'last',
  'distinct',
  'percentile',
  'topk',
] as const;
export type AggregateFunction = (typeof AGGREGATE_FUNCTIONS)[number];
/** Percentile: `p50`, `p99`, `p99.9`. */
const PERCENTILE = /^p(\d{1,2}(?:\.\d{1,3})?)$/;

/** Kinds that the text of a field names: integers of 64 bits, or doubles. */
const NUMBER_KINDS = ['long', 'double'] as const;
/** Decimal, with its number of decimal places. */
const DECIMAL_KIND = /^decimal(0|[1-9]\d{0,3})?$/;
/** Greatest number of decimal places of a field: a value times 10 to it has 64 bits. */
export const DECIMAL_SCALE_MAX = 18;
/** Decimal places that an average has more than its values. */
export const AVERAGE_PLACES = 6;
/** Values of a field: of a kind that its text names, or identifiers, which are compared and not
 *  computed with: their hashes, or their texts too. A decimal is an integer of 64 bits, the value
 *  times 10^scale. */
export type ValueKind = (typeof NUMBER_KINDS)[number] | 'decimal' | 'id' | 'text';

export interface AggregateField {
  readonly path: readonly string[];
  readonly kind: ValueKind;
  /** Decimal places of a decimal; otherwise absent. */
  readonly scale?: number;
}

export interface AggregateSpec {
  readonly function: AggregateFunction;
  /** Absent: count of all events. */
  readonly field?: AggregateField;
  /** Percent of a percentile, above 0 and below 100: decimal digits. */
  readonly percent?: string;
  /** Greatest number of values of topk. */
  readonly limit?: number;
  /** Name of its column in the results. */
  readonly name: string;
  /** It has values in windows that start after this event time, ms; absent: in all. */
  readonly since?: number;
}

/** Greatest number of values that topk lists. */
const TOP_VALUES_MAX = 100;

/** Greatest number of aggregates of a job. */
const AGGREGATES_MAX = 64;
const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/;
/** Behind the name of an aggregate, the name of the column with its error. */
export const ERROR_SUFFIX = '_error';
/** Names of other columns of the results. */
const RESERVED = ['account_id', 'window_start', 'window_end', 'last_update_ts', 'overflow'];

const wrong = (text: string, why: string, next: string, flag = 'aggregate'): Error =>
  engineError('bad_setting', `-${flag}=${text.slice(0, 200)} ${why}`, { next });

/** Splits a list of aggregates at the commas outside of parentheses. */
export function splitAggregates(text: string): readonly string[] {
  const parts: string[] = [];
  let depth = 0;
  let from = 0;
  for (let at = 0; at < text.length; at++) {
    const char = text[at];
    if (char === '(') depth++;
    else if (char === ')') depth--;
    else if (char === ',' && depth === 0) {
      parts.push(text.slice(from, at));
      from = at + 1;
    }
  }
  parts.push(text.slice(from));
  return parts;
}

/** Field with a stated kind: `price:double`, `price:decimal2`. Undefined: none is stated. */
function statedKind(part: string): AggregateField | undefined {
  const at = part.lastIndexOf(':');
  const suffix = part.slice(at + 1);
  if (at < 1) return undefined;
  const path = part.slice(0, at).split('.');
  const kind = NUMBER_KINDS.find((one) => one === suffix);
  if (kind !== undefined) return { path, kind };
  const found = DECIMAL_KIND.exec(suffix);
  return found === null ? undefined : { path, kind: 'decimal', scale: Number(found[1]) };
}

/** Field of a text such as `price:decimal2` if it states a decimal; undefined otherwise.
 *  @throws bad_setting for a number of places that is missing or too great, or no path
 *  @param flag setting of the text */
export function decimalField(flag: 'value' | 'aggregate', text: string): AggregateField | undefined {
  const field = statedKind(text);
  if (field?.kind !== 'decimal') return undefined;
  const { path, scale = Number.NaN } = field;
  if (!(scale <= DECIMAL_SCALE_MAX))
    throw wrong(
      text,
      'does not state how many decimal places the decimal has',
      `give it from 0 to ${DECIMAL_SCALE_MAX}, such as ${path.join('.')}:decimal2`,
      flag,
    );
  const fault = faultOf(path);
  if (fault !== undefined)
    throw wrong(text, fault, `${PATH_NEXT}, and its kind: price.amount:decimal2`, flag);
  return field;
}

/** Why names are no path that an aggregate may have; undefined: they are one. */
const faultOf = (path: readonly string[]): string | undefined =>
  path.some((name) => /[(),]/.test(name)) ? 'is not the path of a field' : pathFault(path);

function fieldOf(text: string, part: string, plain: ValueKind): AggregateField {
  const stated = plain === 'text' ? undefined : (decimalField('aggregate', part) ?? statedKind(part));
  if (stated !== undefined && faultOf(stated.path) === undefined) return stated;
  const path = part.split('.');
  const fault = faultOf(path);
  if (fault !== undefined)
    throw wrong(
      text,
      `names ${JSON.stringify(part)}, which ${fault}`,
      `${PATH_NEXT}, and its kind unless it is an integer: sum(price.amount:double), or sum(price.amount:decimal2) for a decimal with 2 decimal places`,
    );
  return { path, kind: plain };
}

/** Text of a field with its kind. */
export const fieldText = ({ path, kind, scale }: AggregateField): string =>
  `${path.join('.')}${kind === 'double' ? ':double' : kind === 'decimal' ? `:decimal${scale}` : ''}`;

/** Aggregates that the results of a decimal `-value` have; undefined: the text states no decimal.
 *  @throws bad_setting */
export function valueAggregates(value: string): string | undefined {
  const field = decimalField('value', value);
  if (field === undefined) return undefined;
  const text = fieldText(field);
  return `count,sum(${text}) as sum,min(${text}) as min,max(${text}) as max`;
}

/** Plain kind of the field of a function. */
const plainKind = (name: AggregateFunction): ValueKind =>
  name === 'distinct' ? 'id' : name === 'topk' ? 'text' : 'long';

/** Splits the arguments of topk. */
function topOf(text: string, inner: string): { readonly path: string; readonly limit: number } {
  const [, path, digits] = /^(.+?)\s*,\s*(\d+)$/.exec(inner) ?? [];
  const limit = Number(digits);
  if (path === undefined || limit < 1 || limit > TOP_VALUES_MAX)
    throw wrong(
      text,
      `has topk(${inner})`,
      `give topk(FIELD,N), with N from 1 to ${TOP_VALUES_MAX}: topk(sku,10)`,
    );
  return { path, limit };
}

function specOf(text: string, part: string): AggregateSpec {
  const match =
    /^\s*([a-z][a-z0-9.]*)\s*(?:\(\s*([^()]*?)\s*\))?(?:\s+as\s+(\S+))?(?:\s+since\s+(-?\d{1,16}))?\s*$/.exec(
      part,
    );
  const name = match?.[1];
  const percent = PERCENTILE.exec(name ?? '')?.[1];
  const known = AGGREGATE_FUNCTIONS.find((one) =>
    one === 'percentile' ? percent !== undefined && Number(percent) > 0 : one === name,
  );
  if (match === null || known === undefined)
    throw wrong(
      text,
      `has ${JSON.stringify(part.trim())}, which is no aggregate`,
      `give ${AGGREGATE_FUNCTIONS.map(formOfFunction).join(', ')}, with commas between them, each with an optional name: sum(amount) as revenue`,
    );
  const inner = match[2];
  if ((inner === undefined || inner === '') && known !== 'count')
    throw wrong(text, `has ${name} without a field`, `give ${name}(FIELD)`);
  const top = known === 'topk' ? topOf(text, inner ?? '') : undefined;
  const path = top?.path ?? inner;
  const field = path === undefined || path === '' ? undefined : fieldOf(text, path, plainKind(known));
  const column = match[3] ?? [name, ...plainPath(field?.path ?? [])].join('_').replace(/[^A-Za-z0-9_]/g, '_');
  if (!NAME.test(column) || RESERVED.includes(column))
    throw wrong(
      text,
      `has the name ${JSON.stringify(column)}`,
      `give another name: ${name}(${inner ?? ''}) as NAME, of letters, digits and _, at most 63, and none of ${RESERVED.join(', ')}`,
    );
  const measured = percent === undefined ? top && { limit: top.limit } : { percent };
  const since = match[4] === undefined ? {} : { since: Number(match[4]) };
  return { function: known, ...(field === undefined ? {} : { field }), ...measured, name: column, ...since };
}

const formOfFunction = (name: AggregateFunction): string => FORMS[name] ?? `${name}(FIELD)`;
const FORMS: Readonly<Partial<Record<AggregateFunction, string>>> = {
  count: 'count',
  percentile: 'p99(FIELD)',
  topk: 'topk(FIELD,10)',
};

/** Functions whose steps are sketches. */
const SKETCHED: readonly AggregateFunction[] = ['distinct', 'percentile', 'topk'];

/** Name of the column with the error of an aggregate; undefined: it is exact. */
export const errorName = ({ function: name, name: column }: AggregateSpec): string | undefined =>
  SKETCHED.includes(name) ? `${column}${ERROR_SUFFIX}` : undefined;

/** Names of the values of aggregates: each has one, and behind it one for its error. */
export const valueNames = (specs: readonly AggregateSpec[]): readonly string[] =>
  specs.flatMap((spec) => [spec.name, errorName(spec) ?? []].flat());

/** @throws bad_setting */
export function aggregateSpecs(text: string): readonly AggregateSpec[] {
  const specs = splitAggregates(text).map((part) => specOf(text, part));
  if (specs.length > AGGREGATES_MAX)
    throw wrong(text, `has ${specs.length} aggregates`, `give at most ${AGGREGATES_MAX}`);
  const names = valueNames(specs);
  const twice = names.find((name, at) => names.indexOf(name) < at);
  if (twice !== undefined)
    throw wrong(text, `has the name ${twice} twice`, 'name one of them: sum(amount) as NAME');
  const long = names.find((name) => !NAME.test(name));
  if (long !== undefined)
    throw wrong(text, `has the name ${long}`, 'name it with at most 57 characters: … as NAME');
  const always = Number.NEGATIVE_INFINITY;
  const early = specs.find(({ since = always }, at) => since < (specs[at - 1]?.since ?? always));
  if (early !== undefined)
    throw wrong(
      text,
      `has ${early.name} behind an aggregate that was added later`,
      'give aggregates in the order in which they were added',
    );
  return specs;
}

/** Steps that a function needs beside the count of the field's values. */
const STEPS: Readonly<Record<AggregateFunction, Readonly<Partial<Record<ValueKind, readonly number[]>>>>> = {
  count: {},
  sum: numbers(AGGREGATE.SUM, AGGREGATE.SUM_DOUBLE),
  avg: numbers(AGGREGATE.SUM, AGGREGATE.SUM_DOUBLE),
  min: numbers(AGGREGATE.MIN, AGGREGATE.MIN_DOUBLE),
  max: numbers(AGGREGATE.MAX, AGGREGATE.MAX_DOUBLE),
  first: numbers(AGGREGATE.FIRST, AGGREGATE.FIRST),
  last: numbers(AGGREGATE.LAST, AGGREGATE.LAST),
  distinct: {
    ...numbers(AGGREGATE.DISTINCT, AGGREGATE.DISTINCT_DOUBLE),
    id: [AGGREGATE.DISTINCT],
  },
  percentile: numbers(AGGREGATE.BUCKETS, AGGREGATE.BUCKETS_DOUBLE),
  topk: { text: [AGGREGATE.TOP] },
};

/** Steps of integers, which decimals have too, and of doubles. */
function numbers(
  integer: number,
  double: number,
): Readonly<Record<'long' | 'decimal' | 'double', readonly number[]>> {
  return { long: [integer], decimal: [integer], double: [double] };
}

/** A column of the values, and the field that fills it. */
export interface FieldColumn extends AggregateField {
  readonly column: number;
}

interface Plan {
  readonly specs: readonly AggregateSpec[];
  readonly fields: readonly FieldColumn[];
  readonly steps: readonly AggregateStep[];
}

/** @throws bad_setting */
function planOf(text: string): Plan {
  const specs = aggregateSpecs(text);
  const needsPlace = specs.some(({ function: name, field }) =>
    (STEPS[name][field?.kind ?? 'long'] ?? []).some(isPlaced),
  );
  const fields: FieldColumn[] = [];
  const steps: AggregateStep[] = [];
  const add = (kind: number, column: number): void => {
    if (!steps.some((step) => step.kind === kind && step.column === column)) steps.push({ kind, column });
  };
  for (const { function: name, field } of specs) {
    if (field === undefined) continue;
    let known = fields.find((one) => isSameField(one, field));
    if (known === undefined) {
      known = { ...field, column: (needsPlace ? PLACE_COLUMNS : 0) + fields.length };
      fields.push(known);
    }
    // A sketch knows whether it has a value.
    if (!SKETCHED.includes(name)) add(AGGREGATE.COUNT, known.column);
    for (const kind of STEPS[name][field.kind] ?? []) add(kind, known.column);
  }
  return { specs, fields, steps };
}

/** Aggregates of a job, which are the form of its rows. */
export class Aggregates extends RowForm {
  readonly text: string;
  readonly specs: readonly AggregateSpec[];
  /** Columns that the input fills; columns before them hold the place of an event's record. */
  readonly fields: readonly FieldColumn[];

  private constructor(text: string, { specs, fields, steps }: Plan) {
    super(steps);
    this.text = text;
    this.specs = specs;
    this.fields = fields;
  }

  /** @throws bad_setting */
  static of(text: string): Aggregates {
    const plan = planOf(text);
    try {
      return new Aggregates(text, plan);
    } catch {
      throw wrong(text, 'needs rows of more than 32 KiB', 'give fewer aggregates');
    }
  }

  /** Number of the first cell of a step, counted from the end of the head. */
  cellOf(kind: number, field: AggregateField): number {
    const { column } = this.fields.find((one) => isSameField(one, field)) as FieldColumn;
    const step = this.steps.findIndex((one) => one.kind === kind && one.column === column);
    return (this.places[step] as RowForm['places'][number]).first;
  }
}

/** Aggregates, the fields of their values, and the columns that these fill. */
export type ValueFields = Pick<Aggregates, 'specs' | 'fields' | 'columns' | 'needsPlace'>;

/** Aggregates of several jobs, whose fields have one column each. @throws bad_setting */
export function valueFields(texts: readonly string[]): ValueFields {
  const all = texts.map((text) => Aggregates.of(text));
  const needsPlace = all.some((one) => one.needsPlace);
  const first = needsPlace ? PLACE_COLUMNS : 0;
  const fields: FieldColumn[] = [];
  for (const field of all.flatMap((one) => one.fields))
    if (!fields.some((known) => isSameField(known, field)))
      fields.push({ ...field, column: first + fields.length });
  const specs = all.flatMap((one) => one.specs);
  return { specs, fields, columns: first + fields.length, needsPlace };
}

export const isSameField = (a: AggregateField, b: AggregateField): boolean =>
  a.kind === b.kind && a.scale === b.scale && a.path.join('.') === b.path.join('.');

/** True if two texts define the same aggregates. @throws bad_setting */
export const isSameAggregates = (a: string, b: string): boolean =>
  JSON.stringify(aggregateSpecs(a)) === JSON.stringify(aggregateSpecs(b));

/** Text of aggregates without the times since which they exist. @throws bad_setting */
export const plainAggregates = (text: string): string =>
  splitAggregates(text)
    .map((part) => part.replace(/\s+since\s+-?\d+\s*$/, '').trim())
    .join();

/** True if `asked` is `saved`; a text that does not say since when matches one that does. */
function isSpec({ since: savedSince, ...saved }: AggregateSpec, { since, ...asked }: AggregateSpec): boolean {
  return JSON.stringify(saved) === JSON.stringify(asked) && (since === undefined || since === savedSince);
}

export interface AggregateChange {
  /** Texts of the aggregates that the saved ones lack. */
  readonly added: readonly string[];
  /** True if the saved ones may become those that are asked: none is removed, and the run decides
   *  since when the others exist. */
  readonly isAllowed: boolean;
}

/** Change from saved aggregates to those that a run asks for, in any order. @throws bad_setting */
export function aggregateChange(saved: string, asked: string): AggregateChange {
  const was = aggregateSpecs(saved);
  const is = aggregateSpecs(asked);
  const texts = splitAggregates(asked);
  const isNew = (spec: AggregateSpec): boolean => !was.some((one) => isSpec(one, spec));
  const added = is.flatMap((spec, at) => (isNew(spec) ? [(texts[at] as string).trim()] : []));
  const isKept = was.every((spec) => is.some((one) => isSpec(spec, one)));
  const isAllowed = isKept && is.every((spec) => spec.since === undefined || !isNew(spec));
  return { added, isAllowed };
}

/** Text of saved aggregates with those that a run adds behind them, which have values in windows
 *  that start after `since`. @param since undefined: there was no event yet */
export function withAdded(saved: string, added: readonly string[], since: number | undefined): string {
  const suffix = since === undefined ? '' : ` since ${since}`;
  return [saved, ...added.map((text) => `${text}${suffix}`)].join();
}

/** True if results of `from` may become those of `to`: the further aggregates have no values in
 *  windows that have results. @throws bad_setting */
export function isExtension(from: string, to: string): boolean {
  const [before, after] = [aggregateSpecs(from), aggregateSpecs(to)];
  return (
    JSON.stringify(before) === JSON.stringify(after.slice(0, before.length)) &&
    after.slice(before.length).every(({ since }) => since !== undefined)
  );
}

/** Form of the rows of a job with these aggregates; undefined: none are given. @throws bad_setting
 */
export const formOf = (aggregates: string | undefined): RowForm =>
  aggregates === undefined ? RowForm.HEADS : Aggregates.of(aggregates);
