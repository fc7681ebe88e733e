/** Server reflection over the proto files of the methods and of health.
 *
 *  @grpc/proto-loader names the type of a map's entries like the field. The name must be that of
 *  the field with the suffix `Entry`, or Go clients reject the whole file. So the descriptors are
 *  corrected before they are served.
 *  Source: protobuf descriptor.proto (MessageOptions.map_entry); the Protocol Buffers encoding
 *  guide.
 *    FileDescriptorProto   4 message_type
 *    DescriptorProto       1 name, 2 field, 3 nested_type, 7 options { 7 map_entry }
 *    FieldDescriptorProto  1 name, 6 type_name
 */
import type { Server } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { ReflectionService } from '@grpc/reflection';
import { protoPath as HEALTH_PROTO } from 'grpc-health-check';
import type { GrpcProtos } from '../port.ts';

const VARINT = 0;
const FIXED_64 = 1;
const LENGTH_DELIMITED = 2;

interface Part {
  readonly field: number;
  /** Encoded field, with tag and length. */
  readonly raw: Buffer;
  /** Content without tag and length. */
  readonly bytes: Buffer;
}

/** Splits a message of @grpc/proto-loader into its fields, in order. The input is trusted. */
function partsOf(message: Buffer): readonly Part[] {
  const parts: Part[] = [];
  let at = 0;
  const varint = (): number => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = message[at++] as number;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.length) {
    const from = at;
    const tag = varint();
    let begin = at;
    if ((tag & 7) === VARINT) varint();
    else if ((tag & 7) === LENGTH_DELIMITED) {
      const length = varint();
      begin = at;
      at += length;
    } else at += (tag & 7) === FIXED_64 ? 8 : 4;
    parts.push({ field: tag >> 3, raw: message.subarray(from, at), bytes: message.subarray(begin, at) });
  }
  return parts;
}

function partOf(field: number, bytes: Uint8Array): Buffer {
  const head = [(field << 3) | LENGTH_DELIMITED];
  let rest = bytes.length;
  for (; rest > 0x7f; rest >>>= 7) head.push((rest & 0x7f) | 0x80);
  return Buffer.concat([Buffer.from([...head, rest]), bytes]);
}

const textOf = (parts: readonly Part[], field: number): string =>
  parts.find((part) => part.field === field)?.bytes.toString('utf8') ?? '';

const isMapEntry = (parts: readonly Part[]): boolean =>
  parts.some(({ field, bytes }) => field === 7 && partsOf(bytes).some((option) => option.field === 7));

/** Name of the entry type of a map field: `a_b` becomes `ABEntry`. */
const entryNameOf = (name: string): string =>
  `${name.replaceAll(/(?:^|_)(.)/g, (_, first: string) => first.toUpperCase())}Entry`;

const withText = (parts: readonly Part[], field: number, text: string): Buffer =>
  Buffer.concat(parts.map((part) => (part.field === field ? partOf(field, Buffer.from(text)) : part.raw)));

/** Renames the map entries of a DescriptorProto as protoc names them. */
function fixedMessage(message: Buffer): Buffer {
  const parts = partsOf(message);
  const nested = parts.filter(({ field }) => field === 3).map(({ bytes }) => partsOf(bytes));
  const entries = new Set(nested.filter(isMapEntry).map((entry) => textOf(entry, 1)));
  const names = new Map<string, string>();
  for (const { field, bytes } of parts) {
    const own = field === 2 ? partsOf(bytes) : [];
    if (entries.has(textOf(own, 6))) names.set(textOf(own, 6), entryNameOf(textOf(own, 1)));
  }
  return Buffer.concat(
    parts.map(({ field, raw, bytes }) => {
      if (field !== 2 && field !== 3) return raw;
      const own = partsOf(bytes);
      const name = names.get(textOf(own, field === 2 ? 6 : 1));
      if (field === 2) return name === undefined ? raw : partOf(2, withText(own, 6, name));
      return partOf(3, name !== undefined && isMapEntry(own) ? withText(own, 1, name) : fixedMessage(bytes));
    }),
  );
}

const fixedFile = (file: Buffer): Buffer =>
  Buffer.concat(
    partsOf(file).map(({ field, raw, bytes }) => (field === 4 ? partOf(4, fixedMessage(bytes)) : raw)),
  );

/** Registers reflection of the methods and health (v1, v1alpha). */
export function addReflection(server: Pick<Server, 'addService'>, protos: GrpcProtos): void {
  const described = loadSync([...protos.files, HEALTH_PROTO], {
    includeDirs: [protos.folder],
    keepCase: true,
  });
  const fixed = new Set<readonly Buffer[]>();
  for (const { fileDescriptorProtos: files } of Object.values(described) as ReadonlyArray<{
    fileDescriptorProtos?: Buffer[];
  }>) {
    // Types of one load share their files.
    if (!Array.isArray(files) || fixed.has(files)) continue;
    fixed.add(files);
    for (const [i, file] of files.entries()) files[i] = fixedFile(Buffer.from(file));
  }
  new ReflectionService(described).addToServer(server);
}
