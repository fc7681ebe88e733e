/** Encodes a linked file as the bytes of a FileDescriptorProto, as protoc writes them: fields by
 *  number, names resolved with a leading dot, explicit JSON names. Numbers:
 *  google/protobuf/descriptor.proto. */

import { defaultText } from '../link/default.ts';
import type { LinkedEnum, LinkedField, LinkedFile, LinkedMessage, LinkedService } from '../link/model.ts';
import type { ProtoLink } from '../link/resolve.ts';
import { ENUM_NUMBER_MAX, type OptionNode, plainOption } from '../syntax/ast.ts';
import { ProtoWriter } from './bytes.ts';
import { type OptionTolerance, optionBytes } from './option-bytes.ts';

export const FIELD_TYPES: readonly string[] = [
  '',
  'double',
  'float',
  'int64',
  'uint64',
  'int32',
  'fixed64',
  'fixed32',
  'bool',
  'string',
  'group',
  'message',
  'bytes',
  'uint32',
  'enum',
  'sfixed32',
  'sfixed64',
  'sint32',
  'sint64',
];
export const FIELD_LABELS = ['', 'optional', 'required', 'repeated'] as const;
/** `edition` of a descriptor, by its name in the source. */
export const EDITION_NUMBERS: Readonly<Record<string, number>> = { '2023': 1000 };

/** Encodes a file. @param name of the file in the descriptor.
 *  @throws invalid_schema where an option does not fit */
export function descriptorBytes(
  link: ProtoLink,
  file: LinkedFile,
  name: string,
  tolerance: OptionTolerance = 'none',
): Buffer {
  return new Describer(link, file, tolerance).file(name);
}

class Describer {
  private readonly link: ProtoLink;
  private readonly source: LinkedFile;
  private readonly tolerance: OptionTolerance;

  constructor(link: ProtoLink, source: LinkedFile, tolerance: OptionTolerance) {
    this.link = link;
    this.source = source;
    this.tolerance = tolerance;
  }

  file(name: string): Buffer {
    const { node, imports, messages, enums, services, extensions } = this.source;
    const writer = new ProtoWriter();
    const indexes = (mode: 'public' | 'weak'): number[] =>
      imports.flatMap((one, index) => (one.mode === mode ? [index] : []));
    writer
      .bytes(1, name)
      .bytes(2, node.package)
      .each(
        3,
        imports.map(({ file }) => file.path ?? ''),
      )
      .each(
        4,
        messages.map((message) => this.message(message)),
      )
      .each(
        5,
        enums.map((enumeration) => this.enumeration(enumeration)),
      )
      .each(
        6,
        services.map((service) => this.service(service)),
      )
      .each(
        7,
        extensions.map((extension) => this.field(extension)),
      )
      .bytes(8, this.options(node.options, 'File', node.package ?? ''));
    for (const index of indexes('public')) writer.integer(10, index);
    for (const index of indexes('weak')) writer.integer(11, index);
    if (node.syntax !== 'proto2') writer.bytes(12, node.syntax);
    if (node.edition !== undefined) writer.integer(14, EDITION_NUMBERS[node.edition]);
    return writer.finish();
  }

  private options(options: readonly OptionNode[], of: string, scope: string): Buffer | undefined {
    const place = { link: this.link, file: this.source, scope, tolerance: this.tolerance };
    return optionBytes(options, `google.protobuf.${of}Options`, place);
  }

  private message(message: LinkedMessage): Buffer {
    const scope = parentOf(message.name);
    const writer = new ProtoWriter()
      .bytes(1, message.shortName)
      .each(
        2,
        message.fields.map((field) => this.field(field)),
      )
      .each(
        3,
        message.messages.map((nested) => this.message(nested)),
      )
      .each(
        4,
        message.enums.map((nested) => this.enumeration(nested)),
      );
    for (const { ranges, options } of message.extensionRanges) {
      for (const { from, to } of ranges) {
        const bytes = this.options(options, 'ExtensionRange', scope);
        writer.bytes(
          5,
          new ProtoWriter()
            .integer(1, from)
            .integer(2, to + 1)
            .bytes(3, bytes)
            .finish(),
        );
      }
    }
    writer.each(
      6,
      message.extensions.map((extension) => this.field(extension)),
    );
    writer.bytes(
      7,
      message.isImplicit ? Buffer.of(0x38, 1) : this.options(message.options, 'Message', scope),
    );
    for (const { name, node } of message.oneofs) {
      const bytes = this.options(node?.options ?? [], 'Oneof', message.name);
      writer.bytes(8, new ProtoWriter().bytes(1, name).bytes(2, bytes).finish());
    }
    for (const { from, to } of message.reserved.flatMap(({ ranges }) => ranges)) {
      writer.bytes(
        9,
        new ProtoWriter()
          .integer(1, from)
          .integer(2, to + 1)
          .finish(),
      );
    }
    return writer
      .each(
        10,
        message.reserved.flatMap(({ names }) => names),
      )
      .finish();
  }

  private field(field: LinkedField): Buffer {
    const { node, target, extendee } = field;
    const written = plainOption(node.options, 'default');
    const scope = field.parent?.name ?? this.source.node.package ?? '';
    const writer = new ProtoWriter().bytes(1, field.name);
    if (field.extendeeName !== undefined)
      writer.bytes(2, extendee === undefined ? field.extendeeName : `.${extendee.name}`);
    writer
      .integer(3, field.number)
      .integer(
        4,
        FIELD_LABELS.indexOf(field.label === 'required' && this.isEdition ? 'optional' : field.label),
      )
      .integer(5, FIELD_TYPES.indexOf(field.type));
    if (target !== undefined) writer.bytes(6, `.${target.name}`);
    else if (field.type === 'message') writer.bytes(6, node.type);
    if (written !== undefined) writer.bytes(7, defaultText(field, written));
    writer
      .bytes(8, this.options(node.options, 'Field', scope))
      .integer(9, field.oneof)
      .bytes(10, field.jsonName);
    return writer.flag(17, field.proto3Optional).finish();
  }

  private get isEdition(): boolean {
    return this.source.node.syntax === 'editions';
  }

  private enumeration({ node, name, shortName }: LinkedEnum): Buffer {
    const scope = parentOf(name);
    const writer = new ProtoWriter().bytes(1, shortName);
    for (const value of node.values) {
      const options = this.options(value.options, 'EnumValue', scope);
      writer.bytes(
        2,
        new ProtoWriter().bytes(1, value.name).integer(2, value.number).bytes(3, options).finish(),
      );
    }
    writer.bytes(3, this.options(node.options, 'Enum', scope));
    for (const { from, to } of node.reserved.flatMap(({ ranges }) => ranges)) {
      const end = Math.min(to, ENUM_NUMBER_MAX);
      writer.bytes(4, new ProtoWriter().integer(1, from).integer(2, end).finish());
    }
    return writer
      .each(
        5,
        node.reserved.flatMap(({ names }) => names),
      )
      .finish();
  }

  private service({ node, name, shortName, methods }: LinkedService): Buffer {
    const writer = new ProtoWriter().bytes(1, shortName);
    for (const { node: method, input, output } of methods) {
      const typeOf = (found: LinkedMessage | undefined, text: string): string =>
        found === undefined ? text : `.${found.name}`;
      const bytes = new ProtoWriter()
        .bytes(1, method.name)
        .bytes(2, typeOf(input, method.input))
        .bytes(3, typeOf(output, method.output))
        .bytes(4, this.options(method.options, 'Method', name) ?? (method.braces ? '' : undefined))
        .flag(5, method.clientStreaming)
        .flag(6, method.serverStreaming);
      writer.bytes(2, bytes.finish());
    }
    return writer.bytes(3, this.options(node.options, 'Service', parentOf(name))).finish();
  }
}

const parentOf = (name: string): string => name.slice(0, Math.max(0, name.lastIndexOf('.')));
