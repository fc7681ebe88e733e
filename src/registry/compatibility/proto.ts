/** Can this reader read what that writer wrote? The rules of the Protobuf wire: a number decides, not a name.
 *
 *  Judged: fields added, removed, renamed, retyped, `required`, labels, enum values, messages removed. Not judged,
 *  hence refused: changed oneofs and maps, integers read as enums, closed enums that lost a value, groups, extensions.
 *  Source: protobuf.dev, "Updating A Message Type" and "Encoding".
 */
import type { ProtoEnum, ProtoField, ProtoFile, ProtoMessage } from '../schemas/proto-tree.ts';
import { type FieldKind, type Finding, Findings } from './finding.ts';

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
  const walk = new Walk(reader);
  for (const message of writer.messages) {
    const match = reader.byName.get(message.name);
    if (match === undefined)
      walk.findings.add(
        'fail',
        'PROTO_MESSAGE_REMOVED',
        message.name,
        `message ${message.name} is not in the reader, which then cannot read its records`,
        { place: placeOf(writer, message) },
      );
    else walk.pair(match, message, message.name);
  }
  walk.run();
  return walk.findings.all();
}

/** Where a message stands, or a field by its number: `#/Outer/Inner/2`, without the package. */
export function placeOf(file: ProtoFile, message: ProtoMessage, number?: number): string {
  const packageName = file.link.root.node.package;
  const prefix = packageName === undefined ? '' : `${packageName}.`;
  const name = message.name.startsWith(prefix) ? message.name.slice(prefix.length) : message.name;
  return `#/${name.replaceAll('.', '/')}${number === undefined ? '' : `/${number}`}`;
}

function kindOf(type: string): FieldKind {
  if (type === 'string' || type === 'bytes') return 'text';
  return type === 'message' ? 'other' : 'numeric';
}

type Pair = readonly [reader: ProtoMessage, writer: ProtoMessage, path: string];

class Walk {
  readonly findings = new Findings();
  private readonly file: ProtoFile;
  private readonly seen = new Map<ProtoMessage, Set<ProtoMessage>>();
  private readonly inner: Pair[] = [];
  private readonly enums = new Map<ProtoEnum, Map<ProtoEnum, readonly Finding[]>>();

  constructor(file: ProtoFile) {
    this.file = file;
  }

  /** Puts a pair on the list: a chain of messages may be longer than the stack is deep. */
  pair(reader: ProtoMessage, writer: ProtoMessage, path: string): void {
    this.inner.push([reader, writer, path]);
  }

  /** In the order of the text: what is inside a pair comes before what follows it. */
  run(): void {
    const open: Pair[] = [];
    do {
      for (let pair = this.inner.pop(); pair !== undefined; pair = this.inner.pop()) open.push(pair);
      const next = open.pop();
      if (next === undefined) return;
      const [reader, writer, path] = next;
      if (!this.findings.spend(1, path)) return;
      const known = this.seen.get(reader) ?? new Set();
      if (known.has(writer)) continue;
      this.seen.set(reader, known.add(writer));
      if (!this.findings.spend(reader.fields.length + writer.fields.length, path)) return;
      this.compare(reader, writer, path);
    } while (open.length + this.inner.length > 0);
  }

  private compare(reader: ProtoMessage, writer: ProtoMessage, path: string): void {
    if (reader.unknown || writer.unknown)
      this.findings.add(
        'unjudged',
        'PROTO_TYPE_UNKNOWN',
        path,
        `${(reader.unknown ? reader : writer).name} is a type that is not known`,
      );
    const written = new Map(writer.fields.map((field) => [field.number, field]));
    const shared: Array<readonly [ProtoField, ProtoField]> = [];
    for (const field of reader.fields) {
      const match = written.get(field.number);
      const place = placeOf(this.file, reader, field.number);
      if (match === undefined) {
        if (field.required)
          this.findings.add(
            'fail',
            'PROTO_REQUIRED_ADDED',
            `${path}.${field.name}`,
            `field "${field.name}" = ${field.number} is required, and the writer does not write it`,
            { place },
          );
        continue;
      }
      shared.push([field, match]);
      this.field(field, match, `${path}.${field.name}`, place);
    }
    this.oneofs(reader, shared, path);
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
        { place: placeOf(this.file, writer, field.number) },
      );
    }
  }

  private field(reader: ProtoField, writer: ProtoField, path: string, place: string): void {
    const label = `field "${reader.name}" = ${reader.number}`;
    if (reader.name !== writer.name) {
      this.findings.add(
        'note',
        'PROTO_FIELD_RENAMED',
        path,
        `${label} is named "${writer.name}" in the writer; the number counts`,
        { place },
      );
    }
    if (reader.mapKey !== undefined || writer.mapKey !== undefined) {
      if (reader.mapKey !== writer.mapKey || reader.type !== writer.type) {
        this.findings.add(
          'unjudged',
          'PROTO_MAP_CHANGED',
          path,
          `${label} is a map that was added, removed or changed`,
          { place },
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
        { place, kind: kindOf(reader.type) },
      );
      return;
    }
    if (reader.required && !writer.required) {
      this.findings.add(
        'fail',
        'PROTO_REQUIRED_ADDED',
        path,
        `${label} is required in the reader and not in the writer`,
        { place },
      );
    }
    this.type(reader, writer, path, label, place);
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
        { place },
      );
    }
  }

  private type(reader: ProtoField, writer: ProtoField, path: string, label: string, place: string): void {
    if (reader.type === 'message' && writer.type === 'message') {
      this.pair(
        reader.message as ProtoMessage,
        writer.message as ProtoMessage,
        reader.repeated ? `${path}[]` : path,
      );
      return;
    }
    if (reader.type === 'enum' && writer.type === 'enum') {
      const found = this.enumeration(reader.enumeration as ProtoEnum, writer.enumeration as ProtoEnum);
      if (!this.findings.spend(1 + found.length, path)) return;
      for (const { severity, rule, message } of found)
        this.findings.add(severity, rule, path, `${label}: ${message}`, { place });
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
        { place },
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
        { place },
      );
    } else if (reading === 'wrong') {
      this.findings.add(
        'fail',
        'PROTO_TYPE_CHANGED',
        path,
        `${label}: a reader of type ${reader.type} cannot read ${writer.type}`,
        {
          place,
          kind: [reader.type, writer.type].some((type) => type === 'message' || type === 'enum')
            ? 'other'
            : 'scalar',
        },
      );
    }
  }

  /** What stands against two enums, for every field of them: compared once. */
  private enumeration(reader: ProtoEnum, writer: ProtoEnum): readonly Finding[] {
    const others = this.enums.get(reader) ?? new Map<ProtoEnum, readonly Finding[]>();
    this.enums.set(reader, others);
    const found = others.get(writer) ?? this.compareEnums(reader, writer);
    others.set(writer, found);
    return found;
  }

  private compareEnums(reader: ProtoEnum, writer: ProtoEnum): readonly Finding[] {
    const findings = new Findings();
    if (!this.findings.spend(writer.values.size, reader.name)) return [];
    for (const [number, name] of writer.values) {
      const other = reader.values.get(number);
      if (other === undefined) {
        const closed = reader.closed || writer.closed;
        findings.add(
          closed ? 'unjudged' : 'lossy',
          'PROTO_ENUM_VALUE_MISSING',
          '',
          `the reader's ${reader.name} has no name for ${number} (${name} in the writer), so it reads the bare number`,
        );
      } else if (other !== name) {
        findings.add(
          'note',
          'PROTO_ENUM_VALUE_RENAMED',
          '',
          `value ${number} is ${name} in the writer and ${other} in the reader`,
        );
      }
    }
    if (reader.values.keys().next().value !== writer.values.keys().next().value) {
      findings.add(
        'unjudged',
        'PROTO_ENUM_DEFAULT_CHANGED',
        '',
        'the first value of the enum, which is its default, differs',
      );
    }
    return findings.all();
  }

  /** Among the fields that stand in both, who excludes whom must be the same: each is held against the first of its
   *  oneof, on either side. */
  private oneofs(
    reader: ProtoMessage,
    shared: ReadonlyArray<readonly [ProtoField, ProtoField]>,
    path: string,
  ): void {
    for (const side of [0, 1] as const) {
      const firsts = new Map<string, readonly [ProtoField, ProtoField]>();
      for (const pair of shared) {
        const { oneof } = pair[side];
        if (oneof === undefined) continue;
        const first = firsts.get(oneof);
        if (first === undefined) {
          firsts.set(oneof, pair);
          continue;
        }
        const there = pair[1 - side]?.oneof;
        if (there !== undefined && there === first[1 - side]?.oneof) continue;
        this.findings.add(
          'unjudged',
          'PROTO_ONEOF_CHANGED',
          `${path}.${first[0].name}`,
          `"${first[0].name}" and "${pair[0].name}" exclude each other in the ${side === 0 ? 'reader' : 'writer'} only`,
          { place: placeOf(this.file, reader, first[0].number) },
        );
      }
    }
  }
}
