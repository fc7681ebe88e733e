/** Can this reader read what that writer wrote? The rules of the Protobuf wire: a number decides, not a name.
 *
 *  Judged: fields added, removed, renamed, retyped, `required`, labels, enum values, messages removed. Not judged,
 *  hence refused: changed oneofs and maps, integers read as enums, closed enums that lost a value, groups, extensions.
 *  Source: protobuf.dev, "Updating A Message Type" and "Encoding".
 */
import type { ProtoEnum, ProtoField, ProtoFile, ProtoMessage } from '../schemas/proto-tree.ts';
import { type Finding, Findings } from './finding.ts';

type Reading = 'exact' | 'lossy' | 'wrong';

const VARINT = ['int32', 'int64', 'uint32', 'uint64', 'bool'] as const;
/** Pairs [writer, reader] of varints where every written value comes back. */
const EXACT = new Set([
  'int32>int64',
  'uint32>uint64',
  'uint32>int64',
  'bool>int32',
  'bool>int64',
  'bool>uint32',
  'bool>uint64',
  'sint32>sint64',
  'string>bytes',
]);
/** Pairs that the format's specification allows as if by a cast. */
const CAST_GROUPS: ReadonlyArray<readonly string[]> = [
  VARINT,
  ['sint32', 'sint64'],
  ['fixed32', 'sfixed32'],
  ['fixed64', 'sfixed64'],
];

function scalarReading(writer: string, reader: string): Reading {
  if (writer === reader || EXACT.has(`${writer}>${reader}`)) return 'exact';
  return CAST_GROUPS.some((group) => group.includes(writer) && group.includes(reader)) ? 'lossy' : 'wrong';
}

export function checkProto(reader: ProtoFile, writer: ProtoFile): readonly Finding[] {
  const walk = new Walk();
  for (const message of writer.messages) {
    const match = reader.byName.get(message.name);
    if (match === undefined)
      walk.findings.add(
        'fail',
        'PROTO_MESSAGE_REMOVED',
        message.name,
        `message ${message.name} is not in the reader, which then cannot read its records`,
      );
    else walk.pair(match, message, message.name);
  }
  return walk.findings.all();
}

class Walk {
  readonly findings = new Findings();
  private readonly seen = new Map<ProtoMessage, Set<ProtoMessage>>();

  pair(reader: ProtoMessage, writer: ProtoMessage, path: string): void {
    const known = this.seen.get(reader) ?? new Set();
    if (known.has(writer)) return;
    this.seen.set(reader, known.add(writer));
    for (const construct of new Set([...reader.unjudged, ...writer.unjudged])) {
      this.findings.add('unjudged', 'PROTO_CONSTRUCT', path, `${construct} in a message`);
    }
    const written = new Map(writer.fields.map((field) => [field.number, field]));
    const shared: Array<readonly [ProtoField, ProtoField]> = [];
    for (const field of reader.fields) {
      const match = written.get(field.number);
      if (match === undefined) {
        if (field.required)
          this.findings.add(
            'fail',
            'PROTO_REQUIRED_ADDED',
            `${path}.${field.name}`,
            `field "${field.name}" = ${field.number} is required, and the writer does not write it`,
          );
        continue;
      }
      shared.push([field, match]);
      this.field(field, match, `${path}.${field.name}`);
    }
    this.oneofs(shared, path);
    this.renumbered(reader, writer, path);
  }

  /** A name that stands in both under different numbers: the value vanishes without an error. */
  private renumbered(reader: ProtoMessage, writer: ProtoMessage, path: string): void {
    const numbers = new Set(reader.fields.map((field) => field.number));
    const byName = new Map(reader.fields.map((field) => [field.name, field]));
    for (const field of writer.fields) {
      const other = byName.get(field.name);
      if (other === undefined || other.number === field.number || numbers.has(field.number)) continue;
      this.findings.add(
        'fail',
        'PROTO_NUMBER_CHANGED',
        `${path}.${field.name}`,
        `field "${field.name}" has number ${field.number} in the writer and ${other.number} in the reader, so its value vanishes`,
      );
    }
  }

  private field(reader: ProtoField, writer: ProtoField, path: string): void {
    const label = `field "${reader.name}" = ${reader.number}`;
    if (reader.name !== writer.name) {
      this.findings.add(
        'note',
        'PROTO_FIELD_RENAMED',
        path,
        `${label} is named "${writer.name}" in the writer; the number counts`,
      );
    }
    if (reader.mapKey !== undefined || writer.mapKey !== undefined) {
      if (reader.mapKey !== writer.mapKey || reader.type !== writer.type) {
        this.findings.add(
          'unjudged',
          'PROTO_MAP_CHANGED',
          path,
          `${label} is a map that was added, removed or changed`,
        );
        return;
      }
    }
    if (reader.repeated !== writer.repeated) {
      this.findings.add(
        'fail',
        'PROTO_LABEL_CHANGED',
        path,
        `${label} is ${reader.repeated ? 'repeated' : 'single'} in the reader and ${writer.repeated ? 'repeated' : 'single'} in the writer`,
      );
      return;
    }
    if (reader.required && !writer.required) {
      this.findings.add(
        'fail',
        'PROTO_REQUIRED_ADDED',
        path,
        `${label} is required in the reader and not in the writer`,
      );
    }
    this.type(reader, writer, path, label);
    const isScalar = reader.type !== 'message' && writer.type !== 'message';
    if (
      isScalar &&
      !reader.repeated &&
      reader.mapKey === undefined &&
      reader.presence !== writer.presence &&
      !writer.required &&
      !reader.required
    ) {
      this.findings.add(
        'lossy',
        'PROTO_PRESENCE_CHANGED',
        path,
        `${label} tells absent from default on one side only`,
      );
    }
  }

  private type(reader: ProtoField, writer: ProtoField, path: string, label: string): void {
    if (reader.type === 'message' && writer.type === 'message') {
      this.pair(
        reader.message as ProtoMessage,
        writer.message as ProtoMessage,
        reader.repeated ? `${path}[]` : path,
      );
      return;
    }
    if (reader.type === 'enum' && writer.type === 'enum') {
      this.enumeration(reader.enumeration as ProtoEnum, writer.enumeration as ProtoEnum, path, label);
      return;
    }
    const isVarint = (type: string): boolean => (VARINT as readonly string[]).includes(type);
    if (
      (reader.type === 'enum' && isVarint(writer.type)) ||
      (writer.type === 'enum' && isVarint(reader.type))
    ) {
      this.findings.add(
        'unjudged',
        'PROTO_ENUM_AS_INTEGER',
        path,
        `${label} changes between an enum and ${reader.type === 'enum' ? writer.type : reader.type}`,
      );
      return;
    }
    const reading =
      reader.type === 'message' || writer.type === 'message'
        ? 'wrong'
        : scalarReading(writer.type, reader.type);
    if (reading === 'lossy') {
      this.findings.add(
        'lossy',
        'PROTO_INTEGER_CAST',
        path,
        `${label}: ${writer.type} read as ${reader.type} is cast, so some values change`,
      );
    } else if (reading === 'wrong') {
      this.findings.add(
        'fail',
        'PROTO_TYPE_CHANGED',
        path,
        `${label}: a reader of type ${reader.type} cannot read ${writer.type}`,
      );
    }
  }

  private enumeration(reader: ProtoEnum, writer: ProtoEnum, path: string, label: string): void {
    for (const [number, name] of writer.values) {
      const other = reader.values.get(number);
      if (other === undefined) {
        const closed = reader.closed || writer.closed;
        this.findings.add(
          closed ? 'unjudged' : 'lossy',
          'PROTO_ENUM_VALUE_MISSING',
          path,
          `${label}: the reader's ${reader.name} has no name for ${number} (${name} in the writer), so it reads the bare number`,
        );
      } else if (other !== name) {
        this.findings.add(
          'note',
          'PROTO_ENUM_VALUE_RENAMED',
          path,
          `${label}: value ${number} is ${name} in the writer and ${other} in the reader`,
        );
      }
    }
    if ([...reader.values.keys()][0] !== [...writer.values.keys()][0]) {
      this.findings.add(
        'unjudged',
        'PROTO_ENUM_DEFAULT_CHANGED',
        path,
        `${label}: the first value of the enum, which is its default, differs`,
      );
    }
  }

  /** Among the fields that stand in both, who excludes whom must be the same. */
  private oneofs(shared: ReadonlyArray<readonly [ProtoField, ProtoField]>, path: string): void {
    for (let i = 0; i < shared.length; i++) {
      for (let j = i + 1; j < shared.length; j++) {
        const [r1, w1] = shared[i] as readonly [ProtoField, ProtoField];
        const [r2, w2] = shared[j] as readonly [ProtoField, ProtoField];
        const inReader = r1.oneof !== undefined && r1.oneof === r2.oneof;
        const inWriter = w1.oneof !== undefined && w1.oneof === w2.oneof;
        if (inReader === inWriter) continue;
        this.findings.add(
          'unjudged',
          'PROTO_ONEOF_CHANGED',
          `${path}.${r1.name}`,
          `"${r1.name}" and "${r2.name}" exclude each other in the ${inReader ? 'reader' : 'writer'} only`,
        );
      }
    }
  }
}
