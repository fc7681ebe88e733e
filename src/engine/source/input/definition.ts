/** Definition of the input: which fields of a record are the key, the time and the value of an
 *  event. It is a part of the job, so a checkpoint saves it.
 *
 *  The texts are those of the flags: `-key=customer.id`, `-key=country:string,user_id`,
 *  `-key=@key:long`, `-time=created_at:us`, `-time=@timestamp`, `-value=amount`,
 *  `-value=price:decimal2`, `-value=items[].qty`, which makes each element of the list an event. */
import { compileFilter, type Filter } from '../../../core/filter/compile.ts';
import {
  Aggregates,
  aggregateChange,
  decimalField,
  plainAggregates,
  type ValueFields,
  valueAggregates,
  valueFields,
} from '../../aggregate/definition.ts';
import { engineError } from '../../errors.ts';
import { isVariable, KEY_KINDS, KEY_PARTS_MAX, type KeyKind, type KeyType } from '../../keys/type.ts';
import { type NamedPath, namedList } from '../list/named.ts';
import { type FieldPath, PATH_NEXT, pathFault, plainPath } from '../list/path.ts';

export const INPUT_FORMATS = ['avro', 'protobuf', 'json', 'binary256'] as const;
export type InputFormat = (typeof INPUT_FORMATS)[number];

/** Settings of the input, in the order of messages. */
const NAMES = ['format', 'key', 'time', 'value', 'where', 'dedup', 'aggregate'] as const;
type Name = (typeof NAMES)[number];

export interface InputDefinition {
  readonly format: InputFormat | 'undecided';
  readonly key?: string;
  readonly time?: string;
  /** Absent: events are counted, and their value is 0. */
  readonly value?: string;
  readonly where?: string;
  /** Absent: records with equal contents are different events. */
  readonly dedup?: string;
  /** Absent: count, sum, min and max of the value. */
  readonly aggregate?: string;
  /** Aggregates of several windows, whose fields an input reads for all of them. The input of a
   *  shared reader alone has it; the job of a window has `aggregate`. */
  readonly aggregates?: readonly string[];
  /** Settings that were judged from the first records instead of given. */
  readonly inferred?: readonly Name[];
}

/** Forms of a record's key: a big-endian integer of 8 or 4 bytes, decimal digits, or a key that is
 *  no integer. */
export const RECORD_KEY_FORMS = ['long', 'int', 'text', 'string', 'bytes', 'uuid'] as const;
export type RecordKeyForm = (typeof RECORD_KEY_FORMS)[number];

/** Range of integer keys: the same 64 bits are shown with or without a sign. */
export type Sign = Extract<KeyKind, 'i64' | 'u64'>;

/** Field that is a part of the key. */
export interface KeyField {
  readonly path: readonly string[];
  /** Undefined: not decided yet, or i64 once the definition is decided. */
  readonly kind: KeyKind | undefined;
}

export type KeySpec =
  | { readonly from: 'record'; readonly form: RecordKeyForm | undefined }
  | { readonly from: 'fields'; readonly fields: readonly KeyField[] };

const UNITS = ['s', 'ms', 'us', 'ns'] as const;
export type TimeUnit = (typeof UNITS)[number];
const TIME_FORMS = [...UNITS, 'iso'] as const;

export type TimeSpec =
  | { readonly from: 'record' }
  | { readonly from: 'field'; readonly path: readonly string[]; readonly unit: TimeUnit | 'iso' | undefined };

/** Parsed definition of a decided input. */
export interface InputFields {
  readonly key: KeySpec;
  readonly time: TimeSpec;
  /** Integer; a decimal value is an aggregated field. */
  readonly value: readonly string[] | undefined;
  readonly where: Filter | undefined;
  readonly dedup: readonly string[] | undefined;
  readonly aggregates: ValueFields | undefined;
  /** True: -value names the aggregated field, so an event without it is invalid. */
  readonly needsValues: boolean;
  /** Path of the list whose elements are the events; undefined: records are. */
  readonly list: FieldPath | undefined;
}

const wrong = (flag: Name, text: string, why: string, next: string): Error =>
  engineError('bad_setting', `-${flag}=${text.slice(0, 200)} ${why}`, { next });

function pathOf(flag: Name, text: string, path: string): readonly string[] {
  const names = path.split('.');
  const fault = pathFault(names);
  if (fault !== undefined) throw wrong(flag, text, fault, PATH_NEXT);
  return names;
}

/** Splits a known suffix off: `created_at:us`. */
function suffixed<T extends string>(
  text: string,
  known: readonly T[],
): { readonly base: string; readonly suffix: T | undefined } {
  const at = text.lastIndexOf(':');
  const suffix = known.find((one) => one === text.slice(at + 1));
  return at > 0 && suffix !== undefined
    ? { base: text.slice(0, at), suffix }
    : { base: text, suffix: undefined };
}

/** @throws bad_setting */
export function keySpec(text: string): KeySpec {
  const record = suffixed(text, RECORD_KEY_FORMS);
  if (record.base === '@key') return { from: 'record', form: record.suffix };
  if (text.startsWith('@'))
    throw wrong(
      'key',
      text,
      'is not a key',
      `give a field, or ${RECORD_KEY_FORMS.map((f) => `@key:${f}`).join(', ')}`,
    );
  const texts = text.split(',');
  const fields = texts.map((one): KeyField => {
    const { base, suffix } = suffixed(one, KEY_KINDS);
    return { path: pathOf('key', text, base), kind: suffix };
  });
  if (fields.length > KEY_PARTS_MAX)
    throw wrong('key', text, `names ${fields.length} fields`, `give at most ${KEY_PARTS_MAX} fields`);
  if (new Set(fields.map(({ path }) => path.join('.'))).size < fields.length)
    throw wrong('key', text, 'names a field twice', 'name each field once');
  return { from: 'fields', fields };
}

export const keyText = (spec: KeySpec): string =>
  spec.from === 'record'
    ? `@key${spec.form === undefined ? '' : `:${spec.form}`}`
    : spec.fields.map(({ path, kind }) => path.join('.') + (kind === undefined ? '' : `:${kind}`)).join();

/** @throws bad_setting */
export function timeSpec(text: string): TimeSpec {
  if (text === '@timestamp') return { from: 'record' };
  if (text.startsWith('@')) throw wrong('time', text, 'is not a time', 'give a field, or @timestamp');
  const { base, suffix } = suffixed(text, TIME_FORMS);
  return { from: 'field', path: pathOf('time', text, base), unit: suffix };
}

/** Checks the texts that are given. @throws bad_setting, bad_value */
export function checkDefinition(definition: InputDefinition): void {
  const { format, key, time, value, where, dedup, aggregate } = definition;
  if (key !== undefined) keySpec(key);
  if (time !== undefined) timeSpec(time);
  if (value !== undefined && decimalField('value', value) === undefined) pathOf('value', value, value);
  if (where !== undefined) whereFilter(where);
  if (dedup !== undefined) pathOf('dedup', dedup, dedup);
  if (aggregate !== undefined) Aggregates.of(aggregate);
  if (aggregate !== undefined && value !== undefined)
    throw engineError('bad_setting', '-value and -aggregate both say what is aggregated', {
      next: `leave -value out, and give -aggregate=${aggregate},sum(${value})`,
      details: { setting: 'value' },
    });
  listIn(definition);
  const given = [key, time, value, where, dedup, aggregate].findIndex((one) => one !== undefined);
  if (format === 'binary256' && given >= 0) throw fixedFields(NAMES[given + 1] as Name);
}

/** Definition with other aggregates. */
export function withAggregates(
  { aggregate: _one, aggregates: _all, ...definition }: InputDefinition,
  { aggregate, aggregates }: Pick<InputDefinition, 'aggregate' | 'aggregates'>,
): InputDefinition {
  return {
    ...definition,
    ...(aggregate === undefined ? {} : { aggregate }),
    ...(aggregates === undefined ? {} : { aggregates }),
  };
}

/** Error of a field setting for the fixed layout. */
export const fixedFields = (name: Name): Error =>
  engineError('bad_setting', `-${name} has no meaning for events of the fixed layout of 256 bytes`, {
    next: `leave -${name} out, or give the -format of the records: avro, protobuf or json`,
    details: { setting: name },
  });

/** @throws bad_value with the position of the mistake; bad_setting for a field that the input
 *  cannot read */
function whereFilter(text: string): Filter {
  const filter = compileFilter(text, { hasDecimals: true, hasElements: true });
  for (const { isMeta, steps, text: name } of filter.fields)
    if (isMeta || steps.some((step) => typeof step === 'number'))
      throw engineError('bad_setting', `-where cannot read ${name}`, {
        next: 'name fields of the value, with dots into nested records, and [] behind the name of one list: items[].qty',
      });
  return filter;
}

/** Paths of the settings that are given. @throws bad_setting, bad_value */
function namedPaths(definition: Partial<InputDefinition>): readonly NamedPath[] {
  const { key, time, value, where, dedup, aggregate } = definition;
  const spec = key === undefined ? undefined : keySpec(key);
  const at = time === undefined ? undefined : timeSpec(time);
  const aggregates = aggregate === undefined ? undefined : Aggregates.of(aggregate);
  return [
    ...(spec?.from === 'fields' ? spec.fields : []).map(({ path }) => ({ flag: 'key', path })),
    ...(at?.from === 'field' ? [{ flag: 'time', path: at.path }] : []),
    ...(value === undefined ? [] : [{ flag: 'value', path: valuePath(value) }]),
    ...(where === undefined ? [] : whereFilter(where).fields).map(({ steps, list }) => ({
      flag: 'where',
      path: steps as FieldPath,
      isQuoted: list === undefined,
    })),
    ...(dedup === undefined ? [] : [{ flag: 'dedup', path: pathOf('dedup', dedup, dedup) }]),
    ...(aggregates?.fields ?? []).map(({ path }) => ({ flag: 'aggregate', path })),
    ...(definition.aggregates === undefined ? [] : valueFields(definition.aggregates).fields).map(
      ({ path }) => ({ flag: 'aggregate' as const, path }),
    ),
  ];
}

/** Path of the list that the settings name; undefined: they name none.
 *  @throws bad_setting, bad_value */
export const listIn = (definition: Partial<InputDefinition>): FieldPath | undefined =>
  namedList(namedPaths(definition));

/** Aggregates of a definition: the given ones, or those that a decimal value stands for. Undefined:
 *  count, sum, min and max of an integer. @throws bad_setting */
export const aggregatesIn = ({
  aggregate,
  value,
}: {
  readonly aggregate?: string | undefined;
  readonly value?: string | undefined;
}): string | undefined => aggregate ?? (value === undefined ? undefined : valueAggregates(value));

/** Path of the field of -value, with or without its kind. @throws bad_setting */
export const valuePath = (value: string): readonly string[] =>
  decimalField('value', value)?.path ?? pathOf('value', value, value);

/** Decimal places of the value of an event; undefined: it is an integer. @throws bad_setting */
export const valueScaleOf = ({ value }: Pick<InputDefinition, 'value'>): number | undefined =>
  value === undefined ? undefined : decimalField('value', value)?.scale;

/** Parses a decided definition. @throws bad_setting, bad_value */
export function fieldsOf(definition: InputDefinition): InputFields {
  const { key, time, value, where, dedup } = definition;
  const aggregates = aggregatesIn(definition);
  const needsValues = value !== undefined && aggregates !== undefined;
  return {
    key: keySpec(key ?? '@key'),
    time: timeSpec(time ?? '@timestamp'),
    value: value === undefined || needsValues ? undefined : valuePath(value),
    where: where === undefined ? undefined : whereFilter(where),
    dedup: dedup === undefined ? undefined : pathOf('dedup', dedup, dedup),
    aggregates:
      definition.aggregates !== undefined
        ? valueFields(definition.aggregates)
        : aggregates === undefined
          ? undefined
          : Aggregates.of(aggregates),
    needsValues,
    list: listIn(definition),
  };
}

/** Paths that a record must have to be an event. @throws bad_setting, bad_value */
export function neededPaths(definition: InputDefinition): readonly FieldPath[] {
  const { key, time, value, dedup, aggregates } = fieldsOf(definition);
  return [
    ...(time.from === 'field' ? [time.path] : []),
    ...(key.from === 'fields' ? key.fields.map(({ path }) => path) : []),
    ...(value === undefined ? [] : [value]),
    ...(dedup === undefined ? [] : [dedup]),
    ...(aggregates?.fields ?? []).map(({ path }) => path),
  ];
}

/** True if integer keys have a sign: the 64 bits of a key are those of a signed integer. */
export function hasSignedKeys({ format, key }: InputDefinition): boolean {
  if (format === 'binary256' || format === 'undecided') return false;
  const spec = keySpec(key ?? '@key');
  return spec.from === 'record' || spec.fields[0]?.kind !== 'u64';
}

/** Type of the keys of a decided definition; undefined: they are integers of 64 bits. */
export function keyTypeOf({ format, key }: InputDefinition): KeyType | undefined {
  if (format === 'binary256' || format === 'undecided') return undefined;
  return variableType(keySpec(key ?? '@key'));
}

/** True if the flags alone decide the kinds of the key; else the first records do. */
export function hasGivenKey({ format, key }: InputDefinition): boolean {
  if (format === 'binary256') return true;
  const spec = keySpec(key ?? '@key');
  return spec.from === 'record'
    ? spec.form !== undefined
    : spec.fields.every(({ kind }) => kind !== undefined);
}

/** Parts of a key whose kinds are decided, of an integer key too. */
export function keyPartsOf({ format, key }: InputDefinition): KeyType {
  if (format === 'binary256') return [{ name: 'account_id', kind: 'u64' }];
  return partsOf(keySpec(key ?? '@key'));
}

function partsOf(spec: KeySpec): KeyType {
  if (spec.from === 'record')
    return [{ name: 'key', kind: KEY_KINDS.find((one) => one === spec.form) ?? 'i64' }];
  return spec.fields.map(({ path, kind = 'i64' }) => ({ name: plainPath(path).join('.'), kind }));
}

function variableType(spec: KeySpec): KeyType | undefined {
  const parts = partsOf(spec);
  return isVariable(parts) ? parts : undefined;
}

export interface InputChange {
  readonly flag: Name;
  readonly was: string | undefined;
  readonly is: string | undefined;
  /** A run may resume with the other value. */
  readonly isSafe: boolean;
}

/** The same setting: a text that leaves the form open equals one that states it. */
function isSame(name: Name, given: string, saved: string): boolean {
  if (given === saved) return true;
  if (name === 'aggregate') {
    const { added, isAllowed } = aggregateChange(saved, given);
    return isAllowed && added.length === 0;
  }
  if (name !== 'key') return false;
  const [is, was] = [keySpec(given), keySpec(saved)];
  if (is.from === 'record') return is.form === undefined && was.from === 'record';
  return (
    was.from === 'fields' &&
    is.fields.length === was.fields.length &&
    is.fields.every(({ path, kind }, at) => {
      const { path: before, kind: decided = 'i64' } = was.fields[at] as KeyField;
      return path.join('.') === before.join('.') && (kind ?? decided) === decided;
    })
  );
}

/** Settings in which a run differs from the definition of a checkpoint. A setting that was inferred
 *  may be left out or given; one that was given must be given again. */
export function inputChanges(saved: InputDefinition, asked: InputDefinition): readonly InputChange[] {
  if (saved.format === 'undecided') return [];
  return NAMES.flatMap((name): InputChange[] => {
    const given = name === 'format' && asked.format === 'undecided' ? undefined : asked[name];
    const was = saved[name];
    const isKept =
      given === undefined
        ? was === undefined || saved.inferred?.includes(name) === true
        : was !== undefined && isSame(name, given, was);
    if (isKept) return [];
    if (name !== 'aggregate' || was === undefined || given === undefined)
      return [{ flag: name, was, is: given, isSafe: false }];
    // Other settings, and another list, change which events are in the windows that are open.
    const { isAllowed } = aggregateChange(was, given);
    const isSafe = isAllowed && listIn(saved)?.join('.') === listIn(asked)?.join('.');
    return [{ flag: name, was: plainAggregates(was), is: given, isSafe }];
  });
}
