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
  type AvroNamedNode,
  type AvroNode,
  type AvroPrimitive,
  type AvroRecordNode,
  type AvroUnionNode,
  avroTypeName,
} from '../schemas/avro-tree.ts';
import { SameTypes } from './avro-same.ts';
import { type Finding, Findings, someOf } from './finding.ts';

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

const shortName = (node: AvroNode): string => {
  const name = avroTypeName(node);
  return name.slice(name.lastIndexOf('.') + 1);
};

export function checkAvro(reader: AvroNode, writer: AvroNode): readonly Finding[] {
  const walk = new Walk();
  walk.pair(reader, writer, shortName(reader));
  walk.run();
  return walk.findings.all();
}

type Pair = readonly [reader: AvroNode, writer: AvroNode, path: string];

class Walk {
  readonly findings = new Findings();
  private readonly seen = new Map<AvroNode, Set<AvroNode>>();
  private readonly inner: Pair[] = [];
  private readonly aliases = new Map<AvroNamedNode, ReadonlySet<string>>();
  private readonly same = new SameTypes();

  /** Puts a pair on the list: a chain of types may be longer than the stack is deep. */
  pair(reader: AvroNode, writer: AvroNode, path: string): void {
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
      this.compare(reader, writer, path);
    } while (open.length + this.inner.length > 0);
  }

  private namesMatch(reader: AvroNamedNode, writer: { readonly name: string }): boolean {
    if (reader.name === writer.name) return true;
    if (reader.aliases.length === 0) return false;
    const aliases = this.aliases.get(reader) ?? new Set(reader.aliases);
    this.aliases.set(reader, aliases);
    return aliases.has(writer.name);
  }

  private compare(reader: AvroNode, writer: AvroNode, path: string): void {
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
      if (!this.namesMatch(reader, writer)) {
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
    if (!this.namesMatch(reader, writer)) {
      this.nameMismatch(reader.name, writer.name, path);
      return;
    }
    if (!this.findings.spend(reader.fields.length + writer.fields.length, path)) return;
    const written = new Map(writer.fields.map((field) => [field.name, field]));
    const readBy = new Map<string, string>();
    for (const field of reader.fields) {
      const at = `${path}.${field.name}`;
      if (!this.findings.spend(field.aliases.length, at)) return;
      const matches = [...new Set([field.name, ...field.aliases])].filter((name) => written.has(name));
      if (matches.length > 1) {
        this.findings.add(
          'fail',
          'AVRO_ALIAS_AMBIGUOUS',
          at,
          `field "${field.name}" matches several written fields: ${someOf(matches)}`,
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
    if (!this.namesMatch(reader, writer)) {
      this.nameMismatch(reader.name, writer.name, path);
      return;
    }
    if (!this.findings.spend(reader.symbols.length + writer.symbols.length, path)) return;
    const symbols = new Set(reader.symbols);
    const missing = writer.symbols.filter((symbol) => !symbols.has(symbol));
    if (missing.length === 0) return;
    if (reader.defaultSymbol === undefined) {
      this.findings.add(
        'fail',
        'AVRO_ENUM_SYMBOL_MISSING',
        path,
        `the reader's ${reader.name} lacks ${someOf(missing)} and has no default symbol`,
      );
    } else {
      this.findings.add(
        'lossy',
        'AVRO_ENUM_SYMBOL_DEFAULTED',
        path,
        `${someOf(missing)} is read as ${reader.defaultSymbol}`,
      );
    }
  }

  private union(reader: AvroNode, writer: AvroNode, path: string): void {
    const { same, steps } = this.same.decide(reader, writer);
    if (!this.findings.spend(steps, path)) return;
    if (reader.kind !== 'union' || writer.kind !== 'union' || !same) {
      const missing = reader.kind === 'union' ? this.missingBranches(reader, writer) : [];
      if (missing.length > 0)
        this.findings.add(
          'fail',
          'AVRO_UNION_BRANCH_MISSING',
          path,
          `the reader's union has no branch for ${someOf(missing)}`,
        );
      else this.findings.add('unjudged', 'AVRO_UNION_CHANGED', path, 'a union was added, removed or changed');
      return;
    }
    // The decoder gives a written branch to the first reader branch that can read it.
    const claimed = new Map<string, AvroNode[]>();
    const primitives: AvroPrimitive[] = [];
    const overlap = (from: string, to: string): void =>
      this.findings.add(
        'unjudged',
        'AVRO_UNION_BRANCHES_OVERLAP',
        path,
        `branch ${from} can be read as ${to}, which stands before it`,
      );
    for (const branch of reader.branches) {
      if (branch.kind === 'primitive') {
        for (const earlier of primitives)
          if (PROMOTIONS[branch.type]?.[earlier] !== undefined) overlap(branch.type, earlier);
        primitives.push(branch.type);
      } else if ('name' in branch) {
        for (const earlier of claimed.get(branch.name) ?? [])
          if (earlier.kind === branch.kind) overlap(branch.name, avroTypeName(earlier));
        if (!this.findings.spend(branch.aliases.length, path)) return;
        for (const alias of new Set(branch.aliases)) {
          const earlier = claimed.get(alias) ?? [];
          claimed.set(alias, earlier);
          earlier.push(branch);
        }
      }
    }
  }

  /** Names of the written branches that no branch of the reader is meant for, whatever is in them. */
  private missingBranches(reader: AvroUnionNode, writer: AvroNode): string[] {
    const written = writer.kind === 'union' ? writer.branches : [writer];
    const names = new Set<string>();
    const primitives: AvroPrimitive[] = [];
    for (const branch of reader.branches) {
      names.add(avroTypeName(branch));
      if (branch.kind === 'primitive') primitives.push(branch.type);
      else if ('name' in branch) for (const alias of branch.aliases) names.add(alias);
    }
    const isMeant = (branch: AvroNode): boolean =>
      names.has(avroTypeName(branch)) ||
      (branch.kind === 'primitive' &&
        primitives.some((type) => PROMOTIONS[branch.type]?.[type] !== undefined));
    return written.filter((branch) => !isMeant(branch)).map(avroTypeName);
  }
}
