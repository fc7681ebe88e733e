/** Imports that need no reference, because every client and every registry has these files. */
import type { FileMember, FileNode, MessageMember } from '../syntax/ast.ts';
import { parseProtoFile } from '../syntax/parser.ts';
import { DESCRIPTOR_FILES } from './descriptor.ts';
import { GOOGLE_PROTOBUF_FILES } from './google.ts';
import { GOOGLE_TYPE_FILES } from './types.ts';

/** Metadata of fields and types, and decimals: interface facts of the existing registries' clients.
 */
const CONFLUENT_FILES: Readonly<Record<string, string>> = {
  'confluent/meta.proto': `syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }`,
  'confluent/type/decimal.proto': `syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }`,
};

const TEXTS = new Map(
  [GOOGLE_PROTOBUF_FILES, DESCRIPTOR_FILES, GOOGLE_TYPE_FILES, CONFLUENT_FILES].flatMap((files) =>
    Object.entries(files),
  ),
);
const parsed = new Map<string, FileNode>();

export const KNOWN_PROTO_PATHS: readonly string[] = [...TEXTS.keys()];

/** Parsed file of a path, parsed once in each process; undefined for any other path. */
export function knownProtoFile(path: string): FileNode | undefined {
  const held = parsed.get(path);
  if (held !== undefined) return held;
  const text = TEXTS.get(path);
  if (text === undefined) return undefined;
  const node = parseProtoFile(text, path);
  parsed.set(path, node);
  return node;
}

let pathsByType: ReadonlyMap<string, string> | undefined;

/** Path of the file that defines a message or an enum, by its full name; undefined for any other
 *  name. */
export function knownProtoPathOf(type: string): string | undefined {
  pathsByType ??= new Map(
    KNOWN_PROTO_PATHS.flatMap((path) => typesOf(path).map((name) => [name, path] as const)),
  );
  return pathsByType.get(type);
}

function typesOf(path: string): string[] {
  const file = knownProtoFile(path);
  if (file === undefined) return [];
  const names: string[] = [];
  const add = (body: ReadonlyArray<FileMember | MessageMember>, scope: string): void => {
    for (const member of body) {
      if (member.kind !== 'message' && member.kind !== 'enum') continue;
      const name = scope === '' ? member.name : `${scope}.${member.name}`;
      names.push(name);
      if (member.kind === 'message') add(member.body, name);
    }
  };
  add(file.body, file.package ?? '');
  return names;
}
