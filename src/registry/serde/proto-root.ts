/** protobufjs' types for a linked schema: its own messages and all that their fields reach, through any imports.
 *
 *  Every syntax is handed over as the one edition whose features say the rest: presence, packing, group tags. Names
 *  stay as in the schema.
 */
import protobuf from 'protobufjs';
import { hasPresence, isClosed, isDelimited, isPacked } from '../schemas/proto-features.ts';
import type { ProtoLink } from '../schemas/proto-link.ts';
import {
  allMessages,
  type LinkedEnum,
  type LinkedField,
  type LinkedMessage,
  mapKeyOf,
} from '../schemas/proto-model.ts';

const EDITION = '2023';

interface Node {
  edition?: string;
  fields?: Record<string, unknown>;
  oneofs?: Record<string, { oneof: string[] }>;
  values?: Record<string, number>;
  options?: Record<string, unknown>;
  nested?: Record<string, Node>;
}

export function protobufRoot(link: ProtoLink): protobuf.Root {
  const tree: Node = {};
  const at = (name: string): Node => {
    let node = tree;
    for (const part of name.split('.')) {
      node.nested ??= Object.create(null) as Record<string, Node>;
      node = node.nested[part] ??= {};
    }
    return node;
  };
  const types = new Set<LinkedMessage | LinkedEnum>(allMessages(link.root.messages));
  for (const type of types) {
    if (type.kind === 'enum') {
      Object.assign(at(type.name), enumOf(type));
      continue;
    }
    if (type.isMapEntry) continue;
    Object.assign(at(type.name), messageOf(type));
    for (const field of type.fields) {
      const reached = mapKeyOf(field) === undefined ? field : mapValue(field);
      if (reached.target !== undefined) types.add(reached.target);
    }
  }
  const root = protobuf.Root.fromJSON(tree as protobuf.INamespace);
  root.resolveAll();
  return root;
}

const mapValue = (field: LinkedField): LinkedField =>
  (field.target as LinkedMessage).fields[1] as LinkedField;
const typeName = ({ target, type }: LinkedField): string => (target === undefined ? type : `.${target.name}`);

function messageOf(message: LinkedMessage): Node {
  const fields = Object.create(null) as Record<string, unknown>;
  const oneofs = Object.create(null) as Record<string, { oneof: string[] }>;
  for (const { name, node } of message.oneofs) if (node !== undefined) oneofs[name] = { oneof: [] };
  for (const field of message.fields) {
    // Of a type that a lenient reader did not find; its bytes are unknown to the codec as well.
    if (field.type === 'message' && field.target === undefined) continue;
    const key = mapKeyOf(field);
    fields[field.name] = {
      id: field.number,
      type: typeName(key === undefined ? field : mapValue(field)),
      ...(key === undefined ? { rule: field.label } : { keyType: key.type }),
      options: { features: featuresOf(field) },
    };
    const oneof = field.oneof === undefined ? undefined : message.oneofs[field.oneof];
    if (oneof?.node !== undefined) oneofs[oneof.name]?.oneof.push(field.name);
  }
  return { edition: EDITION, fields, oneofs };
}

function featuresOf(field: LinkedField): Record<string, string> {
  const presence =
    field.label === 'required' ? 'LEGACY_REQUIRED' : hasPresence(field) ? 'EXPLICIT' : 'IMPLICIT';
  return {
    field_presence: presence,
    repeated_field_encoding: isPacked(field) ? 'PACKED' : 'EXPANDED',
    message_encoding: isDelimited(field) ? 'DELIMITED' : 'LENGTH_PREFIXED',
  };
}

function enumOf(enumeration: LinkedEnum): Node {
  const values = Object.create(null) as Record<string, number>;
  for (const { name, number } of enumeration.node.values) values[name] = number;
  return {
    edition: EDITION,
    values,
    options: { allow_alias: true, features: { enum_type: isClosed(enumeration) ? 'CLOSED' : 'OPEN' } },
  };
}
