/** Avro compatibility under policy PROVEN: the behavior of Millrace's decoder for every event of
 *  the writer schema.
 *
 *  Breadth-first walk over the pairs of a reader type and a writer type.
 *  Invariants: (1) each pair of types that can occur in an event is compared once, a union branch
 *  by branch, and no construct that the parser accepts stays unjudged;
 *  (2) pairs that no event reaches are left out;
 *  (3) the walk goes from the outermost types inwards, so the route of a finding is a shortest one,
 *  and finite in a recursive type.
 *  Source: Apache Avro 1.12 specification, "Schema Resolution"; union.ts documents the choices that
 *  it leaves open. */
import type { Misfit } from '../../../formats/avro/syntax/default.ts';
import {
  type AvroEnumNode,
  type AvroField,
  type AvroLogical,
  type AvroNamedNode,
  type AvroNode,
  type AvroRecordNode,
  type AvroUnionNode,
  avroTypeName,
} from '../../../formats/avro/syntax/tree.ts';
import { type Finding, Findings, type Severity, type StepBudget, someOf } from '../finding.ts';
import { type FieldFate, fieldFates } from './fields.ts';
import { filledBy } from './filled.ts';
import { neverWritten } from './inhabited.ts';
import { isNamed, Names, typeWords, unqualified } from './names.ts';
import { fieldPlace, inward, pathOf, placeOf, rootTrail, type Trail, usePlace } from './trail.ts';
import { BranchIndex, PROMOTIONS } from './union.ts';

export function checkAvro(reader: AvroNode, writer: AvroNode, budget?: StepBudget): readonly Finding[] {
  // A schema reads itself, even if its aliases are ambiguous.
  if (reader === writer) return [];
  const walk = new Walk(neverWritten(writer), budget);
  walk.pair(reader, writer, rootTrail(unqualified(avroTypeName(reader))));
  walk.run();
  return inTextOrder(walk.findings.all());
}

/** Sorts findings by their position in the reader's own text. Findings in a reference, or without a
 *  position, come last. */
function inTextOrder(findings: readonly Finding[]): readonly Finding[] {
  const at = ({ reader }: Finding): number =>
    reader === undefined || reader.from !== undefined || !('at' in reader) ? Number.MAX_VALUE : reader.at;
  return [...findings].sort((a, b) => at(a) - at(b));
}

interface Pair {
  readonly reader: AvroNode;
  readonly writer: AvroNode;
  readonly trail: Trail;
}

class Walk {
  readonly findings: Findings;
  private readonly never: ReadonlySet<AvroNode>;
  private readonly seen = new Map<AvroNode, Set<AvroNode>>();
  /** Queue of the next level of the walk. */
  private pairs: Pair[] = [];
  private readonly names = new Names();
  private readonly unions = new Map<AvroUnionNode, BranchIndex>();
  private readonly misfits = new Map<AvroField, Misfit | undefined>();

  constructor(never: ReadonlySet<AvroNode>, budget: StepBudget | undefined) {
    this.findings = new Findings(budget);
    this.never = never;
  }

  pair(reader: AvroNode, writer: AvroNode, trail: Trail): void {
    if (this.isSeen(reader, writer)) return;
    if (!this.never.has(writer)) this.pairs.push({ reader, writer, trail });
  }

  run(): void {
    for (let level = this.pairs; level.length > 0; level = this.pairs) {
      this.pairs = [];
      for (const { reader, writer, trail } of level) {
        if (!this.spend(1, trail)) return;
        this.compare(reader, writer, trail);
      }
    }
  }

  private spend(steps: number, trail: Trail): boolean {
    return this.findings.spend(steps, () => pathOf(trail));
  }

  /** Remembers pairs of named types: only they can occur again in another place. */
  private isSeen(reader: AvroNode, writer: AvroNode): boolean {
    if (!isNamed(reader) || !isNamed(writer)) return false;
    const known = this.seen.get(reader) ?? new Set();
    if (known.has(writer)) return true;
    this.seen.set(reader, known.add(writer));
    return false;
  }

  /** Adds a finding. Skips the costly path and route of a finding that would be dropped. */
  private add(
    severity: Severity,
    rule: string,
    message: string,
    trail: Trail,
    where: Pick<Finding, 'reader' | 'writer'>,
  ): void {
    if (!this.findings.accepts(severity)) return;
    const { route } = trail;
    this.findings.add(
      severity,
      rule,
      pathOf(trail),
      message,
      route === undefined ? where : { ...where, route },
    );
  }

  /** Adds a finding that is located at the reference to the two types. */
  private addAtReference(
    severity: Severity,
    rule: string,
    message: string,
    [reader, writer, trail]: readonly [AvroNode, AvroNode, Trail],
  ): void {
    const places = { reader: usePlace(reader, trail.reader), writer: usePlace(writer, trail.writer) };
    this.add(severity, rule, message, trail, places);
  }

  /** Adds a finding that is located at the definitions of the two types. */
  private addAtDefinition(
    severity: Severity,
    rule: string,
    message: string,
    [reader, writer, trail]: readonly [AvroNode, AvroNode, Trail],
  ): void {
    this.add(severity, rule, message, trail, { reader: placeOf(reader), writer: placeOf(writer) });
  }

  private compare(reader: AvroNode, writer: AvroNode, trail: Trail): void {
    if (writer.kind === 'union') {
      this.writtenUnion(reader, writer, trail);
      return;
    }
    if (reader.kind === 'union') {
      const branch = this.branchFor(reader, writer, trail);
      if (branch !== undefined && this.spend(1, trail) && !this.isSeen(branch, writer))
        this.compare(branch, writer, trail);
      return;
    }
    if (reader.kind === 'primitive' && writer.kind === 'primitive' && reader.type !== writer.type) {
      const promotion = PROMOTIONS[writer.type]?.[reader.type];
      if (promotion === undefined) this.typeChanged(reader, writer, trail);
      else if (this.logical(reader, writer, trail)) {
        const pair = [reader, writer, trail] as const;
        if (promotion === 'rounds')
          this.addAtReference(
            'lossy',
            'AVRO_PROMOTION_ROUNDS',
            `${writer.type} read as ${reader.type} is rounded where it has too many digits`,
            pair,
          );
        else if (promotion === 'not always text')
          this.addAtReference(
            'fail',
            'AVRO_BYTES_AS_STRING',
            'bytes read as string are refused where they are not UTF-8',
            pair,
          );
      }
      return;
    }
    if (reader.kind !== writer.kind) {
      this.typeChanged(reader, writer, trail);
      return;
    }
    if (isNamed(reader) && isNamed(writer)) {
      if (this.sameName(reader, writer, trail)) this.compareNamed(reader, writer, trail);
      return;
    }
    if (!this.logical(reader, writer, trail)) return;
    if (reader.kind === 'array' && writer.kind === 'array')
      this.pair(reader.items, writer.items, inward(trail, '[]', { kind: 'item' }));
    else if (reader.kind === 'map' && writer.kind === 'map')
      this.pair(reader.values, writer.values, inward(trail, '{}', { kind: 'value' }));
  }

  private typeChanged(reader: AvroNode, writer: AvroNode, trail: Trail): void {
    const [r, w] =
      reader.kind === writer.kind
        ? [typeWords(reader), typeWords(writer)]
        : [reader, writer].map(avroTypeName);
    const message =
      trail.route?.step.kind === 'branch'
        ? `a reader of type ${r} cannot read ${w}, which is a branch of the writer's union`
        : `a reader of type ${r} cannot read ${w}`;
    this.addAtReference('fail', 'AVRO_TYPE_CHANGED', message, [reader, writer, trail]);
  }

  /** Compares logical types. False: they differ, so the pair is not compared further. */
  private logical(reader: AvroNode, writer: AvroNode, trail: Trail): boolean {
    const [r, w] = [reader.logical, writer.logical];
    if (r === undefined && w === undefined) return true;
    if (r === undefined || w === undefined) {
      const [one, side] = r === undefined ? [w, "writer's"] : [r, "reader's"];
      this.addAtReference(
        'note',
        'AVRO_LOGICAL_TYPE_ONE_SIDED',
        `the logical type ${logicalWords(one as AvroLogical)} exists on the ${side} side only; the value is read as it was written`,
        [reader, writer, trail],
      );
      return true;
    }
    if (r.logicalType === w.logicalType && r.precision === w.precision && (r.scale ?? 0) === (w.scale ?? 0))
      return true;
    // Decimals of one scale have the same bytes and value, but the specification matches precision
    // too.
    const isPrecision = r.logicalType === w.logicalType && (r.scale ?? 0) === (w.scale ?? 0);
    const why = isPrecision
      ? 'decimals match by precision and scale, and the precision is another'
      : 'the same bytes mean another value';
    this.addAtReference(
      'fail',
      'AVRO_LOGICAL_TYPE_CHANGED',
      `${logicalWords(w)} is read as ${logicalWords(r)}: ${why}`,
      [reader, writer, trail],
    );
    return false;
  }

  private sameName(reader: AvroNamedNode, writer: AvroNamedNode, trail: Trail): boolean {
    const pair = [reader, writer, trail] as const;
    const match = this.names.match(reader, writer);
    if (match === 'alias')
      this.addAtDefinition(
        'note',
        'AVRO_TYPE_RENAMED',
        `the ${reader.kind} ${reader.name} reads the written ${writer.name} by its alias`,
        pair,
      );
    else if (match === 'namespace')
      this.addAtDefinition(
        'note',
        'AVRO_NAMESPACE_CHANGED',
        `the ${reader.kind} ${reader.name} reads the written ${writer.name}: namespaces are not compared here, but some other decoders do; an alias makes it safe for them too`,
        pair,
      );
    else if (match === 'none')
      this.addAtDefinition(
        'fail',
        'AVRO_NAME_CHANGED',
        `the reader's type is named ${reader.name}, the writer's ${writer.name}, and no alias says they are the same`,
        pair,
      );
    return match !== 'none';
  }

  private compareNamed(reader: AvroNamedNode, writer: AvroNamedNode, trail: Trail): void {
    if (reader.kind === 'fixed' && writer.kind === 'fixed' && reader.size !== writer.size) {
      const message = `the reader takes ${reader.size} bytes, the writer writes ${writer.size}`;
      this.addAtDefinition('fail', 'AVRO_FIXED_SIZE_CHANGED', message, [reader, writer, trail]);
      return;
    }
    if (!this.logical(reader, writer, trail)) return;
    if (reader.kind === 'record' && writer.kind === 'record') this.record(reader, writer, trail);
    else if (reader.kind === 'enum' && writer.kind === 'enum') this.enumeration(reader, writer, trail);
  }

  private enumeration(reader: AvroEnumNode, writer: AvroEnumNode, trail: Trail): void {
    if (!this.spend(reader.symbols.length + writer.symbols.length, trail)) return;
    const symbols = new Set(reader.symbols);
    const missing = writer.symbols.filter((symbol) => !symbols.has(symbol));
    if (missing.length === 0) return;
    const pair = [reader, writer, trail] as const;
    if (reader.defaultSymbol === undefined)
      this.addAtDefinition(
        'fail',
        'AVRO_ENUM_SYMBOL_MISSING',
        `the reader's ${reader.name} lacks ${someOf(missing)} and has no default symbol`,
        pair,
      );
    else
      this.addAtDefinition(
        'lossy',
        'AVRO_ENUM_SYMBOL_DEFAULTED',
        `${someOf(missing)} is read as ${reader.defaultSymbol}`,
        pair,
      );
  }

  private writtenUnion(reader: AvroNode, writer: AvroUnionNode, trail: Trail): void {
    // A path names the branch if the union has more than one non-null branch.
    const isLabelled = writer.branches.filter((branch) => avroTypeName(branch) !== 'null').length > 1;
    if (!this.spend(writer.branches.length, trail)) return;
    for (const [index, branch] of writer.branches.entries()) {
      const label = isLabelled ? `(${unqualified(avroTypeName(branch))})` : '';
      this.pair(reader, branch, inward(trail, label, { kind: 'branch', index }));
    }
  }

  private branchFor(reader: AvroUnionNode, writer: AvroNode, trail: Trail): AvroNode | undefined {
    let index = this.unions.get(reader);
    if (index === undefined) {
      index = new BranchIndex(reader);
      this.unions.set(reader, index);
      if (!this.spend(reader.branches.length + index.steps, trail)) return undefined;
    }
    const branch = index.choose(writer);
    if (branch !== undefined) return branch;
    const message = `the reader's union has no branch for ${typeWords(writer)}`;
    this.addAtReference('fail', 'AVRO_UNION_BRANCH_MISSING', message, [reader, writer, trail]);
    return undefined;
  }

  private record(reader: AvroRecordNode, writer: AvroRecordNode, trail: Trail): void {
    if (!this.spend(reader.fields.length + writer.fields.length, trail)) return;
    const { fates, unread, steps } = fieldFates(reader, writer);
    if (!this.spend(steps, trail)) return;
    const lost = new Set<AvroField>();
    for (const fate of fates) {
      if (fate.kind === 'reads') this.readField(reader, writer, trail, fate);
      else this.unreadable(reader, writer, trail, fate);
      if (fate.kind === 'missing' && fate.lost !== undefined) lost.add(fate.lost);
    }
    for (const field of unread) {
      if (lost.has(field)) continue;
      const to = inward(trail, `.${field.name}`, { kind: 'field', key: field.name });
      this.add(
        'note',
        'AVRO_FIELD_NOT_READ',
        `the written field "${field.name}" is not in the reader's ${reader.name}, which skips it`,
        to,
        { reader: placeOf(reader), writer: fieldPlace(writer, field) },
      );
    }
  }

  private readField(
    reader: AvroRecordNode,
    writer: AvroRecordNode,
    trail: Trail,
    { field, written, byAlias }: Extract<FieldFate, { kind: 'reads' }>,
  ): void {
    const places = { reader: fieldPlace(reader, field), writer: fieldPlace(writer, written) };
    const to = inward(trail, `.${field.name}`, { kind: 'field', key: written.name }, places);
    if (byAlias)
      this.add(
        'note',
        'AVRO_FIELD_RENAMED',
        `field "${field.name}" reads the written field "${written.name}" by its alias`,
        to,
        places,
      );
    this.pair(field.type, written.type, to);
  }

  /** Adds the finding of a reader field that the writer does not write. It concerns every event
   *  that holds the record. */
  private unreadable(
    reader: AvroRecordNode,
    writer: AvroRecordNode,
    trail: Trail,
    fate: Exclude<FieldFate, { kind: 'reads' }>,
  ): void {
    const { field } = fate;
    const at: Trail = { ...trail, outer: trail, label: `.${field.name}` };
    const add = (
      severity: Severity,
      rule: string,
      message: string,
      where: { readonly at?: number; readonly written?: AvroField | undefined } = {},
    ): void =>
      this.add(severity, rule, message, at, {
        reader: fieldPlace(reader, field, where.at),
        writer: where.written === undefined ? placeOf(writer) : fieldPlace(writer, where.written),
      });
    if (fate.kind === 'ambiguous') {
      const message = `field "${field.name}" matches several written fields: ${someOf(fate.names)}`;
      add('fail', 'AVRO_ALIAS_AMBIGUOUS', message);
      return;
    }
    if (fate.kind === 'read twice') {
      const message = `fields "${fate.other.name}" and "${field.name}" both read the written field "${fate.written.name}"`;
      add('fail', 'AVRO_FIELD_READ_TWICE', message, { written: fate.written });
      return;
    }
    const { lost, suspect } = fate;
    if (!field.hasDefault || field.defaultJson === undefined) {
      const message = `field "${field.name}" has no default, and the writer does not write it`;
      const written = lost ?? suspect;
      const hint =
        written === undefined
          ? ''
          : `; if it is the old "${written.name}", give it the alias "${written.name}"`;
      add('fail', 'AVRO_READER_FIELD_WITHOUT_DEFAULT', `${message}${hint}`, { written });
      return;
    }
    if (!this.misfits.has(field)) {
      const { misfit, steps } = filledBy(field, field.defaultJson);
      this.misfits.set(field, misfit);
      if (!this.spend(steps, at)) return;
    }
    const misfit = this.misfits.get(field);
    if (misfit !== undefined)
      add(
        'fail',
        'AVRO_DEFAULT_MISFIT',
        `the writer does not write field "${field.name}", and its default does not fit its type: ${misfit.why}`,
        { at: misfit.at },
      );
    else if (lost !== undefined)
      add(
        'lossy',
        'AVRO_RENAMED_VALUE_LOST',
        `the writer renamed "${field.name}" to "${lost.name}", which this reader does not know: it gets the default instead of the value`,
        { written: lost },
      );
    else if (suspect !== undefined)
      add(
        'note',
        'AVRO_RENAME_SUSPECTED',
        `field "${field.name}" gets its default; if it is the old "${suspect.name}", give it the alias "${suspect.name}"`,
        { written: suspect },
      );
  }
}

const logicalWords = ({ logicalType, precision, scale }: AvroLogical): string =>
  precision === undefined ? logicalType : `${logicalType}(${precision},${scale ?? 0})`;
