/** Plans of Protobuf messages.
 *
 *  A message that has the fields of the job is read as it is. Otherwise the message of the same
 *  name in the reader's schema gives the fields their numbers; the writer's message must have these
 *  numbers, because an absent field would be read as its zero. */
import type { ColumnKernels } from '../../../core/columns/kernel.ts';
import type { BatchViews, ColumnViews } from '../../../core/columns/views.ts';
import { protoColumnDecoder } from '../../../formats/protobuf/columns/decoder.ts';
import type { ProtoField, ProtoMessage } from '../../../formats/protobuf/tree.ts';
import type { ProtoSchema } from '../../../formats/schema.ts';
import type { FieldColumn } from '../../aggregate/definition.ts';
import { isOfKind, valueReader } from '../../aggregate/field-columns.ts';
import { idReader } from '../../dedup/ids.ts';
import { isVariable, type KeyKind } from '../../keys/type.ts';
import { isListName, plainName } from '../list/path.ts';
import {
  type ColumnReader,
  type FieldGet,
  integerReader,
  isoReader,
  nullReader,
  type Place,
  placeAt,
  secondsReader,
  signOf,
  timeReader,
  unlessNull,
} from './columns.ts';
import {
  conditionGet,
  DECIMAL_MESSAGES,
  type DecimalColumns,
  decimalFieldGet,
  decimalGet,
  decimalReader,
  isDecimalColumn,
} from './decimal/columns.ts';
import type { InputFields, KeyField, Sign, TimeSpec } from './definition.ts';
import { keyGet, keyReader } from './key/columns.ts';
import { decimalNext, demandList, type InputFlag, missingField, unsupported, WriterPlan } from './plan.ts';

type Path = readonly string[];
type Flag = InputFlag;

const TIMESTAMP = 'google.protobuf.Timestamp';

/** Fields on a path; undefined where the message has none of these names. */
function fieldsAt(message: ProtoMessage, path: Path): readonly ProtoField[] | undefined {
  const found: ProtoField[] = [];
  let at: ProtoMessage | undefined = message;
  for (const step of path) {
    const name = plainName(step);
    const field: ProtoField | undefined = at?.fields.find(
      (one) => one.name === name || one.jsonName === name,
    );
    if (field === undefined) return undefined;
    found.push(field);
    at = field.message;
  }
  return found;
}

/** True if the writer's message has fields with these numbers. */
function hasNumbers(writer: ProtoMessage, fields: readonly ProtoField[]): boolean {
  let at: ProtoMessage | undefined = writer;
  for (const { number } of fields) {
    const field: ProtoField | undefined = at?.fields.find((one) => one.number === number);
    if (field === undefined) return false;
    at = field.message;
  }
  return true;
}

const typeText = ({ type, message, enumeration }: ProtoField): string =>
  message !== undefined
    ? `the message ${message.name}`
    : enumeration !== undefined
      ? `the enum ${enumeration.name}`
      : `the type ${type}`;

/** Finds the column of a field, or of a field inside it. */
type PlaceOf = (one: Found, ...inner: readonly string[]) => Place;

const isSingle = ({ repeated, mapKey }: ProtoField): boolean => !repeated && mapKey === undefined;

const isList = ({ repeated, mapKey }: ProtoField): boolean => repeated && mapKey === undefined;

/** A field that the job reads, with its place in the columns. */
class Found {
  readonly flag: Flag;
  readonly path: Path;
  readonly fields: readonly ProtoField[];

  constructor(flag: Flag, path: Path, fields: readonly ProtoField[]) {
    this.flag = flag;
    this.path = path;
    this.fields = fields;
    const isRead = fields.every((field, at) =>
      isListName(path[at] as string) ? isList(field) : isSingle(field),
    );
    if (isRead) return;
    const isNoList = fields.some((field, at) => isListName(path[at] as string) && !isList(field));
    throw unsupported(flag, path, isNoList ? 'no list' : 'in a list or a map');
  }

  get last(): ProtoField {
    return this.fields.at(-1) as ProtoField;
  }

  /** Path of the column: fields by their names in the schema. */
  get columnPath(): Path {
    return this.fields.map(({ name }) => name);
  }

  get isTimestamp(): boolean {
    return this.last.message?.name === TIMESTAMP;
  }

  /** Fields of a message that is a decimal; undefined for any other type. */
  get decimalParts(): readonly string[] | undefined {
    return DECIMAL_MESSAGES[this.last.message?.name ?? ''];
  }

  unsupported(why = ''): Error {
    const { flag, path, last } = this;
    const type = `${typeText(last)}${why}`;
    const isNumber = flag === 'value' || flag === 'aggregate';
    return isNumber && this.decimalParts !== undefined
      ? unsupported(flag, path, type, decimalNext(flag, path))
      : unsupported(flag, path, type);
  }

  /** Requested column paths. */
  get requested(): readonly string[] {
    const path = this.columnPath.join('.');
    const parts = this.isTimestamp ? ['seconds', 'nanos'] : this.decimalParts;
    return parts === undefined ? [path] : parts.map((part) => `${path}.${part}`);
  }
}

/** Message with the fields of the job: the writer's own, or the reader's of the same name. Else the
 *  index of a path that neither has. */
function messageWith(
  paths: readonly Path[],
  reader: ProtoSchema | undefined,
  writer: ProtoMessage,
): ProtoMessage | number {
  const lacking = paths.findIndex((path) => fieldsAt(writer, path) === undefined);
  if (lacking < 0) return writer;
  const message = reader?.tree.byName.get(writer.name);
  if (message === undefined) return lacking;
  const unresolved = paths.findIndex((path) => {
    const fields = fieldsAt(message, path);
    return fields === undefined || !hasNumbers(writer, fields);
  });
  return unresolved < 0 ? message : unresolved;
}

/** True if records of a writer's message have the fields on these paths. */
export const hasPaths = (
  paths: readonly Path[],
  reader: ProtoSchema | undefined,
  writer: ProtoMessage,
): boolean => typeof messageWith(paths, reader, writer) !== 'number';

/** Makes the plan of a writer's message.
 *  @param reader schema of the subject; undefined: there is none
 *  @throws SchemaFault if none of the writer's records is an event; unsupported_field */
export function protobufPlan(
  kernels: ColumnKernels,
  fields: InputFields,
  reader: ProtoSchema | undefined,
  writer: ProtoMessage,
): WriterPlan {
  const { key, time, value, where, dedup, aggregates, needsValues } = fields;
  const needed: ReadonlyArray<readonly [Flag, Path]> = [
    ...(time.from === 'field' ? [['time', time.path] as const] : []),
    ...(key.from === 'fields' ? key.fields.map(({ path }) => ['key', path] as const) : []),
    ...(value === undefined ? [] : [['value', value] as const]),
    ...(dedup === undefined ? [] : [['dedup', dedup] as const]),
    ...(aggregates?.fields ?? []).map(
      ({ path }) => [needsValues ? ('value' as const) : ('aggregate' as const), path] as const,
    ),
  ];
  const paths = needed.map(([, path]) => path);
  const message = messageWith(paths, reader, writer);
  if (typeof message === 'number') throw missingField(...(needed[message] as readonly [Flag, Path]));
  const found = (flag: Flag, path: Path): Found =>
    new Found(flag, path, fieldsAt(message, path) as ProtoField[]);
  const filtered = (where?.fields ?? []).map(({ steps, isDecimal }) => {
    const path = steps as Path;
    return fieldsAt(message, path) === undefined ? undefined : { one: found('where', path), isDecimal };
  });
  const all = [
    ...needed.map(([flag, path]) => found(flag, path)),
    ...filtered.flatMap((field) => field?.one ?? []),
  ];
  demandList(
    fields.list,
    all.map(({ path }) => path),
    (where?.fields ?? []).map(({ steps }) => steps as Path),
  );
  const decimals = new Set((aggregates?.fields ?? []).filter(({ kind }) => kind === 'decimal').map(pathText));
  for (const one of all) demandReadable(one, decimals.has(pathText(one)));
  const decoder = protoColumnDecoder(kernels, message, [
    ...new Set(all.flatMap(({ requested }) => requested)),
  ]);
  return new WriterPlan(decoder, fields.list, (columns, views) => {
    const at: PlaceOf = (one, ...inner) => {
      const place = placeAt(columns, [...one.columnPath, ...inner]);
      if (place === undefined) throw one.unsupported(' inside a message that contains itself');
      return place;
    };
    const integer = (one: Found, target: 'key' | 'value', sign: Sign): readonly ColumnReader[] =>
      withNulls(views, at(one), integerReader(views, at(one), sign, target));
    const identifier = (one: Found): readonly ColumnReader[] =>
      withNulls(views, at(one), idReader(views, at(one)));
    const keys = (parts: readonly KeyField[]): readonly ColumnReader[] => {
      const type = parts.map(({ path, kind = 'i64' }) => ({ one: found('key', path), kind }));
      const [only] = type;
      if (!isVariable(type) && only !== undefined) {
        if (!INTEGER.test(only.one.last.type)) throw only.one.unsupported();
        return integer(only.one, 'key', only.kind as Sign);
      }
      const gets = type.map(({ one, kind }) => {
        const get = keyGet(views, at(one), kind, type.length === 1);
        if (get === undefined) throw one.unsupported(` instead of ${kind}`);
        return get;
      });
      return [...type.flatMap(({ one }) => nullReader(views, at(one)) ?? []), keyReader(gets)];
    };
    return {
      time: time.from === 'record' ? [] : timeReaders(views, found('time', time.path), time, at),
      where: where && { filter: where, gets: filtered.map((field) => field && filterGet(views, field, at)) },
      fields: [
        ...(key.from === 'record' ? [] : keys(key.fields)),
        ...(value === undefined ? [] : integer(found('value', value), 'value', 'i64')),
        ...(dedup === undefined ? [] : identifier(found('dedup', dedup))),
        ...aggregated(views, fields, found, at),
      ],
    };
  });
}

const pathText = ({ path }: { readonly path: Path }): string => path.join('.');

/** Readers of the aggregated fields. */
function aggregated(
  views: BatchViews,
  { aggregates, needsValues }: InputFields,
  found: (flag: Flag, path: Path) => Found,
  at: PlaceOf,
): readonly ColumnReader[] {
  const readerOf = (field: FieldColumn, columns: number): readonly ColumnReader[] => {
    const one = found(needsValues ? 'value' : 'aggregate', field.path);
    const place = at(one);
    const decimal = field.kind === 'decimal' ? decimalColumns(views, one, at) : undefined;
    if (decimal === undefined && (field.kind === 'decimal' || !isOfKind(place.column, field.kind)))
      throw one.unsupported();
    const reader =
      decimal === undefined
        ? valueReader(views, place, field, columns)
        : decimalReader(views, place.nullable, decimalGet(decimal), {
            ...{ field, columns },
            isValue: needsValues,
          });
    return needsValues ? withNulls(views, place, reader) : [reader];
  };
  return (aggregates?.fields ?? []).flatMap((field) => readerOf(field, aggregates?.columns ?? 0));
}

/** Columns of a decimal; undefined if the field is none. */
function decimalColumns({ columns }: BatchViews, one: Found, at: PlaceOf): DecimalColumns | undefined {
  const { decimalParts } = one;
  const [value, scale] = (decimalParts ?? []).map((part) => at(one, part));
  const { index, column } = value ?? at(one);
  if (decimalParts === undefined && !isDecimalColumn(column)) return undefined;
  return {
    ...{ column, views: columns[index] as ColumnViews, isEmptyZero: decimalParts !== undefined },
    scales: scale && (columns[scale.index] as ColumnViews),
  };
}

const FLOATING = /^(float|double)$/;
const INTEGER = /^(u?int|sint|s?fixed)(32|64)$/;

const kindOfType = (type: string): KeyKind | undefined =>
  type === 'string' || type === 'bytes' ? type : undefined;

const signOfType = (type: string): Sign => (/^(uint|fixed)/.test(type) ? 'u64' : 'i64');

/** Kind of the key at a path, in the first of the messages that has it; i64 if none has. */
export function protobufKind(messages: readonly ProtoMessage[], path: Path): KeyKind {
  const last = messages
    .map((message) => fieldsAt(message, path))
    .find((fields) => fields !== undefined)
    ?.at(-1);
  return kindOfType(last?.type ?? '') ?? signOfType(last?.type ?? '');
}

/** @param isDecimal true: its value is read as a decimal @throws unsupported_field */
function demandReadable(one: Found, isDecimal: boolean): void {
  const { flag, last } = one;
  if (one.decimalParts !== undefined && (flag === 'where' || isDecimal)) return;
  const isScalar = last.message === undefined && last.enumeration === undefined;
  const isInteger = isScalar && INTEGER.test(last.type);
  const isReadable =
    flag === 'time'
      ? one.isTimestamp || isInteger || (isScalar && last.type === 'string')
      : flag === 'where'
        ? last.message === undefined && last.type !== 'bytes'
        : flag === 'dedup'
          ? isInteger || (isScalar && (last.type === 'string' || last.type === 'bytes'))
          : isInteger ||
            // The kind of an aggregated field decides which of these it is.
            ((flag === 'aggregate' || isDecimal) &&
              isScalar &&
              (FLOATING.test(last.type) || kindOfType(last.type) !== undefined)) ||
            (flag === 'key' && isScalar && kindOfType(last.type) !== undefined);
  if (!isReadable) throw one.unsupported();
}

function withNulls(views: BatchViews, place: Place, read: ColumnReader): readonly ColumnReader[] {
  const nulls = nullReader(views, place);
  return nulls === undefined ? [read] : [nulls, read];
}

function filterGet(
  views: BatchViews,
  { one, isDecimal }: { readonly one: Found; readonly isDecimal: boolean },
  at: PlaceOf,
): FieldGet {
  const place = at(one);
  if (one.decimalParts !== undefined)
    return unlessNull(
      views,
      place.nullable,
      decimalFieldGet(decimalColumns(views, one, at) as DecimalColumns),
    );
  const { enumeration } = one.last;
  const symbols = enumeration?.closed === false ? enumeration.values : undefined;
  const get = conditionGet(views, place, isDecimal, symbols);
  if (get === undefined) throw one.unsupported();
  return get;
}

function timeReaders(
  views: BatchViews,
  one: Found,
  { unit }: Extract<TimeSpec, { readonly from: 'field' }>,
  at: PlaceOf,
): readonly ColumnReader[] {
  const place = at(one);
  if (one.isTimestamp) {
    if (unit !== undefined) throw one.unsupported(', which has no unit');
    const inner = (name: string): Place => at(one, name);
    return withNulls(views, place, secondsReader(views, inner('seconds'), inner('nanos')));
  }
  if (one.last.type === 'string') {
    if (unit !== undefined && unit !== 'iso') throw one.unsupported(` in ${unit}`);
    return withNulls(views, place, isoReader(views, place));
  }
  if (unit === undefined || unit === 'iso' || signOf(place.column) === undefined)
    throw one.unsupported(' without a unit');
  return withNulls(views, place, timeReader(views, place, unit));
}

/** Fields that a search for timestamps visits: types may combine without a bound. */
const SEARCHED_FIELDS_MAX = 10_000;

/** Paths of the fields of type google.protobuf.Timestamp, outside of lists and maps. */
export function protobufTimestamps(root: ProtoMessage): readonly Path[] {
  const found: Path[] = [];
  const open = new Set<ProtoMessage>();
  let left = SEARCHED_FIELDS_MAX;
  const visit = (message: ProtoMessage, path: Path): void => {
    open.add(message);
    for (const field of message.fields) {
      if (field.message === undefined || !isSingle(field) || left-- <= 0) continue;
      const at = [...path, field.name];
      if (field.message.name === TIMESTAMP) found.push(at);
      else if (!open.has(field.message)) visit(field.message, at);
    }
    open.delete(message);
  };
  visit(root, []);
  return found;
}
