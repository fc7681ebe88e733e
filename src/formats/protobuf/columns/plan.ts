/** Columns of a Protobuf message: a struct for a message, a list for a repeated field, a map for a
 *  map. A closed enum is a dictionary of its names, an open enum its number. A message inside
 *  itself, and messages nested or repeated beyond a limit, are binary: the bytes of the message,
 *  whose occurrences are joined as the format merges them. */
import { type Column, type ColumnKind, column, mapColumn } from '../../../core/columns/column.ts';
import { formatError } from '../../errors.ts';
import { shownOf } from '../../shown.ts';
import type { ProtoEnum, ProtoField, ProtoMessage } from '../tree.ts';

/** Nesting of columns, and number of columns, from which messages stay binary. */
const COLUMN_DEPTH_MAX = 48;
const COLUMNS_PLANNED_MAX = 8192;

export interface FieldPlan {
  readonly field: ProtoField;
  /** Index of the field in its message. */
  readonly at: number;
  readonly column: Column;
  /** Index of the column in preorder. */
  readonly index: number;
  /** Fields of the message in the column; undefined for other types and for a binary column. */
  readonly inner: MessagePlan | undefined;
  /** True for a message as bytes. */
  readonly isRaw: boolean;
}

export interface MessagePlan {
  readonly message: ProtoMessage;
  /** Requested fields, in the order of their numbers. */
  readonly fields: readonly FieldPlan[];
}

/** Requested fields by name; undefined: all of them. */
export type Requested = ReadonlyMap<string, Requested> | undefined;

/** Name of an extension in brackets, or the text up to a dot. */
const STEP = /\[[^\]]*\]|[^.[\]]+/g;

/** Parses paths such as `customer.city`. A path passes through lists and maps without a name of
 *  their own, and means a whole message where it ends at one. @throws unknown_field */
export function requestedFields(message: ProtoMessage, paths: readonly string[]): Requested {
  const root = new Map<string, Requested>();
  for (const path of paths) {
    let at: Map<string, Requested> | undefined = root;
    let type: ProtoMessage | undefined = message;
    const steps: readonly string[] = path.match(STEP) ?? [];
    for (const [depth, step] of steps.entries()) {
      const field: ProtoField | undefined = type?.fields.find(({ name }) => name === step);
      if (field === undefined) throw unknownField(path);
      type = field.message;
      if (at === undefined) continue;
      const isLast = depth === steps.length - 1;
      const known: Requested = at.get(step);
      const inner: Map<string, Requested> | undefined =
        isLast || (at.has(step) && known === undefined) ? undefined : new Map(known);
      at.set(step, inner);
      at = inner;
    }
    if (steps.length === 0) throw unknownField(path);
  }
  return root;
}

function unknownField(path: string): Error {
  return formatError('unknown_field', `the reader's message has no field ${shownOf(path)}`, {
    next: 'name fields of messages, with dots between them',
    details: { path },
  });
}

/** Plans the columns of a message. */
export function planOf(message: ProtoMessage, requested: Requested): MessagePlan {
  return new Planner().message(message, requested, 1, new Set(), 0).plan;
}

const KINDS: Readonly<Record<string, ColumnKind>> = {
  int32: 'int32',
  sint32: 'int32',
  sfixed32: 'int32',
  uint32: 'uint32',
  fixed32: 'uint32',
  int64: 'int64',
  sint64: 'int64',
  sfixed64: 'int64',
  uint64: 'uint64',
  fixed64: 'uint64',
  bool: 'bool',
  float: 'float32',
  double: 'float64',
  string: 'utf8',
  bytes: 'binary',
};

const enumColumn = ({ closed, values }: ProtoEnum, name: string, nullable: boolean): Column =>
  closed
    ? column('dictionary', name, nullable, { symbols: [...values.values()] })
    : column('int32', name, nullable);

class Planner {
  private columns = 0;

  /** @param first preorder index of the first field; @param next index behind the last column */
  message(
    message: ProtoMessage,
    requested: Requested,
    depth: number,
    around: ReadonlySet<ProtoMessage>,
    first: number,
  ): { readonly plan: MessagePlan; readonly next: number } {
    const within = new Set(around).add(message);
    const fields: FieldPlan[] = [];
    let next = first;
    for (const [at, field] of message.fields.entries()) {
      // Nothing of an unknown type can be read.
      if (field.message?.unknown === true) continue;
      if (requested !== undefined && !requested.has(field.name)) continue;
      const made = this.field(field, at, requested?.get(field.name), depth, within, next);
      fields.push(made.plan);
      next = made.next;
    }
    return { plan: { message, fields }, next };
  }

  private field(
    field: ProtoField,
    at: number,
    requested: Requested,
    depth: number,
    within: ReadonlySet<ProtoMessage>,
    index: number,
  ): { readonly plan: FieldPlan; readonly next: number } {
    const { name, mapKey, repeated } = field;
    const isMap = mapKey !== undefined;
    const isSingle = !isMap && !repeated;
    const valueName = isMap ? 'value' : repeated ? 'item' : name;
    // A map has its entries and their key before the value, a list its item.
    const above = isMap ? 3 : repeated ? 1 : 0;
    this.columns += above + 1;
    const value = this.value(field, valueName, isSingle, requested, depth + above, within, index + above);
    const whole = isMap
      ? mapColumn(name, false, column(KINDS[mapKey] as ColumnKind, 'key', false), value.column)
      : repeated
        ? column('list', name, false, { children: [value.column] })
        : value.column;
    const plan = { field, at, column: whole, index, inner: value.inner, isRaw: value.isRaw };
    return { plan, next: value.next };
  }

  /** Column of one value. */
  private value(
    field: ProtoField,
    name: string,
    isSingle: boolean,
    requested: Requested,
    depth: number,
    within: ReadonlySet<ProtoMessage>,
    index: number,
  ): Pick<FieldPlan, 'column' | 'inner' | 'isRaw'> & { readonly next: number } {
    const { message, enumeration, type } = field;
    const nullable = isSingle && (field.presence || field.required || message !== undefined);
    const next = index + 1;
    if (message === undefined) {
      const made =
        enumeration === undefined
          ? column(KINDS[type] as ColumnKind, name, nullable)
          : enumColumn(enumeration, name, nullable);
      return { column: made, inner: undefined, isRaw: false, next };
    }
    if (within.has(message) || depth >= COLUMN_DEPTH_MAX || this.columns >= COLUMNS_PLANNED_MAX)
      return { column: column('binary', name, nullable), inner: undefined, isRaw: true, next };
    const inner = this.message(message, requested, depth + 1, within, next);
    const children = inner.plan.fields.map((one) => one.column);
    return {
      column: column('struct', name, nullable, { children }),
      inner: inner.plan,
      isRaw: false,
      next: inner.next,
    };
  }
}
