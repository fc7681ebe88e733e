/** Is every document that is valid under the writer's JSON Schema valid under the reader's? By structure: each keyword
 *  of the reader must be implied by what the writer's schema demands in the same place.
 *
 *  Judged: types, listed values, ranges, lengths, patterns (same or not), required and optional properties with open and
 *  closed content, lists and tuples, `not`, nesting, `$ref` within the document, and combinations whose parts imply each
 *  other. Any other keyword of the reader must stand in the writer as it is; else it is not judged, hence refused. What
 *  is demanded by the writer alone refuses nothing.
 *  Source: JSON Schema drafts 4 to 7, 2019-09 and 2020-12; a keyword counts for the writer only where its dialect knows
 *  it, and for the reader always.
 */
import { JSON_TYPES, type JsonType } from '../../../formats/json/shape.ts';
import { type JsonObject, memberOf } from '../../../formats/json/text.ts';
import { type Finding, Findings, type Place, type Severity, type StepBudget, someOf } from '../finding.ts';
import { boundsUnmet, listedOf, type Written } from './bounds.ts';
import {
  ANYTHING,
  EMPTY,
  fewOf,
  isEmptyObject,
  isSchemaNode,
  itemsOf,
  JsonDocument,
  type JsonSchemaTree,
  membersOf,
  partsOf,
  type SchemaNode,
  schemaOf,
  stringOf,
  typeOfValue,
  typesNamed,
} from './node.ts';
import { DEPTH_MAX, Decided, Sameness } from './same.ts';

/** `not` inside `not`, so many are judged. */
const NEGATIONS_MAX = 2;

/** Of the steps of a comparison: a pair costs as much as that many fields of other formats. */
const PAIR_STEPS = 16;

/** Keywords that are judged together with others; of the reader each must stand in the writer just so. */
const GROUPS: ReadonlyArray<readonly string[]> = [
  ['if', 'then', 'else'],
  ['contains', 'minContains', 'maxContains'],
  ['propertyNames'],
  ['dependencies'],
  ['dependentRequired'],
  ['dependentSchemas'],
];
/** Keywords whose lists are walked when their schema is compared. */
const LISTING = [
  'properties',
  'patternProperties',
  'required',
  'enum',
  'type',
  'allOf',
  'anyOf',
  'oneOf',
  'items',
  'prefixItems',
];
/** What these mean depends on all that stands beside them. */
const WHOLE = ['unevaluatedProperties', 'unevaluatedItems', '$dynamicRef', '$recursiveRef'];

/** Keywords that the existing registries do not compare. */
const NOT_COMPARED: ReadonlySet<string> = new Set(['propertyNames']);

/** @param isStrict leaves out what the existing registries leave out */
export function checkJson(
  reader: JsonSchemaTree,
  writer: JsonSchemaTree,
  isStrict = false,
  budget?: StepBudget,
): readonly Finding[] {
  const findings = new Findings(budget);
  const walk = new Walk(new JsonDocument(reader), new JsonDocument(writer), isStrict, findings);
  walk.run();
  // A part that is referred to from several places says the same from each.
  const met = new Set<string>();
  return walk.findings.all().filter(({ rule, path, message, reader, writer }) => {
    const key = JSON.stringify([rule, path, message, reader, writer]);
    return !met.has(key) && met.add(key);
  });
}

/** One comparison of two documents. */
class Walk {
  readonly findings: Findings;
  readonly reader: JsonDocument;
  readonly writer: JsonDocument;
  readonly isStrict: boolean;
  /** Number of `not` around this walk. */
  readonly negations: number;
  readonly same: Sameness;
  readonly decided = new Decided();
  /** Types that schemas of the writer let through. */
  readonly types = new Map<JsonObject, readonly JsonType[]>();
  /** The outermost pair under way that was taken for granted since this was set. */
  granted = Number.POSITIVE_INFINITY;
  private opposite: Walk | undefined;

  /** @param findings also counts the steps
   *  @param negations number of `not` around this walk */
  constructor(
    reader: JsonDocument,
    writer: JsonDocument,
    isStrict: boolean,
    findings: Findings,
    negations = 0,
  ) {
    this.findings = findings;
    this.negations = negations;
    this.reader = reader;
    this.writer = writer;
    this.isStrict = isStrict;
    this.same = new Sameness(reader, writer, this.findings);
  }

  /** True where the reader takes all that the writer lets through; the two are parts of these documents. */
  takes(reader: SchemaNode, writer: SchemaNode): boolean {
    const found = new Findings();
    new Pairing(this, found, '', [], 0).pair(reader, writer);
    return found.all().length === 0;
  }

  /** The same documents with their parts exchanged. Its steps count on, and it decides on a pair once for every `not`. */
  get reversed(): Walk {
    const { writer, reader, isStrict, findings, negations } = this;
    this.opposite ??= new Walk(writer, reader, isStrict, findings, negations + 1);
    return this.opposite;
  }

  run(): void {
    const { root } = this.reader;
    const other = this.writer.root;
    if (!isSchemaNode(root) || !isSchemaNode(other)) return;
    if (this.reader.dialect === this.writer.dialect) {
      new Pairing(this, this.findings, '', [], 0).pair(root, other);
      return;
    }
    this.findings.add(
      'unjudged',
      'JSON_DIALECT_CHANGED',
      '',
      `the reader is written in ${this.reader.dialect}, the writer in ${this.writer.dialect}, where keywords may mean something else`,
      { reader: { at: root.at }, writer: { at: other.at } },
    );
  }
}

const TUPLE_KEYWORDS = ['items', 'prefixItems', 'additionalItems'];

/** True for keywords of a tuple that the dialect does not know: readers disagree about what they mean there. */
function hasForeignTuple(schema: JsonObject, isNew: boolean): boolean {
  const isList = itemsOf(memberOf(schema, 'items')) !== undefined;
  if (isNew) return isList || memberOf(schema, 'additionalItems') !== undefined;
  if (memberOf(schema, 'prefixItems') !== undefined) return true;
  return !isList && memberOf(schema, 'additionalItems') !== undefined;
}

/** Places of a list with a schema of their own, and the schema of all that follow. */
function tupleOf(schema: JsonObject): { readonly items: readonly SchemaNode[]; readonly rest: SchemaNode } {
  const items = memberOf(schema, 'items');
  const prefix = itemsOf(memberOf(schema, 'prefixItems'));
  if (prefix !== undefined) return { items: prefix.map(schemaOf), rest: schemaOf(items) };
  const places = itemsOf(items);
  if (places === undefined) return { items: [], rest: schemaOf(items) };
  return { items: places.map(schemaOf), rest: schemaOf(memberOf(schema, 'additionalItems')) };
}

/** `inside`: how deep in the document. */
type Pair = readonly [reader: SchemaNode, writer: SchemaNode, inside: number];

/** One place of the documents. `findings` are those of the walk, or those of a trial whose outcome alone counts. */
class Pairing {
  private readonly walk: Walk;
  private readonly findings: Findings;
  private readonly path: string;
  /** The pairs under way. Each is taken for granted inside itself: a document is finite, and its parts are smaller. */
  private readonly around: readonly Pair[];
  private readonly inside: number;

  constructor(walk: Walk, findings: Findings, path: string, around: readonly Pair[], inside: number) {
    this.walk = walk;
    this.findings = findings;
    this.path = path;
    this.around = around;
    this.inside = inside;
  }

  private add(severity: Severity, rule: string, message: string, reader: Place, writer: Place): void {
    this.findings.add(severity, rule, this.path, message, { reader, writer });
  }

  /** The reader's part must take what the writer's part lets through. */
  pair(reader: SchemaNode, writer: SchemaNode): void {
    const { walk, around } = this;
    if (around.length > DEPTH_MAX || !walk.findings.spend(PAIR_STEPS, this.path)) {
      const why = 'the schemas are nested too deep, or too tangled, to be compared here';
      this.add('unjudged', 'COMPARISON_TOO_LONG', why, { at: reader.at }, { at: writer.at });
      return;
    }
    const under = around.findIndex(([one, two]) => one === reader && two === writer);
    if (under >= 0 && around[under]?.[2] === this.inside) {
      const why =
        'a $ref leads back to itself in the same place of the document, which no validator can follow';
      this.add('unjudged', 'JSON_REFERENCE_UNRESOLVED', why, { at: reader.at }, { at: writer.at });
      return;
    }
    if (under >= 0) {
      walk.granted = Math.min(walk.granted, under);
      return;
    }
    const known = walk.decided.get(reader, writer);
    if (known !== undefined) {
      this.take(known);
      return;
    }
    const assumed = walk.decided.assumed(reader, writer, this.inside);
    if (assumed !== undefined) {
      walk.granted = Math.min(walk.granted, assumed.granted);
      return;
    }
    this.take(this.decideOnce(reader, writer));
  }

  /** Decides on a pair that is not under way, and keeps what was decided. */
  private decideOnce(reader: SchemaNode, writer: SchemaNode): readonly Finding[] {
    const { walk, around, inside } = this;
    const { mark } = walk.decided;
    const before = walk.granted;
    walk.granted = Number.POSITIVE_INFINITY;
    const found = this.decide(reader, writer);
    const { granted } = walk;
    const isOwn = granted >= around.length;
    // What is refused though something was taken for granted is refused anyway.
    if (found.length > 0) walk.decided.refuse(reader, writer, found, mark);
    else if (isOwn) walk.decided.accept(reader, writer, mark);
    else walk.decided.assume({ reader, writer, granted, inside }, mark);
    walk.granted = Math.min(before, isOwn ? Number.POSITIVE_INFINITY : granted);
    return found;
  }

  private take(findings: readonly Finding[]): void {
    for (const { severity, rule, path, message, reader, writer } of findings)
      this.findings.add(severity, rule, path, message, {
        ...(reader === undefined ? {} : { reader }),
        ...(writer === undefined ? {} : { writer }),
      });
  }

  private decide(reader: SchemaNode, writer: SchemaNode): readonly Finding[] {
    const found = new Findings();
    const around = [...this.around, [reader, writer, this.inside] as const];
    const inside = new Pairing(this.walk, found, this.path, around, this.inside);
    inside.compare(reader, writer);
    const all = found.all();
    const isFine =
      all.length === 0 || this.walk.same.of(reader, writer) || inside.isImpliedByParts(reader, writer);
    return isFine ? [] : all;
  }

  private at(step: string): Pairing {
    const path = step.startsWith('[') || this.path === '' ? `${this.path}${step}` : `${this.path}.${step}`;
    return new Pairing(this.walk, this.findings, path, this.around, this.inside + 1);
  }

  /** Whether nothing stands against a pair. */
  private takes(reader: SchemaNode, writer: SchemaNode): boolean {
    const found = new Findings();
    new Pairing(this.walk, found, this.path, this.around, this.inside).pair(reader, writer);
    return found.all().length === 0;
  }

  /** The writer's alternatives each, or one of all that it demands, may imply what the whole does not show. */
  private isImpliedByParts(reader: SchemaNode, writerNode: SchemaNode): boolean {
    const writer = this.walk.writer.resolved(writerNode).node;
    if (writer?.kind !== 'object') return false;
    for (const keyword of ['anyOf', 'oneOf']) {
      const parts = partsOf(writer, keyword);
      if (parts?.every((part) => this.takes(reader, part))) return true;
    }
    return partsOf(writer, 'allOf')?.some((part) => this.takes(reader, part)) === true;
  }

  private compare(readerNode: SchemaNode, writerNode: SchemaNode): void {
    const places = [{ at: readerNode.at }, { at: writerNode.at }] as const;
    const { node: reader, beside } = this.walk.reader.resolved(readerNode);
    // What stands beside the writer's $ref can only demand more.
    const writer = this.walk.writer.resolved(writerNode).node ?? ANYTHING;
    if (writer.kind === 'boolean' && !writer.value) return;
    if (beside.length > 0)
      this.add('unjudged', 'JSON_KEYWORD_NOT_JUDGED', `${someOf(beside)} beside a $ref`, ...places);
    if (reader === undefined) {
      const why =
        'a $ref of the reader leads to what is not in the document, so nothing can be said about it';
      this.add('unjudged', 'JSON_REFERENCE_UNRESOLVED', why, ...places);
    } else if (reader.kind === 'object') this.schemas(reader, writer.kind === 'object' ? writer : EMPTY);
    else if (!reader.value) this.add('fail', 'JSON_NEVER_VALID', 'the reader takes nothing here', ...places);
  }

  private schemas(reader: JsonObject, writer: JsonObject): void {
    const { isDraft4 } = this.walk.writer;
    const types = this.typesOf(writer, 0);
    const values = listedOf(writer, isDraft4) ?? fewOf(types);
    const written: Written = { schema: writer, types, values, isDraft4 };
    if (!this.spendOn(reader, writer)) return;
    this.types(reader, writer, types);
    const place = (schema: JsonObject, keyword: string): Place => ({
      at: (memberOf(schema, keyword) ?? schema).at,
    });
    for (const { severity, rule, message, keyword } of boundsUnmet(reader, written))
      this.add(severity, rule, message, place(reader, keyword), place(writer, keyword));
    if (types.includes('object')) this.object(reader, writer);
    if (types.includes('array')) this.array(reader, writer);
    this.combinations(reader, writer);
    this.others(reader, writer);
  }

  /** Counts what two schemas list, which is looked at for each pair that they are in. */
  private spendOn(...schemas: readonly JsonObject[]): boolean {
    let listed = 0;
    for (const schema of schemas) {
      for (const keyword of LISTING) {
        const node = memberOf(schema, keyword);
        if (node?.kind === 'array') listed += node.items.length;
        else if (node?.kind === 'object') listed += node.members.size;
      }
    }
    return this.walk.findings.spend(listed, this.path);
  }

  /** Types that a schema accepts; each schema is inspected once. */
  private typesOf(schema: JsonObject, depth: number): readonly JsonType[] {
    const known = this.walk.types.get(schema);
    if (known !== undefined) return known;
    let types = typesNamed(schema) ?? JSON_TYPES;
    const values = listedOf(schema, this.walk.writer.isDraft4);
    if (values !== undefined) {
      const met = new Set(values.map(typeOfValue));
      types = types.filter((one) => met.has(one));
    }
    // Inside itself a schema lets through no more than this.
    this.walk.types.set(schema, types);
    if (depth > DEPTH_MAX) return types;
    const ofPart = (part: SchemaNode): readonly JsonType[] => {
      const resolved = this.walk.writer.resolved(part).node;
      if (resolved === undefined || (resolved.kind === 'boolean' && resolved.value)) return JSON_TYPES;
      return resolved.kind === 'boolean' ? [] : this.typesOf(resolved, depth + 1);
    };
    for (const keyword of ['anyOf', 'oneOf']) {
      const parts = partsOf(schema, keyword);
      if (parts === undefined || !this.walk.findings.spend(parts.length, this.path)) continue;
      const some = new Set(parts.flatMap(ofPart));
      types = types.filter((one) => some.has(one));
    }
    this.walk.types.set(schema, types);
    return types;
  }

  private types(reader: JsonObject, writer: JsonObject, types: readonly JsonType[]): void {
    // A type that no dialect here knows takes nothing.
    const allowed = typesNamed(reader) ?? [];
    const refused = types.filter(
      (one) => !allowed.includes(one) && !(one === 'integer' && types.includes('number')),
    );
    if (refused.length === 0) return;
    const node = memberOf(reader, 'type') ?? reader;
    const said =
      types.length === JSON_TYPES.length
        ? 'the writer may write any type'
        : `the writer may write ${someOf(refused)}`;
    this.add(
      'fail',
      'JSON_TYPE_NARROWED',
      `the reader takes ${someOf(allowed)} only, and ${said}`,
      { at: node.at },
      { at: (memberOf(writer, 'type') ?? writer).at },
    );
  }

  private object(reader: JsonObject, writer: JsonObject): void {
    this.required(reader, writer);
    const ours = membersOf(reader, 'properties');
    const theirs = membersOf(writer, 'properties');
    const patterns = membersOf(reader, 'patternProperties');
    const theirPatterns = membersOf(writer, 'patternProperties');
    const theirRest = schemaOf(memberOf(writer, 'additionalProperties'));
    const isClosed = theirRest.kind === 'boolean' && !theirRest.value;
    for (const [name, schema] of ours) {
      const other = theirs.get(name);
      if (other !== undefined) this.at(name).pair(schema, other);
      // A pattern of the writer's may let the name through, with what it demands.
      else if (!isClosed || theirPatterns.size > 0)
        this.added(name, schema, theirPatterns.size > 0 ? ANYTHING : theirRest, writer);
    }
    const rest = schemaOf(memberOf(reader, 'additionalProperties'));
    for (const [pattern, schema] of patterns) {
      const same = theirPatterns.get(pattern);
      if (same !== undefined) this.at(`{${pattern}}`).pair(schema, same);
      else if (!isEmptyObject(schema) && !(schema.kind === 'boolean' && schema.value))
        this.add(
          'unjudged',
          'JSON_KEYWORD_NOT_JUDGED',
          `the reader demands something of properties that match ${JSON.stringify(pattern)}`,
          { at: schema.at },
          { at: writer.at },
        );
    }
    if (isEmptyObject(rest) || (rest.kind === 'boolean' && rest.value)) return;
    this.rest(rest, theirRest, {
      reader,
      writer,
      left: [...theirs].filter(([name]) => !ours.has(name)),
      patterns: [...theirPatterns].filter(([pattern]) => !patterns.has(pattern)),
      // They may match a pattern of the reader's, which then speaks for them.
      isUnsure: patterns.size > 0,
    });
  }

  private required(reader: JsonObject, writer: JsonObject): void {
    const named = (schema: JsonObject): string[] =>
      (itemsOf(memberOf(schema, 'required')) ?? []).flatMap((one) => stringOf(one) ?? []);
    const theirs = new Set(named(writer));
    const node = memberOf(reader, 'required') ?? reader;
    for (const name of named(reader)) {
      if (theirs.has(name)) continue;
      this.at(name).add(
        'fail',
        'JSON_REQUIRED_ADDED',
        `property "${name}" is required in the reader, and the writer may leave it out`,
        { at: node.at },
        { at: (memberOf(writer, 'required') ?? writer).at },
      );
    }
  }

  /** A property that the writer does not know and does not forbid. */
  private added(name: string, schema: SchemaNode, written: SchemaNode, writer: JsonObject): void {
    const open = written.kind === 'boolean' || isEmptyObject(written);
    if (!open) {
      this.at(name).pair(schema, written);
      return;
    }
    if (this.at(name).takes(schema, ANYTHING)) return;
    this.at(name).add(
      'fail',
      'JSON_PROPERTY_ADDED_TO_OPEN',
      `the reader demands something of property "${name}", under which the writer may have written anything`,
      { at: schema.at },
      { at: writer.at },
    );
  }

  /** What the reader demands of properties that it does not name. */
  private rest(
    rest: SchemaNode,
    theirRest: SchemaNode,
    beside: {
      readonly reader: JsonObject;
      readonly writer: JsonObject;
      readonly left: ReadonlyArray<readonly [string, SchemaNode]>;
      readonly patterns: ReadonlyArray<readonly [string, SchemaNode]>;
      readonly isUnsure: boolean;
    },
  ): void {
    const isClosed = rest.kind === 'boolean';
    for (const [name, schema] of [...beside.left, ...beside.patterns]) {
      if (this.at(name).takes(rest, schema)) continue;
      this.at(name).add(
        beside.isUnsure ? 'unjudged' : 'fail',
        'JSON_PROPERTY_NOT_TAKEN',
        isClosed
          ? `the reader takes no property "${name}"`
          : `the reader takes property "${name}" only as it takes all it does not name`,
        { at: rest.at },
        { at: schema.at },
      );
    }
    if (this.at('*').takes(rest, theirRest)) return;
    this.add(
      'fail',
      'JSON_CONTENT_CLOSED',
      isClosed
        ? 'the reader takes no property that it does not name, and the writer may write any'
        : 'the reader demands something of every property that it does not name, and the writer may write others',
      { at: rest.at },
      { at: (memberOf(beside.writer, 'additionalProperties') ?? beside.writer).at },
    );
  }

  /** Each place of a list, up to the longer of the two tuples, and then all that follow. */
  private array(reader: JsonObject, writer: JsonObject): void {
    const isNew = this.walk.reader.dialect === '2020-12';
    if (hasForeignTuple(reader, isNew) || hasForeignTuple(writer, isNew)) {
      if (TUPLE_KEYWORDS.some((keyword) => memberOf(reader, keyword) !== undefined))
        this.sameGroup(reader, writer, TUPLE_KEYWORDS);
      return;
    }
    const ours = tupleOf(reader);
    const theirs = tupleOf(writer);
    const places = Math.max(ours.items.length, theirs.items.length);
    for (let i = 0; i < places; i++) {
      const item = ours.items[i] ?? ours.rest;
      if (item !== ANYTHING) this.at(`[${i}]`).pair(item, theirs.items[i] ?? theirs.rest);
    }
    if (ours.rest !== ANYTHING) this.at('[]').pair(ours.rest, theirs.rest);
  }

  /** Compares `not` with swapped roles: the writer must exclude every value that the reader excludes. */
  private negation(reader: JsonObject, writer: JsonObject): void {
    const node = memberOf(reader, 'not');
    if (node === undefined) return;
    const other = memberOf(writer, 'not');
    if (other !== undefined && this.walk.same.of(node, other)) return;
    const { walk } = this;
    if (isSchemaNode(node) && isSchemaNode(other) && walk.negations < NEGATIONS_MAX)
      if (walk.reversed.takes(other, node)) return;
    this.add(
      'unjudged',
      'JSON_KEYWORD_NOT_JUDGED',
      'not changed, and what the reader excludes does not follow from what the writer excludes',
      { at: node.at },
      { at: (other ?? writer).at },
    );
  }

  private combinations(reader: JsonObject, writer: JsonObject): void {
    for (const keyword of ['allOf', 'anyOf', 'oneOf']) {
      const node = memberOf(reader, keyword);
      if (node === undefined) continue;
      const ours = partsOf(reader, keyword);
      const other = memberOf(writer, keyword);
      if (other !== undefined && this.walk.same.of(node, other)) continue;
      if (ours !== undefined)
        if (keyword === 'allOf' ? this.takesAll(ours, writer) : this.takesSome(ours, writer, keyword))
          continue;
      this.add(
        'unjudged',
        'JSON_COMBINATION_CHANGED',
        `${keyword} changed, and what its parts take together does not follow from the writer's`,
        { at: node.at },
        { at: (other ?? writer).at },
      );
    }
  }

  /** Each part of the reader is implied by the writer, or by the writer's part in the same place. */
  private takesAll(ours: readonly SchemaNode[], writer: JsonObject): boolean {
    const theirs = partsOf(writer, 'allOf') ?? [];
    return ours.every((part, i) => {
      const same = theirs[i];
      return (same !== undefined && this.takes(part, same)) || this.takes(part, writer);
    });
  }

  /** Whatever the writer writes is taken by one part. That none but one takes it, as oneOf demands, follows where the
   *  parts take different types. */
  private takesSome(ours: readonly SchemaNode[], writer: JsonObject, keyword: string): boolean {
    if (keyword === 'oneOf' && !this.areApart(ours)) return false;
    if (ours.some((part) => this.takes(part, writer))) return true;
    return ['anyOf', 'oneOf'].some((name) =>
      partsOf(writer, name)?.every((theirs, i) => {
        const same = ours[i];
        if (same !== undefined && this.takes(same, theirs)) return true;
        return ours.some((part) => this.takes(part, theirs));
      }),
    );
  }

  private areApart(parts: readonly SchemaNode[]): boolean {
    const met = new Set<JsonType>();
    for (const part of parts) {
      const { node, beside } = this.walk.reader.resolved(part);
      if (node?.kind !== 'object' || beside.length > 0) return false;
      for (const type of typesNamed(node) ?? JSON_TYPES) {
        if (met.has(type)) return false;
        met.add(type);
      }
    }
    return true;
  }

  private others(reader: JsonObject, writer: JsonObject): void {
    this.negation(reader, writer);
    for (const group of GROUPS) {
      if (this.walk.isStrict && group.every((keyword) => NOT_COMPARED.has(keyword))) continue;
      if (group.some((keyword) => memberOf(reader, keyword) !== undefined))
        this.sameGroup(reader, writer, group);
    }
    for (const keyword of WHOLE) {
      const node = memberOf(reader, keyword);
      if (node === undefined) continue;
      const why = `${keyword} depends on all that stands beside it, which differs`;
      this.add('unjudged', 'JSON_KEYWORD_NOT_JUDGED', why, { at: node.at }, { at: writer.at });
    }
  }

  private sameGroup(reader: JsonObject, writer: JsonObject, keywords: readonly string[]): void {
    for (const keyword of keywords) {
      const ours = memberOf(reader, keyword);
      const theirs = memberOf(writer, keyword);
      if (ours === undefined && theirs === undefined) continue;
      if (ours !== undefined && theirs !== undefined && this.walk.same.of(ours, theirs)) continue;
      this.add(
        'unjudged',
        'JSON_KEYWORD_NOT_JUDGED',
        `${keyword} changed, for which there is no rule`,
        { at: (ours ?? reader).at },
        { at: (theirs ?? writer).at },
      );
      return;
    }
  }
}
