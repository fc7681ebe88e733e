/** Can this reader read what that writer wrote? The resolution rules of the Avro decoder that the consumer runs.
 *
 *  Judged: fields added, removed, renamed (aliases), retyped (promotions), enums, fixed, arrays, maps, nesting and
 *  recursion. Not judged, hence refused: a union that changed, a logical type on one side only, two fields that read
 *  one written field.
 *  Source: Apache Avro 1.11 specification, "Schema Resolution"; names are compared in full, as the decoder does.
 */
import {
  type AvroEnumNode,
  type AvroField,
  type AvroNode,
  type AvroPrimitive,
  type AvroRecordNode,
  avroTypeName,
} from '../schemas/avro-tree.ts';
import { type Finding, Findings } from './finding.ts';

type Promotion = 'exact' | 'lossy' | 'wrong';

/** PROMOTIONS[writer][reader]: what a reader of another primitive type gets. Absent: the decoder refuses. */
const PROMOTIONS: Readonly<
  Partial<Record<AvroPrimitive, Readonly<Partial<Record<AvroPrimitive, Promotion>>>>>
> = {
  int: { long: 'exact', float: 'lossy', double: 'exact' },
  long: { float: 'lossy', double: 'lossy' },
  float: { double: 'exact' },
  string: { bytes: 'exact' },
  // Bytes that are no UTF-8 come back as other text, without an error.
  bytes: { string: 'wrong' },
};

function namesMatch(reader: { name: string; aliases: readonly string[] }, writer: { name: string }): boolean {
  return reader.name === writer.name || reader.aliases.includes(writer.name);
}

const shortName = (node: AvroNode): string => {
  const name = avroTypeName(node);
  return name.slice(name.lastIndexOf('.') + 1);
};

export function checkAvro(reader: AvroNode, writer: AvroNode): readonly Finding[] {
  const walk = new Walk();
  walk.pair(reader, writer, shortName(reader));
  return walk.findings.all();
}

class Walk {
  readonly findings = new Findings();
  private readonly seen = new Map<AvroNode, Set<AvroNode>>();

  pair(reader: AvroNode, writer: AvroNode, path: string): void {
    const known = this.seen.get(reader) ?? new Set();
    if (known.has(writer)) return;
    this.seen.set(reader, known.add(writer));
    if (this.logical(reader, writer, path)) return;
    if (reader.kind === 'union' || writer.kind === 'union') {
      this.union(reader, writer, path);
      return;
    }
    if (reader.kind === 'primitive' && writer.kind === 'primitive') {
      this.primitive(reader.type, writer.type, path);
      return;
    }
    if (reader.kind === 'record' && writer.kind === 'record') {
      this.record(reader, writer, path);
      return;
    }
    if (reader.kind === 'enum' && writer.kind === 'enum') {
      this.enumeration(reader, writer, path);
      return;
    }
    if (reader.kind === 'array' && writer.kind === 'array') {
      this.pair(reader.items, writer.items, `${path}[]`);
      return;
    }
    if (reader.kind === 'map' && writer.kind === 'map') {
      this.pair(reader.values, writer.values, `${path}{}`);
      return;
    }
    if (reader.kind === 'fixed' && writer.kind === 'fixed') {
      if (!namesMatch(reader, writer)) {
        this.nameMismatch(reader.name, writer.name, path);
        return;
      }
      if (reader.size !== writer.size) {
        this.findings.add(
          'fail',
          'AVRO_FIXED_SIZE_CHANGED',
          path,
          `the reader takes ${reader.size} bytes, the writer writes ${writer.size}`,
        );
      }
      return;
    }
    this.typeChanged(avroTypeName(reader), avroTypeName(writer), path);
  }

  private typeChanged(reader: string, writer: string, path: string): void {
    this.findings.add('fail', 'AVRO_TYPE_CHANGED', path, `a reader of type ${reader} cannot read ${writer}`);
  }

  private nameMismatch(reader: string, writer: string, path: string): void {
    this.findings.add(
      'fail',
      'AVRO_NAME_CHANGED',
      path,
      `the reader's type is named ${reader}, the writer's ${writer}, and no alias says they are the same`,
    );
  }

  /** True when the pair needs no further look. */
  private logical(reader: AvroNode, writer: AvroNode, path: string): boolean {
    const r = reader.logical;
    const w = writer.logical;
    if (r === undefined && w === undefined) return false;
    if (r === undefined || w === undefined) {
      const one = (r ?? w)?.logicalType;
      this.findings.add(
        'unjudged',
        'AVRO_LOGICAL_TYPE_ONE_SIDED',
        path,
        `the logical type ${one} stands on one side only`,
      );
      return true;
    }
    if (r.logicalType !== w.logicalType || r.precision !== w.precision || (r.scale ?? 0) !== (w.scale ?? 0)) {
      const show = (l: typeof r): string =>
        `${l.logicalType}${l.precision === undefined ? '' : `(${l.precision},${l.scale ?? 0})`}`;
      this.findings.add(
        'fail',
        'AVRO_LOGICAL_TYPE_CHANGED',
        path,
        `${show(w)} is read as ${show(r)}: the same bytes mean another value`,
      );
      return true;
    }
    return false;
  }

  private primitive(reader: AvroPrimitive, writer: AvroPrimitive, path: string): void {
    if (reader === writer) return;
    const promotion = PROMOTIONS[writer]?.[reader];
    if (promotion === undefined) this.typeChanged(reader, writer, path);
    else if (promotion === 'lossy') {
      this.findings.add(
        'lossy',
        'AVRO_PROMOTION_ROUNDS',
        path,
        `${writer} read as ${reader} is rounded where it has too many digits`,
      );
    } else if (promotion === 'wrong') {
      this.findings.add(
        'fail',
        'AVRO_BYTES_AS_STRING',
        path,
        'bytes read as string come back changed where they are not UTF-8',
      );
    }
  }

  private record(reader: AvroRecordNode, writer: AvroRecordNode, path: string): void {
    if (!namesMatch(reader, writer)) {
      this.nameMismatch(reader.name, writer.name, path);
      return;
    }
    const written = new Map(writer.fields.map((field) => [field.name, field]));
    const readBy = new Map<string, string>();
    for (const field of reader.fields) {
      const at = `${path}.${field.name}`;
      const matches = [...new Set([field.name, ...field.aliases])].filter((name) => written.has(name));
      if (matches.length > 1) {
        this.findings.add(
          'fail',
          'AVRO_ALIAS_AMBIGUOUS',
          at,
          `field "${field.name}" matches several written fields: ${matches.join(', ')}`,
        );
        continue;
      }
      const match = matches[0];
      if (match === undefined) {
        if (!field.hasDefault) {
          this.findings.add(
            'fail',
            'AVRO_READER_FIELD_WITHOUT_DEFAULT',
            at,
            `field "${field.name}" has no default, and the writer does not write it`,
          );
        }
        continue;
      }
      const other = readBy.get(match);
      if (other !== undefined) {
        this.findings.add(
          'unjudged',
          'AVRO_FIELD_READ_TWICE',
          at,
          `fields "${other}" and "${field.name}" both read the written field "${match}"`,
        );
      }
      readBy.set(match, field.name);
      if (match !== field.name) {
        this.findings.add(
          'note',
          'AVRO_FIELD_RENAMED',
          at,
          `field "${field.name}" reads the written field "${match}" by its alias`,
        );
      }
      this.pair(field.type, (written.get(match) as AvroField).type, at);
    }
  }

  private enumeration(reader: AvroEnumNode, writer: AvroEnumNode, path: string): void {
    if (!namesMatch(reader, writer)) {
      this.nameMismatch(reader.name, writer.name, path);
      return;
    }
    const missing = writer.symbols.filter((symbol) => !reader.symbols.includes(symbol));
    if (missing.length === 0) return;
    if (reader.defaultSymbol === undefined) {
      this.findings.add(
        'fail',
        'AVRO_ENUM_SYMBOL_MISSING',
        path,
        `the reader's ${reader.name} lacks ${missing.join(', ')} and has no default symbol`,
      );
    } else {
      this.findings.add(
        'lossy',
        'AVRO_ENUM_SYMBOL_DEFAULTED',
        path,
        `${missing.join(', ')} is read as ${reader.defaultSymbol}`,
      );
    }
  }

  private union(reader: AvroNode, writer: AvroNode, path: string): void {
    if (reader.kind !== 'union' || writer.kind !== 'union' || !sameType(reader, writer, new Map())) {
      this.findings.add('unjudged', 'AVRO_UNION_CHANGED', path, 'a union was added, removed or changed');
      return;
    }
    // The decoder gives a written branch to the first reader branch that can read it.
    for (let later = 1; later < reader.branches.length; later++) {
      for (let earlier = 0; earlier < later; earlier++) {
        const from = reader.branches[later] as AvroNode;
        const to = reader.branches[earlier] as AvroNode;
        const caught =
          from.kind === 'primitive' && to.kind === 'primitive'
            ? PROMOTIONS[from.type]?.[to.type] !== undefined
            : from.kind === to.kind &&
              from.kind !== 'primitive' &&
              'name' in from &&
              'name' in to &&
              namesMatch(to, from);
        if (caught) {
          this.findings.add(
            'unjudged',
            'AVRO_UNION_BRANCHES_OVERLAP',
            path,
            `branch ${avroTypeName(from)} can be read as ${avroTypeName(to)}, which stands before it`,
          );
        }
      }
    }
  }
}

/** Equal in everything that decides how bytes are read. */
function sameType(a: AvroNode, b: AvroNode, seen: Map<AvroNode, AvroNode>): boolean {
  if (seen.get(a) === b) return true;
  seen.set(a, b);
  if (a.kind !== b.kind || JSON.stringify(a.logical) !== JSON.stringify(b.logical)) return false;
  if (a.kind === 'primitive' && b.kind === 'primitive') return a.type === b.type;
  if (a.kind === 'array' && b.kind === 'array') return sameType(a.items, b.items, seen);
  if (a.kind === 'map' && b.kind === 'map') return sameType(a.values, b.values, seen);
  if (a.kind === 'union' && b.kind === 'union') {
    return (
      a.branches.length === b.branches.length &&
      a.branches.every((branch, i) => sameType(branch, b.branches[i] as AvroNode, seen))
    );
  }
  if (a.kind === 'fixed' && b.kind === 'fixed') return a.name === b.name && a.size === b.size;
  if (a.kind === 'enum' && b.kind === 'enum')
    return a.name === b.name && a.symbols.join() === b.symbols.join();
  if (a.kind === 'record' && b.kind === 'record') {
    return (
      a.name === b.name &&
      a.fields.length === b.fields.length &&
      a.fields.every((field, i) => {
        const other = b.fields[i] as AvroField;
        return field.name === other.name && sameType(field.type, other.type, seen);
      })
    );
  }
  return false;
}
