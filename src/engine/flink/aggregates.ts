/** Aggregates of a job in Flink SQL.
 *
 *  SUM of BIGINT wraps as the engine's sum does, and a second sum of DECIMAL tells whether it did.
 *  AVG of BIGINT is a whole number in Flink, so the mean is the quotient of two doubles. */
import type { AggregateSpec } from '../aggregate/definition.ts';
import type { InputFields } from '../source/input/definition.ts';
import { unsayable } from './error.ts';
import type { FlinkField, FlinkFields } from './fields.ts';

/** A value that the aggregates read, as a column of the view. */
export interface ViewColumn {
  readonly name: string;
  readonly sql: string;
}

export interface FlinkAggregates {
  /** Columns of the view. */
  readonly values: readonly ViewColumn[];
  /** Expressions by the names of the results' columns. */
  readonly results: ReadonlyMap<string, string>;
  /** Conditions without which a record is no event. */
  readonly required: readonly string[];
  readonly notes: readonly string[];
}

const LEAST = '-9223372036854775808';
const GREATEST = '9223372036854775807';
const SKETCHES: readonly string[] = ['distinct', 'percentile', 'topk'];

const wide = (column: string): string => `SUM(CAST(${column} AS DECIMAL(19, 0)))`;
const isTooWide = (column: string): string =>
  `COALESCE(${wide(column)} NOT BETWEEN ${LEAST} AND ${GREATEST}, FALSE)`;

/** @throws flink_unsupported */
export function flinkAggregates(fields: InputFields, source: FlinkFields): FlinkAggregates {
  return fields.aggregates === undefined
    ? plainAggregates(fields.value, source)
    : ownAggregates(fields.aggregates.specs, source);
}

/** count, sum, min and max of -value. */
function plainAggregates(value: readonly string[] | undefined, source: FlinkFields): FlinkAggregates {
  const results = new Map([['count', 'COUNT(*)']]);
  if (value === undefined) {
    for (const name of ['sum', 'min', 'max']) results.set(name, 'CAST(0 AS BIGINT)');
    results.set('overflow', 'FALSE');
    return { values: [], results, required: [], notes: [] };
  }
  const column = 'value_0';
  results.set('sum', `SUM(${column})`).set('min', `MIN(${column})`).set('max', `MAX(${column})`);
  results.set('overflow', isTooWide(column));
  const field = source.of(value);
  const sql = integerSql('value', value.join('.'), field);
  return { values: [{ name: column, sql }], results, required: [`${field.sql} IS NOT NULL`], notes: [] };
}

function ownAggregates(specs: readonly AggregateSpec[], source: FlinkFields): FlinkAggregates {
  const values = new Map<string, ViewColumn>();
  const results = new Map<string, string>();
  const overflows = new Set<string>();
  const notes: string[] = [];
  for (const spec of specs) {
    demandSayable(spec);
    const { field } = spec;
    if (field === undefined) {
      results.set(spec.name, 'COUNT(*)');
      continue;
    }
    const path = field.path.join('.');
    const id = `${path}:${field.kind}`;
    const known = values.get(id) ?? {
      name: `value_${values.size}`,
      sql: (field.kind === 'double' ? doubleSql : integerSql)('aggregate', path, source.of(field.path)),
    };
    values.set(id, known);
    results.set(spec.name, resultSql(spec, known.name));
    if (spec.function === 'sum') overflows.add(isTooWide(known.name));
    if (field.kind === 'double')
      notes.push(`${spec.name}: equal if ${path} is neither NaN nor a negative zero`);
  }
  results.set('overflow', overflows.size === 0 ? 'FALSE' : [...overflows].join(' OR '));
  return { values: [...values.values()], results, required: [], notes };
}

/** @throws flink_unsupported for an aggregate that Flink SQL computes otherwise */
function demandSayable({ function: name, field, percent, limit }: AggregateSpec): void {
  const path = field?.path.join('.') ?? '';
  const text =
    name === 'percentile'
      ? `p${percent}(${path})`
      : `${name}(${path}${limit === undefined ? '' : `,${limit}`}${field?.kind === 'double' ? ':double' : ''})`;
  const refuse = (why: string): Error =>
    unsayable('aggregate', text, why, 'leave the aggregate out, or keep this job here');
  if (SKETCHES.includes(name))
    throw refuse('is a sketch of this engine, with an error that Flink SQL does not have');
  if (field?.kind === 'decimal')
    throw refuse('is of decimals, which this translation does not carry to Flink SQL');
  if (name === 'first' || name === 'last')
    throw refuse('is decided by event time, partition and offset, and Flink SQL decides it by arrival');
  if (field?.kind === 'double' && (name === 'sum' || name === 'avg'))
    throw refuse('has the same bits in any order here, and Flink adds doubles in the order of arrival');
}

function resultSql({ function: name }: AggregateSpec, column: string): string {
  if (name === 'avg') return `CAST(${wide(column)} AS DOUBLE) / CAST(COUNT(${column}) AS DOUBLE)`;
  return `${name.toUpperCase()}(${column})`;
}

function integerSql(setting: string, path: string, { sql, type }: FlinkField): string {
  if (type === 'BIGINT') return sql;
  if (type === 'INT') return `CAST(${sql} AS BIGINT)`;
  throw unsayable(
    setting,
    path,
    `is ${type === 'other' ? 'no integer' : type}, and an integer is due`,
    'give an int or a long, or FIELD:double',
  );
}

function doubleSql(setting: string, path: string, { sql, type }: FlinkField): string {
  if (['INT', 'BIGINT', 'FLOAT', 'DOUBLE'].includes(type)) return `CAST(${sql} AS DOUBLE)`;
  throw unsayable(
    setting,
    path,
    `is ${type === 'other' ? 'no number' : type}, and a number is due`,
    'give a float or a double',
  );
}
