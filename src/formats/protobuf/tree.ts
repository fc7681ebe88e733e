/** A Protobuf schema for checkers and decoders: messages with their fields, by number.
 *
 *  Invariants: (1) messages are in the order of the file, because the message indexes on the wire
 *  count them; groups and map entries that are written as messages count too; (2) a message is one
 *  object, however often it is used; (3) an extension is a field of the message that it extends,
 *  wherever it is declared. */

import type { ParseOptions } from '../options.ts';
import { hasPresence, isClosed, isDelimited, isPacked } from './link/features.ts';
import {
  allExtensions,
  type LinkedEnum,
  type LinkedField,
  type LinkedFile,
  type LinkedMessage,
  mapKeyOf,
} from './link/model.ts';
import type { ProtoLink } from './link/resolve.ts';
import { protoLink } from './parse.ts';
import { isSet, type Position, type ReservedNode } from './syntax/ast.ts';

/** Position in the schema's text, or in that of the import `from`. */
export interface ProtoPlace extends Position {
  readonly from?: string;
}

export interface ProtoEnum {
  readonly name: string;
  /** First name of each number, in the order of the file. */
  readonly values: ReadonlyMap<number, string>;
  /** Numbers of all names, including aliases. */
  readonly numbers: ReadonlyMap<string, number>;
  /** True for a closed enum: readers do not store an unknown number in the field. */
  readonly closed: boolean;
  readonly at: ProtoPlace;
  /** Position of the first name of a number. */
  readonly placeOf: (number: number) => ProtoPlace;
}

export interface ProtoField {
  /** Name of the field; of an extension: `[package.name]`. */
  readonly name: string;
  /** Key in JSON; of an extension its name. */
  readonly jsonName: string;
  readonly number: number;
  /** Name of a scalar type, or `message`, `enum`. */
  readonly type: string;
  readonly message: ProtoMessage | undefined;
  readonly enumeration: ProtoEnum | undefined;
  /** Scalar name of a map's key; the other properties then describe the map's value. */
  readonly mapKey: string | undefined;
  readonly repeated: boolean;
  readonly required: boolean;
  /** True when an absent field differs from the default. */
  readonly presence: boolean;
  readonly oneof: string | undefined;
  /** True for a repeated field with packed encoding. */
  readonly packed: boolean;
  /** True for a message that is encoded between group tags. */
  readonly delimited: boolean;
  readonly at: ProtoPlace;
}

export interface ProtoMessage {
  /** Full name with the package, without a leading dot. */
  readonly name: string;
  /** Path of message indexes as on the wire; empty for a message of an import. */
  readonly path: readonly number[];
  /** Fields by number, ascending, including extensions. */
  readonly fields: ProtoField[];
  readonly reserved: ProtoReserved;
  /** True for a type that a lenient reader did not find: nothing is known about it, not even
   *  whether it is a message. */
  readonly unknown: boolean;
  /** True when extensions are encoded as items of a message set, by the option
   *  message_set_wire_format. */
  readonly messageSet?: boolean;
  readonly at: ProtoPlace;
}

export interface ProtoReserved {
  /** Ranges that include both ends. */
  readonly numbers: ReadonlyArray<{ readonly from: number; readonly to: number }>;
  readonly names: readonly string[];
}

export interface ProtoFile {
  /** All messages of the file itself, outer before inner, in its order. */
  readonly messages: readonly ProtoMessage[];
  readonly byName: ReadonlyMap<string, ProtoMessage>;
  /** Messages of imports that events reach and that this file extends, with only these extensions.
   */
  readonly extended: ReadonlyArray<Pick<ProtoMessage, 'name' | 'fields'>>;
  /** The file and all its imports, resolved. */
  readonly link: ProtoLink;
}

/** Parses and checks a schema. @param source text, or base64 of a FileDescriptorProto
 *  @throws invalid_schema, schema_too_large */
export function parseProto(
  source: string,
  options: ParseOptions = {},
): { readonly canonical: string; readonly lookupText?: string; readonly tree: ProtoFile } {
  const { link, text, ...more } = protoLink(source, options);
  return { canonical: text, ...more, tree: treeOf(link) };
}

function treeOf(link: ProtoLink): ProtoFile {
  const trees = new Trees(link);
  const messages = trees.collect(link.root.messages);
  const byName = new Map(messages.map((message) => [message.name, message]));
  return { messages, byName, extended: trees.extended(link.root), link };
}

export const placeIn = (file: LinkedFile, at: Position): ProtoPlace =>
  file.path === undefined ? at : { line: at.line, column: at.column, from: file.path };

const NONE_RESERVED: ProtoReserved = { numbers: [], names: [] };

const reservedOf = (nodes: readonly ReservedNode[]): ProtoReserved =>
  nodes.length === 0
    ? NONE_RESERVED
    : { numbers: nodes.flatMap(({ ranges }) => ranges), names: nodes.flatMap(({ names }) => names) };

class Trees {
  private readonly messages = new Map<LinkedMessage, ProtoMessage>();
  private readonly enums = new Map<LinkedEnum, ProtoEnum>();
  private readonly paths = new Map<LinkedMessage, readonly number[]>();
  private readonly extensions = new Map<LinkedMessage, LinkedField[]>();
  /** Queue of messages whose fields are still to be made: a chain of types may be longer than the
   *  stack is deep. */
  private readonly open: Array<readonly [LinkedMessage, ProtoMessage]> = [];

  constructor(link: ProtoLink) {
    for (const file of [link.root, ...link.files.values()]) {
      for (const extension of allExtensions(file)) {
        if (extension.extendee === undefined) continue;
        const held = this.extensions.get(extension.extendee);
        if (held === undefined) this.extensions.set(extension.extendee, [extension]);
        else held.push(extension);
      }
    }
  }

  /** Messages of the file, outer before inner. */
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
    const messages = found.map((message) => this.message(message));
    for (let next = this.open.pop(); next !== undefined; next = this.open.pop()) this.fill(...next);
    return messages;
  }

  /** Imported messages that this file extends, of those that were collected. */
  extended(root: LinkedFile): Array<Pick<ProtoMessage, 'name' | 'fields'>> {
    const found: Array<Pick<ProtoMessage, 'name' | 'fields'>> = [];
    for (const [linked, extensions] of this.extensions) {
      const message = linked.file === root ? undefined : this.messages.get(linked);
      if (message === undefined) continue;
      const own = new Set(extensions.filter(({ file }) => file === root).map(({ number }) => number));
      const fields = message.fields.filter(({ number }) => own.has(number));
      if (fields.length > 0) found.push({ name: message.name, fields });
    }
    return found;
  }

  private message(linked: LinkedMessage): ProtoMessage {
    const held = this.messages.get(linked);
    if (held !== undefined) return held;
    const message: ProtoMessage = {
      name: linked.name,
      path: this.paths.get(linked) ?? [],
      fields: [],
      reserved: reservedOf(linked.reserved),
      unknown: false,
      messageSet: isSet(linked.options, 'message_set_wire_format'),
      at: placeIn(linked.file, linked.node.at),
    };
    this.messages.set(linked, message);
    this.open.push([linked, message]);
    return message;
  }

  private fill(linked: LinkedMessage, message: ProtoMessage): void {
    const { fields } = message;
    for (const field of linked.fields) fields.push(this.field(field));
    for (const extension of this.extensions.get(linked) ?? []) fields.push(this.field(extension));
    fields.sort((a, b) => a.number - b.number);
  }

  private field(field: LinkedField): ProtoField {
    const key = mapKeyOf(field);
    const isMap = key !== undefined;
    const value = isMap ? ((field.target as LinkedMessage).fields[1] as LinkedField) : field;
    const { target } = value;
    const oneof = field.oneof === undefined ? undefined : field.parent?.oneofs[field.oneof];
    return {
      name: field.extendeeName === undefined ? field.name : `[${field.fullName}]`,
      jsonName: field.extendeeName === undefined ? field.jsonName : `[${field.fullName}]`,
      number: field.number,
      type: value.type === 'group' ? 'message' : value.type,
      message: value.type === 'message' || value.type === 'group' ? this.messageOr(value) : undefined,
      enumeration: target?.kind === 'enum' ? this.enumeration(target) : undefined,
      mapKey: key?.type,
      repeated: field.label === 'repeated' && !isMap,
      required: field.label === 'required',
      presence: hasPresence(field),
      oneof: oneof?.node === undefined ? undefined : oneof.name,
      packed: !isMap && isPacked(field),
      // Map entries and map values never have group encoding, whatever the file sets for messages.
      delimited: !isMap && isDelimited(field),
      at: placeIn(field.file, field.at),
    };
  }

  private messageOr({ target, node, file, at }: LinkedField): ProtoMessage {
    if (target?.kind === 'message') return this.message(target);
    const name = node.type.replace(/^\./, '');
    return { name, path: [], fields: [], reserved: NONE_RESERVED, unknown: true, at: placeIn(file, at) };
  }

  private enumeration(linked: LinkedEnum): ProtoEnum {
    const held = this.enums.get(linked);
    if (held !== undefined) return held;
    const { file, node } = linked;
    const values = new Map<number, string>();
    for (const { name, number } of node.values) if (!values.has(number)) values.set(number, name);
    const at = placeIn(file, node.at);
    let places: Map<number, Position> | undefined;
    const placeOf = (number: number): ProtoPlace => {
      // In reverse order, so that the first name of a number remains.
      places ??= new Map(node.values.map((value) => [value.number, value.at] as const).reverse());
      const value = places.get(number);
      return value === undefined ? at : placeIn(file, value);
    };
    const numbers = new Map(node.values.map((value) => [value.name, value.number] as const));
    const enumeration = { name: linked.name, values, numbers, closed: isClosed(linked), at, placeOf };
    this.enums.set(linked, enumeration);
    return enumeration;
  }
}
