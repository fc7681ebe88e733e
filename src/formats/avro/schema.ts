/** Avro schemas for the registry: converts a text and its references to the tree, and to the texts
 *  that are stored and shown.
 *
 *  References are read first, in their order and each once, after the references that they have
 *  themselves; their types are then known by their full names. Source: AvroSchema.java of
 *  confluentinc/schema-registry, for the order. */

import { REFERENCE_COUNT_MAX, REFERENCE_DEPTH_MAX, type ResolvedReference } from '../content.ts';
import { formatError } from '../errors.ts';
import { SCHEMA_TEXT_CHARS_MAX } from '../format.ts';
import { type JsonNode, JsonTextError, readJson } from '../json/text.ts';
import type { ParseOptions } from '../options.ts';
import {
  type AvroDefinition,
  AvroReader,
  type AvroReadOptions,
  type AvroScope,
  avroError,
  emptyScope,
  halfPairAt,
} from './syntax/reader.ts';
import { AvroPrinter } from './syntax/text.ts';
import { type AvroNode, isAvroPrimitive } from './syntax/tree.ts';

/** Characters of a text that is read leniently: no registry stores a longer one. */
const LENIENT_TEXT_CHARS_MAX = 16 << 20;
/** Characters of all texts that one schema includes by references. */
const REFERENCE_CHARS_MAX = 16 << 20;
/** Number of reference names that a message lists. */
const SHOWN_REFERENCES_MAX = 10;

/** Options for the texts of references, which were accepted at registration. */
const LENIENT = { lenient: true, unvalidated: true };

interface Parsed {
  readonly json: JsonNode;
  readonly tree: AvroNode;
  readonly scope: AvroScope;
  /** Types that the references define. */
  readonly foreign: ReadonlyMap<string, AvroDefinition>;
}

function jsonOf(text: string, lenient: boolean, from: string | undefined): JsonNode {
  try {
    const json = readJson(text, { comments: true, repeatedKeys: lenient });
    const half = lenient ? undefined : halfPairAt(json);
    if (half !== undefined) throw new JsonTextError('it holds half of a surrogate pair', half);
    return json;
  } catch (thrown) {
    if (!(thrown instanceof JsonTextError)) throw thrown;
    // A primitive schema may be written without quotes.
    const word = text.trim();
    if (isAvroPrimitive(word) && word !== 'null')
      return { kind: 'string', at: text.indexOf(word), value: word };
    throw avroError(text, thrown.at, `the text is not JSON: ${thrown.message}`, from, thrown);
  }
}

/** Compares the definitions of two types shallowly: the types inside were compared before, so their
 *  names are enough. */
function isSame(scope: AvroScope): (one: AvroDefinition, other: AvroDefinition) => boolean {
  const text = ({ json }: AvroDefinition): string =>
    new AvroPrinter(scope.notes, { known: [], shallow: true }).print(json);
  return (one, other) => text(one) === text(other);
}

function nameList(references: readonly ResolvedReference[]): string {
  if (references.length === 0) return 'it has no references';
  const shown = references
    .slice(0, SHOWN_REFERENCES_MAX)
    .map(({ name, subject, version }) => `${name} (${subject}, version ${version})`);
  const more = references.length - shown.length;
  return `its references are ${shown.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

/** References in dependency order, each once. @throws invalid_schema, schema_too_large */
function inOrder(references: readonly ResolvedReference[]): readonly ResolvedReference[] {
  const order: ResolvedReference[] = [];
  const met = new Map<string, ResolvedReference>();
  let chars = 0;
  const visit = (list: readonly ResolvedReference[], depth: number): void => {
    if (list.length > 0 && depth > REFERENCE_DEPTH_MAX)
      throw formatError(
        'invalid_schema',
        `invalid Avro schema: its references are nested deeper than ${REFERENCE_DEPTH_MAX}`,
      );
    for (const reference of list) {
      // A subject name may mean different subjects in different contexts, so the text is compared
      // too.
      const key = JSON.stringify([reference.subject, reference.version]);
      const known = met.get(key);
      if (known !== undefined && known.text === reference.text) continue;
      met.set(known === undefined ? key : `${key}${met.size}`, reference);
      if (met.size > REFERENCE_COUNT_MAX)
        throw formatError(
          'invalid_schema',
          `invalid Avro schema: it refers to more than ${REFERENCE_COUNT_MAX} schemas`,
        );
      chars += reference.text.length;
      if (chars > REFERENCE_CHARS_MAX)
        throw formatError(
          'schema_too_large',
          `the schemas that it refers to have more than ${REFERENCE_CHARS_MAX} characters`,
        );
      visit(reference.references, depth + 1);
      order.push(reference);
    }
  };
  visit(references, 1);
  return order;
}

function read(
  text: string,
  references: readonly ResolvedReference[],
  how: Pick<AvroReadOptions, 'lenient' | 'unvalidated'>,
): Parsed {
  const scope = emptyScope();
  const options = { isSame: isSame(scope) };
  for (const reference of inOrder(references)) {
    const { name } = reference;
    if (reference.format !== 'AVRO')
      throw formatError(
        'invalid_schema',
        `invalid Avro schema: the reference ${JSON.stringify(name)} is ${reference.format}, not AVRO`,
      );
    new AvroReader(reference.text, scope, {
      ...options,
      ...LENIENT,
      from: name,
      references: nameList(reference.references),
    }).read(jsonOf(reference.text, true, name));
  }
  const foreign = new Map(scope.named);
  const json = jsonOf(text, how.lenient, undefined);
  const tree = new AvroReader(text, scope, {
    ...options,
    ...how,
    from: undefined,
    references: nameList(references),
  }).read(json);
  return { json, tree, scope, foreign };
}

/** Parses an Avro schema. @throws invalid_schema, schema_too_large */
export function parseAvroSchema(
  source: string,
  options: ParseOptions,
): { readonly text: string; readonly lookupText?: string; readonly tree: AvroNode } {
  const lenient = options.lenient ?? false;
  const most = lenient ? LENIENT_TEXT_CHARS_MAX : SCHEMA_TEXT_CHARS_MAX;
  if (source.length > most)
    throw formatError('schema_too_large', `the schema has ${source.length} characters; the most is ${most}`);
  const how = { lenient, unvalidated: options.unvalidated ?? false };
  const { json, tree, scope, foreign } = read(source, options.references ?? [], how);
  const printer = new AvroPrinter(scope.notes, {
    known: foreign.keys(),
    normalize: options.normalize ?? false,
  });
  const text = printer.print(json);
  // Properties have no order in a comparison on the JVM, although it prints them in the order of
  // the text.
  const lookupText = printer.hasOpenOrder
    ? new AvroPrinter(scope.notes, { known: foreign.keys(), sortProperties: true }).print(json)
    : text;
  // Equal texts share one string, to save memory.
  return { text: text === source ? source : text, ...(lookupText === text ? {} : { lookupText }), tree };
}

/** Text with the types of its references inlined. @throws invalid_schema */
export function resolvedAvroText(text: string, references: readonly ResolvedReference[]): string {
  if (references.length === 0) return text;
  const { json, scope, foreign } = read(text, references, LENIENT);
  return new AvroPrinter(scope.notes, { known: [], inline: foreign }).print(json);
}
