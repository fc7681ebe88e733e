/** Columns of a result: the one list from which every sink and the HTTP interface write.
 *
 *  A result has the columns of its key, then the bounds of its window, then the aggregates. A
 *  further aggregate is one more entry of AGGREGATES; each output has its own form of each type. */
import { unscaledOf } from '../../core/decimal/exact.ts';
import {
  type AggregateSpec,
  AVERAGE_PLACES,
  aggregateSpecs,
  errorName,
  valueNames,
} from '../aggregate/definition.ts';
import type { AggregateValue } from '../aggregate/results.ts';
import { engineError } from '../errors.ts';
import {
  isVariable,
  type KeyKind,
  type KeyType,
  type KeyValue,
  keyOfValues,
  keyValues,
  partNames,
  valueText,
} from '../keys/type.ts';
import { BINARY256 } from '../source/input/binary256.ts';
import {
  aggregatesIn,
  type InputDefinition,
  keyPartsOf,
  listIn,
  valueScaleOf,
} from '../source/input/definition.ts';
import type { WindowResult } from '../window/accumulator.ts';

/** Types of columns, each with the form of its values.
 *  u64, i64: bigint. f64: number. decimal: exact text with all decimal places. string: text without
 *  U+0000. bytes: Uint8Array. uuid: text of 36 characters. timestamp: whole ms since the epoch, a
 *  number of at most 53 bits. bool: boolean. top: JSON, a list of values with their counts, see
 *  TopItem. */
export type ColumnType =
  | 'u64'
  | 'i64'
  | 'f64'
  | 'decimal'
  | 'string'
  | 'bytes'
  | 'uuid'
  | 'timestamp'
  | 'bool'
  | 'top';

/** Member of a list of frequent values. */
export interface TopItem {
  readonly value: string;
  readonly count: number;
}

/** Members of the JSON of a list. */
export const topItems = (text: string): readonly TopItem[] => JSON.parse(text) as TopItem[];

/** JSON of a list, as results have it. @param items their counts may be bigint */
export const topText = (items: Iterable<{ readonly value: unknown; readonly count: unknown }>): string =>
  JSON.stringify(Array.from(items, ({ value, count }) => ({ value: String(value), count: Number(count) })));

export type ColumnValue = bigint | number | string | Uint8Array | boolean | null;

export interface ResultColumn {
  /** Unique among the columns of a result: letters, digits and underscores, no digit first. */
  readonly name: string;
  readonly role: 'key' | 'bound' | 'aggregate';
  readonly type: ColumnType;
  /** True if a result may have no value. */
  readonly nullable: boolean;
  /** Decimal places of a decimal; otherwise absent. */
  readonly scale?: number;
  /** True for an f64 of a field of doubles, which may be NaN or infinite; otherwise absent. */
  readonly mayBeNonFinite?: true;
  /** Value in the form of the type; null only if `nullable`. Bytes are borrowed from the result. */
  read(result: WindowResult): ColumnValue;
}

/** Shape of a job's results. */
export interface ResultShape {
  readonly columns: readonly ResultColumn[];
  /** Parts of the keys, of integer keys too. */
  readonly parts: KeyType;
  /** Type of the keys; undefined: they are integers. */
  readonly keyType: KeyType | undefined;
  /** Names of the job's own aggregates, in their order; undefined: count, sum, min and max. */
  readonly aggregates: readonly string[] | undefined;
  /** Decimal places of the value of a late event; absent: it is an integer. */
  readonly valueScale?: number | undefined;
  /** True: events are elements of lists. Absent: they are records. */
  readonly hasElements?: boolean;
  /** Text of these aggregates. */
  readonly aggregate: string | undefined;
  /** True for events of the fixed layout, whose results have the layouts of its specification. */
  readonly isFixed: boolean;
}

const column = (
  role: ResultColumn['role'],
  name: string,
  type: ColumnType,
  read: ResultColumn['read'],
  nullable = false,
): ResultColumn => ({ name, role, type, nullable, read });

/** Digits of every decimal of a result: the least precision that holds 127 bits. */
export const DECIMAL_PRECISION = 38;

const BOUNDS: readonly ResultColumn[] = [
  column('bound', 'window_start', 'timestamp', ({ windowStart }) => windowStart),
  column('bound', 'window_end', 'timestamp', ({ windowEnd }) => windowEnd),
];

const ENDING: readonly ResultColumn[] = [
  column('aggregate', 'last_update_ts', 'timestamp', ({ lastUpdateTs }) => Number(lastUpdateTs)),
  column('aggregate', 'overflow', 'bool', ({ overflow }) => overflow),
];

/** A count is shown as a signed number: no topic has 2^63 records. */
const AGGREGATES: readonly ResultColumn[] = [
  column('aggregate', 'count', 'i64', ({ count }) => BigInt.asIntN(64, count)),
  column('aggregate', 'sum', 'i64', ({ sum }) => sum),
  column('aggregate', 'min', 'i64', ({ min }) => min),
  column('aggregate', 'max', 'i64', ({ max }) => max),
  ...ENDING,
];

/** Types whose values have an order as numbers. */
const RANKED_TYPES: ReadonlySet<ColumnType> = new Set(['u64', 'i64', 'f64', 'decimal', 'timestamp']);

/** True for a column by which windows are ranked. */
export const isRanked = ({ role, type }: ResultColumn): boolean => role !== 'key' && RANKED_TYPES.has(type);

/** Value by which a ranked column orders its rows: values of one column compare by `<`. */
export const rankOf = ({ type, read }: ResultColumn, result: WindowResult): ColumnValue => {
  const value = read(result);
  return type === 'decimal' && value !== null ? unscaledOf(value as string) : value;
};

/** In the results of a job with early results. */
const FINAL = column('aggregate', 'final', 'bool', ({ isEarly }) => isEarly !== true);

/** Columns of the job's own aggregates. */
function aggregateColumns(specs: readonly AggregateSpec[]): readonly ResultColumn[] {
  let at = 0;
  return specs.flatMap((spec) => {
    const { function: name, field, since } = spec;
    // An empty number or list has no null.
    const isCount = name === 'count' || name === 'distinct' || name === 'topk';
    const isNullable = !isCount || since !== undefined;
    const scale = isCount || name === 'percentile' ? undefined : field?.scale;
    const isOfDoubles = !isCount && field?.kind === 'double';
    const isDouble = (name === 'avg' && scale === undefined) || name === 'percentile' || isOfDoubles;
    const reader =
      (number: number) =>
      ({ aggregates }: WindowResult): ColumnValue => {
        const value = aggregates?.[number] ?? null;
        return name === 'count' && typeof value === 'bigint' ? BigInt.asIntN(64, value) : value;
      };
    const type = name === 'topk' ? 'top' : scale !== undefined ? 'decimal' : isDouble ? 'f64' : 'i64';
    const places = scale === undefined ? {} : { scale: name === 'avg' ? scale + AVERAGE_PLACES : scale };
    const range = isOfDoubles ? { mayBeNonFinite: true as const } : {};
    const columns: ResultColumn[] = [
      { ...column('aggregate', spec.name, type, reader(at++), isNullable), ...places, ...range },
    ];
    const error = errorName(spec);
    if (error !== undefined) columns.push(column('aggregate', error, 'f64', reader(at++), isNullable));
    return columns;
  });
}

/** Names that no column of a key has: those of the other columns of a result, and those of a late
 *  event, so that a key has the same columns in every table, with early results and without. */
const TAKEN: readonly string[] = [
  FINAL.name,
  ...[...BOUNDS, ...AGGREGATES].map(({ name }) => name),
  ...['source_partition', 'source_offset', 'source_element', 'event_ts'],
  ...['value', 'reason', 'watermark_ms', 'timestamp_ms'],
];
const NAME_CHARS_MAX = 50;

/** Names of the columns of a key: those of its parts, with `key_` before a name that another column
 *  has, and numbers after equal ones.
 *  @param fold form of a name in the output; names that it maps to one are told apart */
export function keyColumnNames(
  type: KeyType,
  fold: (name: string) => string = (name) => name,
): readonly string[] {
  const used = new Set(TAKEN);
  return partNames(type).map((name) => {
    const plain = fold(name)
      .replace(/[^A-Za-z0-9_]/g, '_')
      .slice(0, NAME_CHARS_MAX);
    const base = used.has(plain.toLowerCase()) || !/^[A-Za-z_]/.test(plain) ? `key_${plain}` : plain;
    let free = base;
    for (let n = 2; used.has(free.toLowerCase()); n++) free = `${base}_${n}`;
    used.add(free.toLowerCase());
    return free;
  });
}

const KEY_COLUMN_TYPE: Readonly<Record<KeyKind, ColumnType>> = {
  i64: 'i64',
  u64: 'u64',
  string: 'string',
  bytes: 'bytes',
  uuid: 'uuid',
};

/** Values of a key's parts, parsed once for all columns of a result. */
class KeyReader {
  private readonly type: KeyType;
  private last: Uint8Array | undefined;
  private values: readonly ColumnValue[] = [];

  constructor(type: KeyType) {
    this.type = type;
  }

  part(key: Uint8Array, at: number): ColumnValue {
    if (key !== this.last) {
      this.values = keyValues(this.type, key);
      this.last = key;
    }
    return this.values[at] as ColumnValue;
  }
}

function keyColumns(parts: KeyType, keyType: KeyType | undefined): readonly ResultColumn[] {
  const names = keyColumnNames(parts);
  const reader = keyType === undefined ? undefined : new KeyReader(keyType);
  return parts.map(({ kind }, at) => {
    const read: ResultColumn['read'] =
      reader !== undefined
        ? ({ key }) => reader.part(key as Uint8Array, at)
        : kind === 'i64'
          ? ({ accountId }) => BigInt.asIntN(64, accountId)
          : ({ accountId }) => accountId;
    return column('key', names[at] as string, KEY_COLUMN_TYPE[kind], read);
  });
}

/** The part of a job that decides the shape of its results. */
interface ShapedJob {
  readonly input?: InputDefinition;
  /** Absent: there are no early results. */
  readonly emit?: 'updates';
}

/** Columns of the results of a job whose key is decided.
 *  @example
 *  const [key] = resultColumns({ input: { format: 'json', key: 'customer.id:string' } });
 */
export const resultColumns = (job: ShapedJob): readonly ResultColumn[] => resultShape(job).columns;

/** Shape of the results of a job whose key is decided, by its definition or by its flags.
 *  @example
 *  const { columns, keyType } = resultShape({ input: { format: 'json', key: 'country:string' } });
 */
export function resultShape({ input = BINARY256, emit }: ShapedJob): ResultShape {
  const isFixed = input.format === 'binary256';
  const valueScale = valueScaleOf(input);
  const lists = listIn(input) === undefined ? {} : { hasElements: true };
  return { ...shapeOfKeys(keyPartsOf(input), aggregatesIn(input), emit), isFixed, valueScale, ...lists };
}

/** Shape of results by keys of these parts, for readers that have no job.
 *  @throws bad_setting if two columns have one name */
export function shapeOfKeys(parts: KeyType, aggregate?: string, emit?: 'updates'): ResultShape {
  const keyType = isVariable(parts) ? parts : undefined;
  const keys = keyColumns(parts, keyType);
  const specs = aggregate === undefined ? undefined : aggregateSpecs(aggregate);
  const own = specs && valueNames(specs);
  const twice = own?.find((name) => keys.some((key) => key.name.toLowerCase() === name.toLowerCase()));
  if (twice !== undefined)
    throw engineError('bad_setting', `-aggregate and -key both have a column ${twice}`, {
      next: 'name the aggregate: … as NAME',
    });
  if (own?.some((name) => name.toLowerCase() === FINAL.name))
    throw engineError('bad_setting', 'final marks early results, so that no aggregate has this name', {
      next: 'name the aggregate otherwise: … as NAME',
      details: { setting: 'aggregate' },
    });
  const marks = emit === undefined ? [] : [FINAL];
  const results = [...(specs === undefined ? AGGREGATES : [...aggregateColumns(specs), ...ENDING]), ...marks];
  return {
    ...{ columns: [...keys, ...BOUNDS, ...results], parts, keyType, aggregates: own, aggregate },
    isFixed: false,
  };
}

/** Result of the values of its columns, as an output that was read back has them.
 *  @param read reads the value of a column in the form of its type; null where the output has none
 *  @throws RangeError for values that are no key */
export function resultOfValues(
  { columns, parts, keyType, aggregates }: ResultShape,
  read: (column: ResultColumn) => ColumnValue,
): WindowResult {
  const values = new Map(columns.map((one) => [one.name, read(one)]));
  const keys = columns.filter(({ role }) => role === 'key').map(({ name }) => values.get(name) as KeyValue);
  // An aggregate of the job may have the name and not the type.
  const integer = (name: string): bigint => {
    const value = values.get(name);
    return typeof value === 'bigint' ? value : 0n;
  };
  const ms = (name: string): number => Number(values.get(name) ?? 0);
  return {
    // An integer key has canonical bytes too, so that readers need not distinguish the two.
    accountId: keyType === undefined ? BigInt.asUintN(64, keys[0] as bigint) : 0n,
    key: keyOfValues(parts, keys),
    windowStart: ms('window_start'),
    windowEnd: ms('window_end'),
    count: BigInt.asUintN(64, integer('count')),
    sum: integer('sum'),
    min: integer('min'),
    max: integer('max'),
    lastUpdateTs: BigInt(ms('last_update_ts')),
    overflow: values.get('overflow') === true,
    ...(values.get('final') === false && columns.includes(FINAL) ? { isEarly: true as const } : {}),
    ...(aggregates === undefined
      ? {}
      : { aggregates: aggregates.map((name) => (values.get(name) ?? null) as AggregateValue) }),
  };
}

/** Text of a value: digits, the text itself, hexadecimal digits of bytes; empty for null. */
export const columnText = (value: ColumnValue): string =>
  value === null ? '' : typeof value === 'object' ? valueText(value) : String(value);
