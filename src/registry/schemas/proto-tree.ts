/** A Protobuf schema as the checker and the codec see it: messages with their fields, by number.
 *
 *  Invariants: (1) messages are in the order of the file, because the message indexes on the wire count them, groups
 *  among them, and the entry of a map where it is written as a message; (2) a message is one object, however often it is used; (3) what the checker has no
 *  rule for stands in `unjudged`.
 */

import type { ParseOptions } from './options.ts';
import { hasPresence, isClosed } from './proto-features.ts';
import type { ProtoLink } from './proto-link.ts';
import { type LinkedEnum, type LinkedField, type LinkedMessage, mapKeyOf } from './proto-model.ts';
import { protoLink } from './proto-parse.ts';

export interface ProtoEnum {
  readonly name: string;
  /** First name of each number, in the order of the file. */
  readonly values: ReadonlyMap<number, string>;
  /** A reader keeps a number without a name apart from the field. */
  readonly closed: boolean;
}

export interface ProtoField {
  readonly name: string;
  readonly number: number;
  /** A scalar's name, or `message`, `enum`. */
  readonly type: string;
  readonly message: ProtoMessage | undefined;
  readonly enumeration: ProtoEnum | undefined;
  /** Scalar name of a map's key; the rest of the field then describes the map's value. */
  readonly mapKey: string | undefined;
  readonly repeated: boolean;
  readonly required: boolean;
  /** Whether absent differs from the default. */
  readonly presence: boolean;
  readonly oneof: string | undefined;
}

export interface ProtoMessage {
  /** With its package, without a leading dot. */
  readonly name: string;
  /** Position in the file, as on the wire; empty for a message of an import. */
  readonly path: readonly number[];
  readonly fields: ProtoField[];
  /** Constructs of this message that the checker has no rule for. */
  readonly unjudged: string[];
}

export interface ProtoFile {
  /** Every message of the file itself, outer before inner, in its order. */
  readonly messages: readonly ProtoMessage[];
  readonly byName: ReadonlyMap<string, ProtoMessage>;
  /** The file and all it imports, resolved. */
  readonly link: ProtoLink;
}

/** Parses and checks a schema. @param source text, or base64 of a FileDescriptorProto. @throws invalid_schema, schema_too_large */
export function parseProto(
  source: string,
  options: ParseOptions = {},
): { readonly canonical: string; readonly tree: ProtoFile } {
  const { link, text } = protoLink(source, options);
  return { canonical: text, tree: treeOf(link) };
}

function treeOf(link: ProtoLink): ProtoFile {
  const trees = new Trees();
  const messages = trees.collect(link.root.messages);
  return { messages, byName: new Map(messages.map((message) => [message.name, message])), link };
}

class Trees {
  private readonly messages = new Map<LinkedMessage, ProtoMessage>();
  private readonly enums = new Map<LinkedEnum, ProtoEnum>();
  private readonly paths = new Map<LinkedMessage, readonly number[]>();

  /** The messages of the file, outer before inner. */
  collect(roots: readonly LinkedMessage[]): ProtoMessage[] {
    const found: LinkedMessage[] = [];
    const walk = (messages: readonly LinkedMessage[], outer: readonly number[]): void => {
      let index = 0;
      for (const message of messages) {
        if (message.isImplicit) continue;
        const path = [...outer, index++];
        if (message.isMapEntry) continue;
        this.paths.set(message, path);
        found.push(message);
        walk(message.messages, path);
      }
    };
    walk(roots, []);
    return found.map((message) => this.message(message));
  }

  private message(linked: LinkedMessage): ProtoMessage {
    const held = this.messages.get(linked);
    if (held !== undefined) return held;
    const unjudged: string[] = [];
    if (linked.extensionRanges.length > 0) unjudged.push('extensions');
    if (linked.isGroup) unjudged.push('a group');
    for (const _extension of linked.extensions) unjudged.push('extend');
    const path = this.paths.get(linked) ?? [];
    const message: ProtoMessage = { name: linked.name, path, fields: [], unjudged };
    this.messages.set(linked, message);
    for (const field of linked.fields) message.fields.push(this.field(field, message));
    message.fields.sort((a, b) => a.number - b.number);
    return message;
  }

  private field(field: LinkedField, owner: ProtoMessage): ProtoField {
    const key = mapKeyOf(field);
    const isMap = key !== undefined;
    const value = isMap ? ((field.target as LinkedMessage).fields[1] as LinkedField) : field;
    const { target } = value;
    if (target === undefined && value.type === 'message')
      owner.unjudged.push(`a field of the unknown type ${value.node.type}`);
    const oneof = field.oneof === undefined ? undefined : field.parent?.oneofs[field.oneof];
    return {
      name: field.name,
      number: field.number,
      type: value.type === 'group' ? 'message' : value.type,
      message: value.type === 'message' || value.type === 'group' ? this.messageOr(value) : undefined,
      enumeration: target?.kind === 'enum' ? this.enumeration(target) : undefined,
      mapKey: key?.type,
      repeated: field.label === 'repeated' && !isMap,
      required: field.label === 'required',
      presence: hasPresence(field),
      oneof: oneof?.node === undefined ? undefined : oneof.name,
    };
  }

  private messageOr({ target, node }: LinkedField): ProtoMessage {
    if (target?.kind === 'message') return this.message(target);
    return { name: node.type.replace(/^\./, ''), path: [], fields: [], unjudged: ['an unknown type'] };
  }

  private enumeration(linked: LinkedEnum): ProtoEnum {
    const held = this.enums.get(linked);
    if (held !== undefined) return held;
    const values = new Map<number, string>();
    for (const { name, number } of linked.node.values) if (!values.has(number)) values.set(number, name);
    const enumeration = { name: linked.name, values, closed: isClosed(linked) };
    this.enums.set(linked, enumeration);
    return enumeration;
  }
}
