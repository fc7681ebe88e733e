/** Messages with a JSON form of their own, by their names, and the message types that an Any of a
 *  schema may hold. */
import type { ProtoFile, ProtoMessage } from '../tree.ts';

export const WRAPPERS: ReadonlySet<string> = new Set(
  ['Double', 'Float', 'Int64', 'UInt64', 'Int32', 'UInt32', 'Bool', 'String', 'Bytes'].map(
    (type) => `google.protobuf.${type}Value`,
  ),
);
export const NULL_VALUE = 'google.protobuf.NullValue';
export const VALUE = 'google.protobuf.Value';
export const ANY = 'google.protobuf.Any';

const TEXT_FORMS = ['Timestamp', 'Duration', 'FieldMask', 'Struct', 'ListValue', 'Value'];
const SPECIAL: ReadonlySet<string> = new Set([
  ...WRAPPERS,
  ...TEXT_FORMS.map((name) => `google.protobuf.${name}`),
]);

/** True for a message whose JSON form is not an object of its fields. */
export const isSpecial = (message: ProtoMessage): boolean => SPECIAL.has(message.name);

const DYNAMIC: ReadonlySet<string> = new Set([
  'google.protobuf.Struct',
  'google.protobuf.ListValue',
  VALUE,
  ANY,
]);

/** True for a message whose JSON form has names that are no fields of the message. */
export const isDynamic = (message: ProtoMessage): boolean => DYNAMIC.has(message.name);

/** Message types that the messages of a file reach, by full name. */
export function reachable(file: ProtoFile): ReadonlyMap<string, ProtoMessage> {
  const found = new Map(file.byName);
  const open = [...file.messages];
  for (let next = open.pop(); next !== undefined; next = open.pop())
    for (const { message } of next.fields) {
      if (message === undefined || message.unknown || found.has(message.name)) continue;
      found.set(message.name, message);
      open.push(message);
    }
  return found;
}

/** Full name of the type in a type URL. */
export const typeOfUrl = (url: string): string => url.slice(url.lastIndexOf('/') + 1);
