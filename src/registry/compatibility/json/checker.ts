/** JSON Schema compatibility: every document that is valid under the writer's schema must be valid
 *  under the reader's. The comparison is structural: each keyword of the reader must be implied by
 *  the writer's schema in the same place.
 *
 *  Judged keywords: types, listed values, ranges and lengths; patterns (equal or not); required and
 *  optional properties with open and closed content; lists and tuples; `not`; nesting; `$ref`
 *  within the document; combinations whose parts imply each other.
 *  Any other keyword of the reader must be the same in the writer. Otherwise the change is not
 *  judged, hence refused. A keyword that only the writer has refuses nothing.
 *  Source: JSON Schema drafts 4 to 7, 2019-09 and 2020-12. A keyword counts for the writer only if
 *  its dialect knows it, and for the reader always. */
import { JSON_TYPES, type JsonType } from '../../../formats/json/shape.ts';
import { type JsonObject, memberOf } from '../../../formats/json/text.ts';
import {
  type Finding,
  Findings,
  type SchemaPlace,
  type Severity,
  type StepBudget,
  someOf,
} from '../finding.ts';
import { boundsUnmet, listedOf, type WrittenValues } from './bounds.ts';
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

/** Most nested `not` that are judged. */
const NEGATIONS_MAX = 2;

/** Steps of one pair in the budget: a pair of JSON Schemas costs as much as this many fields of
 *  other formats. */
const PAIR_STEPS = 16;

/** Keywords that are judged as a group: each keyword of the reader must be the same in the writer.
 */
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
/** Keywords whose meaning depends on all keywords beside them. */
const WHOLE = ['unevaluatedProperties', 'unevaluatedItems', '$dynamicRef', '$recursiveRef'];

/** Keywords that the existing registries do not compare. */
const NOT_COMPARED: ReadonlySet<string> = new Set(['propertyNames']);

/** @param isStrict leaves out the keywords that the existing registries do not compare */
export function checkJson(
  reader: JsonSchemaTree,
  writer: JsonSchemaTree,
  isStrict = false,
  budget?: StepBudget,
): readonly Finding[] {
  const findings = new Findings(budget);
  const walk = new Walk(new JsonDocument(reader), new JsonDocument(writer), isStrict, findings);
  walk.run();
  // A part that several places refer to has the same finding in each; one is enough.
  const seen = new Set<string>();
  return walk.findings.all().filter(({ rule, path, message, reader, writer }) => {
    const key = JSON.stringify([rule, path, message, reader, writer]);
    return !seen.has(key) && seen.add(key);
  });
}

/** Comparison of two documents. */
class Walk {
  readonly findings: Findings;
  readonly reader: JsonDocument;
  readonly writer: JsonDocument;
  readonly isStrict: boolean;
  /** Number of `not` around this walk. */
  readonly negations: number;
  readonly same: Sameness;
  readonly decided = new Decided();
  /** Types that schemas of the writer allow. */
  readonly types = new Map<JsonObject, readonly JsonType[]>();
  /** Smallest index in `around` of a pair that was assumed compatible since this was reset;
   *  infinity: none. */
  assumedIndex = Number.POSITIVE_INFINITY;
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

  /** True if the reader's part accepts every value of the writer's part. Both are parts of these
   *  documents. */
  accepts(reader: SchemaNode, writer: SchemaNode): boolean {
    const found = new Findings();
    new Pairing(this, found, '', [], 0).pair(reader, writer);
    return found.all().length === 0;
  }

  /** Walk with reader and writer exchanged, for `not`. It shares the step budget, and caches its
   *  decisions for all `not` of this walk. */
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

/** True for tuple keywords that are foreign to the dialect: validators disagree about their
 *  meaning. */
function hasForeignTuple(schema: JsonObject, isNew: boolean): boolean {
  const isList = itemsOf(memberOf(schema, 'items')) !== undefined;
  if (isNew) return isList || memberOf(schema, 'additionalItems') !== undefined;
  if (memberOf(schema, 'prefixItems') !== undefined) return true;
  return !isList && memberOf(schema, 'additionalItems') !== undefined;
}

/** Returns the schemas of the leading items, and the schema of all further items. */
function tupleOf(schema: JsonObject): { readonly items: readonly SchemaNode[]; readonly rest: SchemaNode } {
  const items = memberOf(schema, 'items');
  const prefix = itemsOf(memberOf(schema, 'prefixItems'));
  if (prefix !== undefined) return { items: prefix.map(schemaOf), rest: schemaOf(items) };
  const places = itemsOf(items);
  if (places === undefined) return { items: [], rest: schemaOf(items) };
  return { items: places.map(schemaOf), rest: schemaOf(memberOf(schema, 'additionalItems')) };
}

/** `inside`: depth in the document. */
type Pair = readonly [reader: SchemaNode, writer: SchemaNode, inside: number];

/** Comparison at one place of the documents. `findings` belong to the walk, or to a trial that only
 *  needs the outcome. */
class Pairing {
  private readonly walk: Walk;
  private readonly findings: Findings;
  private readonly path: string;
  /** Pairs in progress around this one. A pair that occurs inside itself deeper in the document is
   *  assumed compatible: a document is finite, and its parts are smaller. */
  private readonly around: readonly Pair[];
  private readonly inside: number;

  constructor(walk: Walk, findings: Findings, path: string, around: readonly Pair[], inside: number) {
    this.walk = walk;
    this.findings = findings;
    this.path = path;
    this.around = around;
    this.inside = inside;
  }

  private add(
    severity: Severity,
    rule: string,
    message: string,
    reader: SchemaPlace,
    writer: SchemaPlace,
  ): void {
    this.findings.add(severity, rule, this.path, message, { reader, writer });
  }

  /** Requires that the reader's part accepts every value of the writer's part. */
  pair(reader: SchemaNode, writer: SchemaNode): void {
    const { walk, around } = this;
    if (around.length > DEPTH_MAX || !walk.findings.spend(PAIR_STEPS, this.path)) {
      const why = 'the schemas are nested too deep, or refer to each other too often, to be compared';
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
      walk.assumedIndex = Math.min(walk.assumedIndex, under);
      return;
    }
    const known = walk.decided.get(reader, writer);
    if (known !== undefined) {
      this.addAll(known);
      return;
    }
    const assumed = walk.decided.assumed(reader, writer, this.inside);
    if (assumed !== undefined) {
      walk.assumedIndex = Math.min(walk.assumedIndex, assumed.assumedIndex);
      return;
    }
    this.addAll(this.decideOnce(reader, writer));
  }

  /** Decides on a pair that is not in progress, and caches the decision. */
  private decideOnce(reader: SchemaNode, writer: SchemaNode): readonly Finding[] {
    const { walk, around, inside } = this;
    const { mark } = walk.decided;
    const before = walk.assumedIndex;
    walk.assumedIndex = Number.POSITIVE_INFINITY;
    const found = this.decide(reader, writer);
    const { assumedIndex } = walk;
    const isOwn = assumedIndex >= around.length;
    // A failure stands even under assumptions, because dropping an assumption only adds findings.
    // So it is cached.
    if (found.length > 0) walk.decided.refuse(reader, writer, found, mark);
    else if (isOwn) walk.decided.accept(reader, writer, mark);
    else walk.decided.assume({ reader, writer, assumedIndex, inside }, mark);
    walk.assumedIndex = Math.min(before, isOwn ? Number.POSITIVE_INFINITY : assumedIndex);
    return found;
  }

  private addAll(findings: readonly Finding[]): void {
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

  /** True if a pair has no finding. */
  private accepts(reader: SchemaNode, writer: SchemaNode): boolean {
    const found = new Findings();
    new Pairing(this.walk, found, this.path, this.around, this.inside).pair(reader, writer);
    return found.all().length === 0;
  }

  /** Tries the writer's parts: every alternative, or one part of an `allOf`, may imply the reader's
   *  schema although the whole does not show it. */
  private isImpliedByParts(reader: SchemaNode, writerNode: SchemaNode): boolean {
    const writer = this.walk.writer.resolved(writerNode).node;
    if (writer?.kind !== 'object') return false;
    for (const keyword of ['anyOf', 'oneOf']) {
      const parts = partsOf(writer, keyword);
      if (parts?.every((part) => this.accepts(reader, part))) return true;
    }
    return partsOf(writer, 'allOf')?.some((part) => this.accepts(reader, part)) === true;
  }

  private compare(readerNode: SchemaNode, writerNode: SchemaNode): void {
    const places = [{ at: readerNode.at }, { at: writerNode.at }] as const;
    const { node: reader, beside } = this.walk.reader.resolved(readerNode);
    // Keywords beside the writer's $ref can only restrict its values further.
    const writer = this.walk.writer.resolved(writerNode).node ?? ANYTHING;
    if (writer.kind === 'boolean' && !writer.value) return;
    if (beside.length > 0)
      this.add('unjudged', 'JSON_KEYWORD_NOT_JUDGED', `${someOf(beside)} beside a $ref`, ...places);
    if (reader === undefined) {
      const why =
        'a $ref of the reader leads to nothing in the document, so the values that it accepts are unknown';
      this.add('unjudged', 'JSON_REFERENCE_UNRESOLVED', why, ...places);
    } else if (reader.kind === 'object') this.schemas(reader, writer.kind === 'object' ? writer : EMPTY);
    else if (!reader.value)
      this.add('fail', 'JSON_NEVER_VALID', 'the reader accepts no value here', ...places);
  }

  private schemas(reader: JsonObject, writer: JsonObject): void {
    const { isDraft4 } = this.walk.writer;
    const types = this.typesOf(writer, 0);
    const values = listedOf(writer, isDraft4) ?? fewOf(types);
    const written: WrittenValues = { schema: writer, types, values, isDraft4 };
    if (!this.spendOn(reader, writer)) return;
    this.types(reader, writer, types);
    const place = (schema: JsonObject, keyword: string): SchemaPlace => ({
      at: (memberOf(schema, keyword) ?? schema).at,
    });
    for (const { severity, rule, message, keyword } of boundsUnmet(reader, written))
      this.add(severity, rule, message, place(reader, keyword), place(writer, keyword));
    if (types.includes('object')) this.object(reader, writer);
    if (types.includes('array')) this.array(reader, writer);
    this.combinations(reader, writer);
    this.others(reader, writer);
  }

  /** Counts the listed entries of two schemas, which are walked for each pair that they are in. */
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

  /** Returns the types that a schema accepts; each schema is inspected once. */
  private typesOf(schema: JsonObject, depth: number): readonly JsonType[] {
    const known = this.walk.types.get(schema);
    if (known !== undefined) return known;
    let types = typesNamed(schema) ?? JSON_TYPES;
    const values = listedOf(schema, this.walk.writer.isDraft4);
    if (values !== undefined) {
      const seen = new Set(values.map(typeOfValue));
      types = types.filter((one) => seen.has(one));
    }
    // Preliminary entry for a recursive schema: inside itself it allows no more than this.
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
    // An unknown type accepts no value.
    const allowed = typesNamed(reader) ?? [];
    const refused = types.filter(
      (one) => !allowed.includes(one) && !(one === 'integer' && types.includes('number')),
    );
    if (refused.length === 0) return;
    const node = memberOf(reader, 'type') ?? reader;
    const writes =
      types.length === JSON_TYPES.length
        ? 'the writer may write any type'
        : `the writer may write ${someOf(refused)}`;
    this.add(
      'fail',
      'JSON_TYPE_NARROWED',
      `the reader takes ${someOf(allowed)} only, and ${writes}`,
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
      // A pattern of the writer may match the name and restrict the value, so the value could be
      // anything.
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
      // These properties may match a pattern of the reader, whose schema then applies instead.
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

  /** Compares a reader's property that the writer neither names nor forbids. */
  private added(name: string, schema: SchemaNode, written: SchemaNode, writer: JsonObject): void {
    const open = written.kind === 'boolean' || isEmptyObject(written);
    if (!open) {
      this.at(name).pair(schema, written);
      return;
    }
    if (this.at(name).accepts(schema, ANYTHING)) return;
    this.at(name).add(
      'fail',
      'JSON_PROPERTY_ADDED_TO_OPEN',
      `the reader demands something of property "${name}", under which the writer may have written anything`,
      { at: schema.at },
      { at: writer.at },
    );
  }

  /** Compares the reader's schema of properties that it does not name. */
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
      if (this.at(name).accepts(rest, schema)) continue;
      this.at(name).add(
        beside.isUnsure ? 'unjudged' : 'fail',
        'JSON_PROPERTY_NOT_TAKEN',
        isClosed
          ? `the reader takes no property "${name}"`
          : `the reader takes property "${name}" only under its rule for properties that it does not name`,
        { at: rest.at },
        { at: schema.at },
      );
    }
    if (this.at('*').accepts(rest, theirRest)) return;
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

  /** Compares the items up to the longer of the two tuples, and then all further items. */
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

  /** Compares `not` with swapped roles: the writer must exclude every value that the reader
   *  excludes. */
  private negation(reader: JsonObject, writer: JsonObject): void {
    const node = memberOf(reader, 'not');
    if (node === undefined) return;
    const other = memberOf(writer, 'not');
    if (other !== undefined && this.walk.same.of(node, other)) return;
    const { walk } = this;
    if (isSchemaNode(node) && isSchemaNode(other) && walk.negations < NEGATIONS_MAX)
      if (walk.reversed.accepts(other, node)) return;
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
        if (keyword === 'allOf' ? this.acceptsAll(ours, writer) : this.acceptsSome(ours, writer, keyword))
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

  /** True if each part of the reader is implied by the writer, or by the writer's part at the same
   *  index. */
  private acceptsAll(ours: readonly SchemaNode[], writer: JsonObject): boolean {
    const theirs = partsOf(writer, 'allOf') ?? [];
    return ours.every((part, i) => {
      const same = theirs[i];
      return (same !== undefined && this.accepts(part, same)) || this.accepts(part, writer);
    });
  }

  /** True if some part of the reader accepts each value of the writer. For `oneOf`, exactly one
   *  part must accept it, which holds if the parts accept different types. */
  private acceptsSome(ours: readonly SchemaNode[], writer: JsonObject, keyword: string): boolean {
    if (keyword === 'oneOf' && !this.areApart(ours)) return false;
    if (ours.some((part) => this.accepts(part, writer))) return true;
    return ['anyOf', 'oneOf'].some((name) =>
      partsOf(writer, name)?.every((theirs, i) => {
        const same = ours[i];
        if (same !== undefined && this.accepts(same, theirs)) return true;
        return ours.some((part) => this.accepts(part, theirs));
      }),
    );
  }

  private areApart(parts: readonly SchemaNode[]): boolean {
    const seen = new Set<JsonType>();
    for (const part of parts) {
      const { node, beside } = this.walk.reader.resolved(part);
      if (node?.kind !== 'object' || beside.length > 0) return false;
      for (const type of typesNamed(node) ?? JSON_TYPES) {
        if (seen.has(type)) return false;
        seen.add(type);
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
      const why = `${keyword} depends on all keywords beside it, which differ`;
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
