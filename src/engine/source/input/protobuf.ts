/** Plans of Protobuf messages.
 *
 *  A message that has the fields of the job is read as it is. Otherwise the message of the same
 *  name in the reader's schema gives the fields their numbers; the writer's message must have these
 *  numbers, because an absent field would be read as its zero. */
import type { ColumnKernels } from '../../../core/columns/kernel.ts';
import type { BatchViews } from '../../../core/columns/views.ts';
import { protoColumnDecoder } from '../../../formats/protobuf/columns/decoder.ts';
import type { ProtoField, ProtoMessage } from '../../../formats/protobuf/tree.ts';
import type { ProtoSchema } from '../../../formats/schema.ts';
import type { Aggregates } from '../../aggregate/definition.ts';
import { isOfKind, valueReader } from '../../aggregate/field-columns.ts';
import { idReader } from '../../dedup/ids.ts';
import { isVariable, type KeyKind } from '../../keys/type.ts';
import {
  type ColumnReader,
  type FieldGet,
  fieldGet,
  integerReader,
  isoReader,
  nullReader,
  type Place,
  placeAt,
  secondsReader,
  signOf,
  timeReader,
} from './columns.ts';
import type { InputFields, KeyField, Sign, TimeSpec } from './definition.ts';
import { keyGet, keyReader } from './key/columns.ts';
import { type InputFlag, missingField, unsupported, WriterPlan } from './plan.ts';

type Path = readonly string[];
type Flag = InputFlag;

const TIMESTAMP = 'google.protobuf.Timestamp';

/** Fields on a path; undefined where the message has none of these names. */
function fieldsAt(message: ProtoMessage, path: Path): readonly ProtoField[] | undefined {
  const found: ProtoField[] = [];
  let at: ProtoMessage | undefined = message;
  for (const name of path) {
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

/** A field that the job reads, with its place in the columns. */
class Found {
  readonly flag: Flag;
  readonly path: Path;
  readonly fields: readonly ProtoField[];

  constructor(flag: Flag, path: Path, fields: readonly ProtoField[]) {
    this.flag = flag;
    this.path = path;
    this.fields = fields;
    if (!fields.every(isSingle)) throw unsupported(flag, path, 'in a list or a map');
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

  unsupported(why = ''): Error {
    return unsupported(this.flag, this.path, `${typeText(this.last)}${why}`);
  }

  /** Requested column paths. */
  get requested(): readonly string[] {
    const path = this.columnPath.join('.');
    return this.isTimestamp ? [`${path}.seconds`, `${path}.nanos`] : [path];
  }
}

/** Message with the fields of the job: the writer's own, or the reader's of the same name. */
function messageWith(
  needed: ReadonlyArray<readonly [Flag, Path]>,
  reader: ProtoSchema | undefined,
  writer: ProtoMessage,
): ProtoMessage {
  const lacking = needed.find(([, path]) => fieldsAt(writer, path) === undefined);
  if (lacking === undefined) return writer;
  const message = reader?.tree.byName.get(writer.name);
  const unresolved =
    message === undefined
      ? lacking
      : needed.find(([, path]) => {
          const fields = fieldsAt(message, path);
          return fields === undefined || !hasNumbers(writer, fields);
        });
  if (unresolved !== undefined) throw missingField(...unresolved);
  return message as ProtoMessage;
}

/** Makes the plan of a writer's message.
 *  @param reader schema of the subject; undefined: there is none
 *  @throws SchemaFault if none of the writer's records is an event; unsupported_field */
export function protobufPlan(
  kernels: ColumnKernels,
  fields: InputFields,
  reader: ProtoSchema | undefined,
  writer: ProtoMessage,
): WriterPlan {
  const { key, time, value, where, dedup, aggregates } = fields;
  const needed: ReadonlyArray<readonly [Flag, Path]> = [
    ...(time.from === 'field' ? [['time', time.path] as const] : []),
    ...(key.from === 'fields' ? key.fields.map(({ path }) => ['key', path] as const) : []),
    ...(value === undefined ? [] : [['value', value] as const]),
    ...(dedup === undefined ? [] : [['dedup', dedup] as const]),
    ...(aggregates?.fields ?? []).map(({ path }) => ['aggregate', path] as const),
  ];
  const message = messageWith(needed, reader, writer);
  const found = (flag: Flag, path: Path): Found =>
    new Found(flag, path, fieldsAt(message, path) as ProtoField[]);
  const filtered = (where?.fields ?? []).map(({ steps }) => {
    const path = steps as Path;
    return fieldsAt(message, path) === undefined ? undefined : found('where', path);
  });
  const all = [
    ...needed.map(([flag, path]) => found(flag, path)),
    ...filtered.filter((one) => one !== undefined),
  ];
  for (const one of all) demandReadable(one);
  const decoder = protoColumnDecoder(kernels, message, [
    ...new Set(all.flatMap(({ requested }) => requested)),
  ]);
  return new WriterPlan(decoder, (views) => {
    const at: PlaceOf = (one, ...inner) => {
      const place = placeAt(decoder.schema, [...one.columnPath, ...inner]);
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
    const aggregated = (of: Aggregates): readonly ColumnReader[] =>
      of.fields.map((field) => {
        const one = found('aggregate', field.path);
        const place = at(one);
        if (!isOfKind(place.column, field.kind)) throw one.unsupported();
        return valueReader(views, place, field, of.columns);
      });
    return {
      time: time.from === 'record' ? [] : timeReaders(views, found('time', time.path), time, at),
      where: where && { filter: where, gets: filtered.map((one) => one && filterGet(views, one, at)) },
      fields: [
        ...(key.from === 'record' ? [] : keys(key.fields)),
        ...(value === undefined ? [] : integer(found('value', value), 'value', 'i64')),
        ...(dedup === undefined ? [] : identifier(found('dedup', dedup))),
        ...(aggregates === undefined ? [] : aggregated(aggregates)),
      ],
    };
  });
}

const FLOATING = /^(float|double)$/;
const INTEGER = /^(u?int|sint|s?fixed)(32|64)$/;

const kindOfType = (type: string): KeyKind | undefined =>
  type === 'string' || type === 'bytes' ? type : undefined;

const signOfType = (type: string): Sign => (/^(uint|fixed)/.test(type) ? 'u64' : 'i64');

/** Kind of the key at a path, in the first message that has it; i64 if none has. */
export function protobufKind({ tree }: ProtoSchema, path: Path): KeyKind {
  const last = tree.messages
    .map((message) => fieldsAt(message, path))
    .find((fields) => fields !== undefined)
    ?.at(-1);
  return kindOfType(last?.type ?? '') ?? signOfType(last?.type ?? '');
}

/** @throws unsupported_field */
function demandReadable(one: Found): void {
  const { flag, last } = one;
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
            (flag === 'aggregate' &&
              isScalar &&
              (FLOATING.test(last.type) || kindOfType(last.type) !== undefined)) ||
            (flag === 'key' && isScalar && kindOfType(last.type) !== undefined);
  if (!isReadable) throw one.unsupported();
}

function withNulls(views: BatchViews, place: Place, read: ColumnReader): readonly ColumnReader[] {
  const nulls = nullReader(views, place);
  return nulls === undefined ? [read] : [nulls, read];
}

function filterGet(views: BatchViews, one: Found, at: PlaceOf): FieldGet {
  const { enumeration } = one.last;
  return fieldGet(views, at(one), enumeration?.closed === false ? enumeration.values : undefined);
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
