/** Parses schemas on demand and keeps the trees in a bounded LRU cache. */
import { createHash } from 'node:crypto';
import type { Logger } from '../../../core/log.ts';
import {
  type Json,
  REFERENCE_COUNT_MAX,
  REFERENCE_DEPTH_MAX,
  type Reference,
  type ResolvedReference,
  type SchemaContent,
} from '../../../formats/content.ts';
import { contractEntries, readMetadata, readRuleSet, sameForm } from '../../../formats/contract.ts';
import { isSchemaFormat, SCHEMA_FORMATS, type SchemaFormat } from '../../../formats/format.ts';
import type { ParseOptions, TextForm } from '../../../formats/options.ts';
import { lookupTextOf, type Schema, schemaText } from '../../../formats/schema.ts';
import { registryError } from '../../errors.ts';
import {
  CHECK_CHARS_MAX,
  type Checks,
  Deferred,
  INLINE_CHARS_MAX,
  type Origin,
} from '../../worker/checks.ts';
import { charsOf, readSource, type SchemaSource } from '../../worker/judge.ts';
import type { SchemaInput } from '../service.ts';
import { type State, side, type Text } from './model.ts';
import { qualify, qualifyWith } from './names.ts';
import { textLengthOf } from './table.ts';

/** Limits of the tree cache: characters of the cached texts, and number of trees. */
const PARSED_CHARS_MAX = 2_000_000;
const PARSED_COUNT_MAX = 2_000;

/** Maximum characters of all schemas that one schema refers to; as many as one check may read. */
const REFERENCE_CHARS_MAX = CHECK_CHARS_MAX;

/** Slots of the table of keys that were seen once. */
const MET_SLOTS = 1 << 13;

/** FNV-1a hash over UTF-16 units. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash;
}

/** LRU cache of trees. A tree is cached from its second use on: a tree that is used once, as in
 *  most registrations, would only age in the heap.
 */
class ParsedSchemas {
  private readonly met = new Int32Array(MET_SLOTS);
  private readonly held = new Map<string, { readonly schema: Schema; readonly chars: number }>();
  private chars = 0;

  get(key: string): Schema | undefined {
    const found = this.held.get(key);
    if (found === undefined) return undefined;
    this.held.delete(key);
    this.held.set(key, found);
    return found.schema;
  }

  set(key: string, schema: Schema): void {
    const chars = key.length + schema.text.length;
    if (this.held.has(key) || chars > PARSED_CHARS_MAX / 4) return;
    const hash = hashOf(key);
    const slot = hash & (MET_SLOTS - 1);
    if (this.met[slot] !== hash) {
      this.met[slot] = hash;
      return;
    }
    this.held.set(key, { schema, chars });
    this.chars += chars;
    for (const [oldest, entry] of this.held) {
      if (this.chars <= PARSED_CHARS_MAX && this.held.size <= PARSED_COUNT_MAX) break;
      this.held.delete(oldest);
      this.chars -= entry.chars;
    }
  }
}

/** Resolved references, with a key that is equal exactly when all of them are. */
interface Resolved {
  readonly references: readonly ResolvedReference[];
  readonly key: string;
}

const NOTHING: Resolved = { references: [], key: '' };

/** Resolves the references of a schema of `subject`, transitively. */
class Resolver {
  private readonly state: State;
  private readonly met = new Map<string, ResolvedReference>();
  private readonly keys: string[] = [];
  private readonly path = new Set<string>();
  private readonly gaps: boolean;
  private chars = 0;

  /** @param gaps true: omits references that do not exist; false: refuses them */
  constructor(state: State, gaps: boolean) {
    this.state = state;
    this.gaps = gaps;
  }

  resolve(subject: string, references: readonly Reference[]): Resolved {
    const resolved = this.all(subject, references);
    return { references: resolved, key: this.keys.join() };
  }

  private all(subject: string, references: readonly Reference[]): readonly ResolvedReference[] {
    return references.flatMap((reference) => this.one(subject, reference) ?? []);
  }

  private one(parent: string, reference: Reference): ResolvedReference | undefined {
    const subject = qualifyWith(parent, reference.subject);
    const entry = this.state.version(subject, reference.version);
    if (entry === undefined) {
      if (this.gaps) return undefined;
      throw registryError(
        'invalid_schema',
        `No schema reference found for subject "${subject}" and version ${reference.version}`,
        { next: 'register the referenced schema first' },
      );
    }
    const at = JSON.stringify([reference.name, subject, reference.version]);
    const known = this.met.get(at);
    if (known !== undefined) return known;
    if (this.path.has(at) || this.path.size >= REFERENCE_DEPTH_MAX || this.met.size >= REFERENCE_COUNT_MAX) {
      throw registryError(
        'invalid_schema',
        `the references of a schema are ${this.path.has(at) ? 'circular' : 'too many or too deep'}`,
        {
          next: `keep to ${REFERENCE_COUNT_MAX} schemas and ${REFERENCE_DEPTH_MAX} references inside references`,
        },
      );
    }
    this.path.add(at);
    this.keys.push(`${at}${entry.text.key}`);
    const { content } = entry.text;
    this.chars += textLengthOf(content);
    if (this.chars > REFERENCE_CHARS_MAX)
      throw registryError(
        'invalid_schema',
        `the schemas that a schema refers to have more than ${REFERENCE_CHARS_MAX} characters together (the limit reference-chars)`,
        { next: 'refer to fewer or smaller schemas' },
      );
    const references = this.all(subject, content.references);
    this.path.delete(at);
    const made: ResolvedReference = {
      ...reference,
      subject,
      format: content.format,
      // Decoded on access: a key needs no texts, and a history may refer to a text many times.
      get text() {
        return content.text;
      },
      references,
    };
    this.met.set(at, made);
    return made;
  }
}

function resolve(state: State, subject: string, references: readonly Reference[], gaps = false): Resolved {
  return references.length === 0 ? NOTHING : new Resolver(state, gaps).resolve(subject, references);
}

/** Tree of one request, so that its look-up and its decision parse it once. */
export interface Memo {
  key?: string;
  schema?: Schema;
}

/** Parser options that a registration decides. */
export type HowParsed = Readonly<
  Required<Pick<ParseOptions, 'normalize' | 'lenient' | 'unvalidated' | 'looseImports'>>
>;

/** Sent schema, with everything that counts for its identity. */
export interface Prepared {
  /** Sent text; it was parsed without error. */
  readonly origin: Origin;
  readonly content: SchemaContent;
  /** Text that a look-up compares. */
  readonly lookupText: string;
}

/** Texts that are compared where the exact content is not found. */
interface Spelling {
  /** Look-up text; undefined where it equals the stored text. */
  readonly text: string | undefined;
  /** Text with the references written out; undefined for a schema without references. */
  readonly resolved: string | undefined;
}

const VERSION_PROPERTY = 'confluent:version';

function withoutVersion(metadata: Json | undefined): Json | undefined {
  if (typeof metadata !== 'object' || metadata === null || Array.isArray(metadata)) return metadata;
  const { properties, ...others } = metadata as { readonly [key: string]: Json };
  if (typeof properties !== 'object' || properties === null || Array.isArray(properties)) return metadata;
  const { [VERSION_PROPERTY]: _, ...rest } = properties as { readonly [key: string]: Json };
  const kept = Object.keys(rest).length === 0 ? others : { ...others, properties: rest };
  return Object.keys(kept).length === 0 ? undefined : kept;
}

/** Key of everything of a content but its text: equal exactly where two contents are equal in it.
 *  Ignores the version number that registration writes into the metadata, and spellings of metadata
 *  and rules that a log may hold but that are not written here. A digest where there are metadata
 *  or rules, because keys are kept.
 */
function besideKey(content: SchemaContent, references: boolean): string {
  const metadata = withoutVersion(sameForm(content.metadata, readMetadata));
  const ruleSet = sameForm(content.ruleSet, readRuleSet);
  const key = side({
    format: content.format,
    text: '',
    references: references ? content.references : [],
    ...(metadata === undefined ? {} : { metadata }),
    ...(ruleSet === undefined ? {} : { ruleSet }),
  });
  return metadata === undefined && ruleSet === undefined
    ? key
    : createHash('sha256').update(key).digest('base64');
}

/** Content that would store the sent text verbatim. Parses nothing, so it also finds texts that no
 *  parser here accepts. @throws invalid_schema for a reference to the latest version of a subject
 *  without versions
 */
export function verbatimContent(state: State, subject: string, input: SchemaInput): SchemaContent {
  const references = (input.references ?? []).map((reference) => withVersion(state, subject, reference));
  return contentOf({ ...input, format: input.format ?? 'AVRO' }, input.text, references);
}

function contentOf(
  { format, metadata, ruleSet }: SchemaInput & { readonly format: string },
  text: string,
  references: readonly Reference[],
): SchemaContent {
  return {
    // A log may hold an unknown format; it is compared like any other.
    format: format as SchemaFormat,
    text,
    references,
    ...(metadata === undefined || metadata === null ? {} : { metadata }),
    ...(ruleSet === undefined || ruleSet === null ? {} : { ruleSet }),
  };
}

export class Parser {
  private readonly logger: Logger;
  private readonly parsed = new ParsedSchemas();
  private readonly spellings = new WeakMap<Text, Spelling>();
  /** Keys of metadata and rules, by whether they include the references. */
  private readonly besides = { true: new WeakMap<Text, string>(), false: new WeakMap<Text, string>() };
  private readonly reported = new Set<string>();
  readonly checks: Checks;

  /** True: new Avro texts are validated unless a setting says otherwise. */
  readonly validatesNewSchemas: boolean;

  constructor(logger: Logger, checks: Checks, options: { readonly validatesNewSchemas: boolean }) {
    this.logger = logger;
    this.checks = checks;
    this.validatesNewSchemas = options.validatesNewSchemas;
  }

  /** @throws Deferred, invalid_schema, schema_too_large */
  prepare(state: State, subject: string, input: SchemaInput, how: HowParsed, memo: Memo = {}): Prepared {
    const format = input.format ?? 'AVRO';
    if (!isSchemaFormat(format)) {
      throw registryError('invalid_schema', `Invalid schema type ${format}`, {
        next: `give one of ${SCHEMA_FORMATS.join(', ')}`,
      });
    }
    if (input.text.trim() === '') throw registryError('invalid_schema', 'Empty schema');
    const given = (input.references ?? []).map((reference) => withVersion(state, subject, reference));
    const references = how.normalize ? normalReferences(given) : given;
    const resolved = resolve(state, subject, references);
    const asked = [how.normalize, how.lenient, how.unvalidated, how.looseImports].join();
    const key = `${format} ${asked} ${resolved.key} ${input.text}`;
    const source: SchemaSource = { format, text: input.text, ...how, references: resolved.references };
    const tree = (): Schema | undefined => (memo.key === key ? memo.schema : this.parsed.get(key));
    const read = (): Schema => {
      const schema = tree() ?? this.parse(key, source);
      memo.key = key;
      memo.schema = schema;
      return schema;
    };
    const isHere = tree() !== undefined || this.checks.takes(charsOf(source));
    const { text, lookupText = text } = isHere ? read() : this.checks.text({ key, source });
    return {
      // A text that cannot be parsed was refused above.
      origin: { key, source, tree, read, report: () => undefined },
      content: contentOf({ ...input, format }, text, references),
      lookupText,
    };
  }

  private parse(key: string, source: SchemaSource): Schema {
    const schema = readSource(source);
    this.parsed.set(key, schema);
    return schema;
  }

  /** Origin of a stored schema, which is read as leniently as possible.
   *  @param gaps true: omits references that no longer exist; false: refuses them
   *  @throws invalid_schema
   */
  private stored(state: State, subject: string, text: Text, gaps: boolean): Origin {
    const { content } = text;
    const { format } = content;
    const resolved = resolve(state, subject, content.references, gaps);
    const key = `${text.key} ${resolved.key}`;
    if (!isSchemaFormat(format)) throw registryError('invalid_schema', `Invalid schema type ${format}`);
    const { references } = resolved;
    const sourceOf = (): SchemaSource => ({
      format,
      text: content.text,
      references,
      lenient: true,
      normalize: false,
    });
    const tree = (): Schema | undefined => this.parsed.get(key);
    const report = (why: string): void => this.report(subject, text, why);
    const read = (): Schema | undefined =>
      this.orReported(subject, text, () => tree() ?? this.parse(key, sourceOf()));
    return {
      key,
      get source() {
        return sourceOf();
      },
      tree,
      read,
      report,
    };
  }

  /** Origin of a stored schema; undefined when it cannot be read here, which is logged once. */
  storedOrNone(state: State, subject: string, text: Text, gaps = false): Origin | undefined {
    return this.orReported(subject, text, () => this.stored(state, subject, text, gaps));
  }

  private orReported<T>(subject: string, text: Text, read: () => T): T | undefined {
    try {
      return read();
    } catch (thrown) {
      if (thrown instanceof Deferred) throw thrown;
      this.report(subject, text, (thrown as Error).message);
      return undefined;
    }
  }

  private report(subject: string, text: Text, error: string): void {
    if (this.reported.has(text.key)) return;
    this.reported.add(text.key);
    this.logger.warn(
      { subject, guid: text.guid, error },
      isSchemaFormat(text.content.format)
        ? 'a stored schema cannot be parsed; it is served unchanged and no schema is compatible with it'
        : 'a stored schema has an unknown type; it is served unchanged and no schema is compatible with it',
    );
  }

  /** Stored text in another form. @throws Deferred, invalid_schema */
  textOf(state: State, subject: string, text: Text, form: TextForm): string {
    const origin = this.stored(state, subject, text, false);
    const tree = origin.tree();
    if (tree !== undefined) return schemaText(tree, form);
    return this.checks.text(origin, [form]).forms[0] as string;
  }

  /** Index of the newest version with this content, in any spelling; -1 without one. @throws
   *  Deferred
   */
  find(
    state: State,
    subject: string,
    prepared: Prepared,
    versions: readonly { readonly text: Text }[],
  ): number {
    const { content, lookupText } = prepared;
    const exact = state.newestWith(content, versions);
    if (exact >= 0) return exact;
    const own = new Map<boolean, string>();
    const ownKey = (references: boolean): string => {
      const key = own.get(references) ?? besideKey(content, references);
      own.set(references, key);
      return key;
    };
    return versions.findLastIndex(({ text }) => {
      if (text.content.format !== content.format) return false;
      const written = content.references.length === 0 && text.content.references.length > 0;
      const spelling = this.spelling(state, subject, text);
      if (spelling === undefined) return false;
      const isSame = written
        ? spelling.resolved === content.text
        : (spelling.text ?? text.content.text) === lookupText;
      if (!isSame) return false;
      return this.besideKeyOf(text, !written) === ownKey(!written);
    });
  }

  /** Key of everything of a stored content but its text. @throws Deferred */
  private besideKeyOf(text: Text, references: boolean): string {
    const { content } = text;
    const entries = contractEntries(content.metadata) + contractEntries(content.ruleSet);
    if (entries === 0) return besideKey(content, references);
    const keys = this.besides[`${references}`];
    let key = keys.get(text);
    if (key !== undefined) return key;
    // An entry costs about as much as a character of a text that is parsed.
    const cost = Math.min(entries, INLINE_CHARS_MAX / 2);
    if (!this.checks.takes(cost)) this.checks.pauseFor(cost);
    key = besideKey(content, references);
    keys.set(text, key);
    return key;
  }

  private spelling(state: State, subject: string, text: Text): Spelling | undefined {
    const known = this.spellings.get(text);
    if (known !== undefined) return known;
    const origin = this.storedOrNone(state, subject, text);
    const isAlone = text.content.references.length === 0;
    const read = origin && this.orReported(subject, text, () => this.spelled(origin, isAlone));
    if (read === undefined) return undefined;
    const spelling: Spelling = {
      text: read.text === text.content.text ? undefined : read.text,
      resolved: read.resolved,
    };
    this.spellings.set(text, spelling);
    return spelling;
  }

  private spelled(
    origin: Origin,
    isAlone: boolean,
  ): { readonly text: string; readonly resolved: string | undefined } {
    const spelled = (schema: Schema) => ({
      text: lookupTextOf(schema),
      resolved: isAlone ? undefined : schemaText(schema, 'resolved'),
    });
    const schema = origin.tree();
    if (schema !== undefined) return spelled(schema);
    const { key, source } = origin;
    const chars = charsOf(source);
    if (this.checks.takes(chars)) return spelled(this.parse(key, source));
    this.checks.pauseFor(chars);
    const { text, lookupText = text, forms } = this.checks.text(origin, isAlone ? [] : ['resolved']);
    return { text: lookupText, resolved: forms[0] };
  }
}

/** Sorts references by subject and version and removes duplicates: the references of a normalized
 *  schema have no order. Source: normalize() of the schemas of confluentinc/schema-registry, and
 *  SchemaReference.compareTo (facts only).
 */
function normalReferences(references: readonly Reference[]): readonly Reference[] {
  const met = new Map(references.map((one) => [JSON.stringify([one.name, one.subject, one.version]), one]));
  const order = (a: Reference, b: Reference): number =>
    a.subject < b.subject ? -1 : a.subject > b.subject ? 1 : a.version - b.version;
  return [...met.values()].sort(order);
}

/** Replaces version -1 by the number of the latest version. */
function withVersion(state: State, subject: string, reference: Reference): Reference {
  const { name, subject: to, version } = reference;
  if (version !== -1) return { name, subject: to, version };
  const latest = state.latest(qualifyWith(subject, to));
  if (latest === undefined)
    throw registryError('invalid_schema', `No schema reference found for subject "${to}" and version -1`);
  return { name, subject: to, version: latest.stored.version };
}

/** Placeholder subject of a context, for resolving references in that context. */
export function anySubjectOf(context: string): string {
  return qualify({ context, name: '_' });
}
