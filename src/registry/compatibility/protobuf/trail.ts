/** Position of a comparison of two Protobuf schemas: the path for messages, the route of an event
 *  along the writer's numbers, and the two messages. Trails share their outer parts. */
import type { ProtoField, ProtoFile, ProtoMessage } from '../../../formats/protobuf/tree.ts';
import type { EventRoute, Step } from '../finding.ts';

/** Pair of messages: the writer writes values as one, and the reader reads them as the other. */
export interface MessagePair {
  readonly reader: ProtoMessage;
  readonly writer: ProtoMessage;
  readonly outer: MessagePair | undefined;
  /** Number of pairs around this one. */
  readonly depth: number;
  /** Pair where the shown beginning of a long path ends. */
  readonly head: MessagePair | undefined;
  /** Part of the path that this pair adds: `.items[]`. */
  readonly label: string;
  readonly route: EventRoute;
}

/** Two fields of one number in a pair of messages. */
export interface FieldPair {
  readonly owner: MessagePair;
  readonly reader: ProtoField;
  readonly writer: ProtoField;
}

export const stepInto = (outer: EventRoute, step: Step): EventRoute => ({ outer, step });

/** Labels shown at either end of a path: a chain of messages can be as long as a text. */
const LABELS_SHOWN_MAX = 20;

/** Extends a trail by the pair that a field leads to. */
export function inward(
  outer: MessagePair,
  inner: Pick<MessagePair, 'reader' | 'writer' | 'label' | 'route'>,
): MessagePair {
  const { reader, writer, label, route } = inner;
  const head = outer.depth === LABELS_SHOWN_MAX ? outer : outer.head;
  return { reader, writer, outer, depth: outer.depth + 1, head, label, route };
}

/** Renders a path: `Order.items[].qty` */
export function pathOf(pair: MessagePair, label = ''): string {
  const labels = [label];
  let one: MessagePair | undefined = pair;
  for (; one !== undefined && labels.length <= LABELS_SHOWN_MAX; one = one.outer) labels.push(one.label);
  if (one?.head !== undefined) {
    labels.push(`.(${one.depth - one.head.depth} more)`);
    one = one.head;
  }
  for (; one !== undefined; one = one.outer) labels.push(one.label);
  return labels.reverse().join('');
}

/** Place of a message, or of a field by its number: `#/Outer/Inner/2`, without the package. */
export function placeOf(file: ProtoFile, fullName: string, number?: number): string {
  const packageName = file.link.root.node.package;
  const prefix = packageName === undefined ? '' : `${packageName}.`;
  const name = fullName.startsWith(prefix) ? fullName.slice(prefix.length) : fullName;
  return `#/${name.replaceAll('.', '/')}${number === undefined ? '' : `/${number}`}`;
}

/** Place of a field. A field of a map entry has the place of its map. */
export function fieldPlace(file: ProtoFile, message: ProtoMessage, number: number): string {
  if (isEntry(message)) return fieldPlace(file, message.owner, message.field.number);
  return placeOf(file, message.name, number);
}

interface MapEntry extends ProtoMessage {
  /** Message that has the map as a field. */
  readonly owner: ProtoMessage;
  readonly field: ProtoField;
}

export const isEntry = (message: ProtoMessage): message is MapEntry => 'owner' in message;

const NONE_RESERVED = { numbers: [], names: [] };

/** Map entry as the message that it is on the wire: a key = 1 and a value = 2. A writer always
 *  writes both; a reader uses the default for a missing one. The names of its fields cannot clash
 *  with other names.
 *  Source: protobuf.dev, "Encoding", "Maps". */
export function entryOf(owner: ProtoMessage, field: ProtoField, written: boolean): MapEntry {
  const { at, message, enumeration, type, mapKey } = field;
  return {
    name: `the entry of ${field.name}`,
    path: [],
    fields: [
      entryPart('<key>', 1, mapKey as string, written, at),
      { ...entryPart('<value>', 2, type, written, at), message, enumeration },
    ],
    reserved: NONE_RESERVED,
    unknown: false,
    at,
    owner,
    field,
  };
}

const entryPart = (
  name: string,
  number: number,
  type: string,
  required: boolean,
  at: ProtoField['at'],
): ProtoField => ({
  name,
  jsonName: name,
  number,
  type,
  message: undefined,
  enumeration: undefined,
  mapKey: undefined,
  repeated: false,
  required,
  presence: false,
  oneof: undefined,
  packed: false,
  delimited: false,
  at,
});

/** Part of the path that a field adds. */
export function labelOf(owner: ProtoMessage, field: ProtoField): string {
  if (isEntry(owner)) return field.number === 1 ? '{key}' : '{}';
  return `.${field.name}`;
}
