/** Candidate changes of an Avro schema that may remove a finding, the smallest first. */
import {
  type AvroEnumNode,
  type AvroField,
  type AvroNode,
  type AvroRecordNode,
  avroTypeName,
} from '../../../formats/avro/syntax/tree.ts';
import {
  type JsonArray,
  type JsonNode,
  type JsonObject,
  memberOf,
  printString,
  readJson,
} from '../../../formats/json/text.ts';
import type { AvroSchema } from '../../../formats/schema.ts';
import type { Change, Edit, FixContext } from './change.ts';
import { indentAt, jsonSpan } from './spans.ts';

/** Most types inside a generated default. */
const DEFAULT_DEPTH_MAX = 8;
/** Most types of one schema that are visited. */
const NODES_MAX = 20_000;

interface Found {
  readonly field: AvroField | undefined;
  readonly node: AvroNode | undefined;
  /** Record that has the field. */
  readonly record: AvroRecordNode | undefined;
}

/** Maps places in the schema's own text to types and fields. Named types are at their definition.
 */
function placesOf(schema: AvroSchema): ReadonlyMap<number, Found> {
  const places = new Map<number, Found>();
  const seen = new Set<AvroNode>();
  const open: Found[] = [{ field: undefined, node: schema.tree, record: undefined }];
  for (let one = open.pop(); one !== undefined && seen.size < NODES_MAX; one = open.pop()) {
    const { node } = one;
    if (node === undefined || seen.has(node)) continue;
    seen.add(node);
    if (node.from === undefined && !places.has(node.at)) places.set(node.at, one);
    const inner = (next: AvroNode, field?: AvroField): void => {
      const record = node.kind === 'record' ? node : undefined;
      open.push({ field, node: next, record });
      if (field !== undefined && node.from === undefined)
        places.set(field.at, { field, node: field.type, record });
    };
    if (node.kind === 'record') for (const field of node.fields) inner(field.type, field);
    else if (node.kind === 'array') inner(node.items);
    else if (node.kind === 'map') inner(node.values);
    else if (node.kind === 'union') for (const branch of node.branches) inner(branch);
  }
  return places;
}

/** Returns an empty value of the type as JSON, for a generated default. */
function emptyValue(node: AvroNode, depth = 0): string | undefined {
  if (depth > DEFAULT_DEPTH_MAX) return undefined;
  switch (node.kind) {
    case 'primitive':
      if (node.type === 'null') return 'null';
      if (node.type === 'boolean') return 'false';
      if (node.type === 'string' || node.type === 'bytes') return '""';
      return '0';
    case 'enum':
      return node.symbols[0] === undefined ? undefined : printString(node.symbols[0]);
    case 'fixed':
      return `"${'\\u0000'.repeat(Math.min(node.size, 64))}"`;
    case 'array':
      return '[]';
    case 'map':
      return '{}';
    case 'union':
      return node.branches[0] === undefined ? undefined : emptyValue(node.branches[0], depth + 1);
    case 'record': {
      const parts: string[] = [];
      for (const field of node.fields) {
        const value = emptyValue(field.type, depth + 1);
        if (value === undefined) return undefined;
        parts.push(`${printString(field.name)}: ${value}`);
      }
      return `{${parts.join(', ')}}`;
    }
  }
}

class Text {
  readonly source: string;
  private json: JsonNode | undefined;

  constructor(source: string) {
    this.source = source;
  }

  /** Returns the JSON value that begins at `at`. */
  private value(at: number): JsonNode | undefined {
    this.json ??= readJson(this.source, { comments: true, repeatedKeys: true });
    const open: JsonNode[] = [this.json];
    for (let one = open.pop(); one !== undefined; one = open.pop()) {
      if (one.at === at) return one;
      if (one.kind === 'object') for (const { value } of one.members.values()) open.push(value);
      else if (one.kind === 'array') for (const item of one.items) open.push(item);
    }
    return undefined;
  }

  object(at: number): JsonObject | undefined {
    const value = this.value(at);
    return value?.kind === 'object' ? value : undefined;
  }

  list(at: number): JsonArray | undefined {
    const value = this.value(at);
    return value?.kind === 'array' ? value : undefined;
  }

  slice(at: number): string {
    const span = jsonSpan(this.source, at);
    return this.source.slice(span.at, span.end);
  }

  replace(at: number, text: string): Edit {
    return { at, end: jsonSpan(this.source, at).end, text };
  }

  /** Adds a member, or replaces its value. */
  member(object: JsonObject, key: string, value: string): Edit {
    const held = memberOf(object, key);
    if (held !== undefined) return this.replace(held.at, value);
    const members = [...object.members.values()];
    const last = members[members.length - 1];
    if (last === undefined) return { at: object.at + 1, end: object.at + 1, text: `"${key}": ${value}` };
    const { end } = jsonSpan(this.source, last.value.at);
    // Keeps one member a line if the others are written so.
    const apart = this.source.slice(object.at, last.keyAt).includes('\n');
    const tight = /[\]}"\w],"/.test(this.source.slice(object.at, last.keyAt + 1));
    const gap = apart ? `\n${indentAt(this.source, last.keyAt)}` : tight ? '' : ' ';
    return { at: end, end, text: `,${gap}"${key}":${tight ? '' : ' '}${value}` };
  }

  /** Adds an item at its index among the others. */
  item(list: JsonNode, index: number, text: string): Edit | undefined {
    if (list.kind !== 'array') return undefined;
    const before = list.items[Math.min(index, list.items.length) - 1];
    const first = list.items[0];
    const near = before ?? first;
    if (near === undefined) return { at: list.at + 1, end: list.at + 1, text };
    const apart = this.source.slice(list.at, near.at).includes('\n');
    const gap = apart ? `\n${indentAt(this.source, near.at)}` : ' ';
    if (before === undefined) return { at: near.at, end: near.at, text: `${text},${gap}` };
    const { end } = jsonSpan(this.source, before.at);
    return { at: end, end, text: `,${gap}${text}` };
  }

  /** Removes a member with its comma. */
  without(object: JsonObject, key: string): Edit | undefined {
    const member = object.members.get(key);
    if (member === undefined) return undefined;
    const { end } = jsonSpan(this.source, member.value.at);
    const comma = /^\s*,\s*/.exec(this.source.slice(end))?.[0];
    if (comma !== undefined) return { at: member.keyAt, end: end + comma.length, text: '' };
    const lead = /,\s*$/.exec(this.source.slice(0, member.keyAt))?.[0] ?? '';
    return { at: member.keyAt - lead.length, end, text: '' };
  }
}

const quoted = (name: string): string => printString(name);
const aliasList = (object: JsonObject | undefined, more: string): string => {
  const held = object === undefined ? undefined : memberOf(object, 'aliases');
  const names =
    held?.kind === 'array' ? held.items.flatMap((one) => (one.kind === 'string' ? one.value : [])) : [];
  return `[${[...names, more].map(quoted).join(', ')}]`;
};

export function* avroChanges(context: FixContext): Generator<Change> {
  const { finding, direction, proposed, other } = context;
  if (proposed.format !== 'AVRO' || other?.format !== 'AVRO') return;
  const reads = direction === 'BACKWARD';
  const [here, there] = reads ? [finding.reader, finding.writer] : [finding.writer, finding.reader];
  if (here === undefined || !('at' in here) || here.from !== undefined) return;
  const own = placesOf(proposed).get(here.at);
  if (own === undefined) return;
  const theirs =
    there === undefined || !('at' in there) || there.from !== undefined
      ? undefined
      : placesOf(other).get(there.at);
  const text = new Text(proposed.source);
  const old = new Text(other.source);
  // The place of a missing field is the place of the record that lacks it, or of the field
  // that replaced it.
  const holder = (found: Found | undefined): AvroRecordNode | undefined =>
    found?.field !== undefined ? found.record : found?.node?.kind === 'record' ? found.node : undefined;
  if (reads && own.field !== undefined) yield* ownField(text, own.field, own.record, holder(theirs));
  const record = holder(own);
  if (!reads && theirs?.field !== undefined && record !== undefined) {
    if (own.field !== undefined) yield* renamedBack(text, own.field, theirs.field);
    yield* restoredField(text, record, old, theirs.field, theirs.record);
  }
  const mine = own.node;
  const its = theirs?.node;
  if (mine?.kind === 'enum' && its?.kind === 'enum') yield* symbols(text, mine, its, reads);
  if (mine !== undefined && its !== undefined && 'name' in mine && 'name' in its)
    yield* names(text, mine, its, reads);
  // A type outside of a union is restored; a type of a union is added as a branch.
  const fromUnion = finding.route?.step.kind === 'branch' || mine?.kind === 'union';
  if (fromUnion && mine !== undefined && its !== undefined && its.from === undefined)
    yield* branches(text, mine, old, its);
  if (own.field !== undefined) yield* fields(text, own.field, own.record, old, theirs?.field);
  if (mine !== undefined && its !== undefined && mine.from === undefined && its.from === undefined) {
    const words = `restore the type ${avroTypeName(its)}`;
    yield { words, edits: [text.replace(mine.at, old.slice(its.at))] };
  }
}

/** Changes for a field of the proposed reader that an earlier writer does not write. */
function* ownField(
  text: Text,
  field: AvroField,
  record: AvroRecordNode | undefined,
  writer: AvroRecordNode | undefined,
): Generator<Change> {
  const object = text.object(field.at);
  if (object === undefined) return;
  if (writer !== undefined && record !== undefined) {
    const read = new Set(record.fields.flatMap((one) => [one.name, ...one.aliases]));
    const unread = writer.fields.filter(
      (one) => !read.has(one.name) && avroTypeName(one.type) === avroTypeName(field.type),
    );
    // The only unread written field of the same type is most likely the old name of this field.
    const [only] = unread;
    if (only !== undefined && unread.length === 1) {
      yield {
        words: `if "${field.name}" is "${only.name}" renamed, add "aliases": ["${only.name}"]; if it is another field, add a "default"`,
        edits: [text.member(object, 'aliases', aliasList(object, only.name))],
      };
    }
  }
  const value = emptyValue(field.type);
  if (value !== undefined) {
    yield {
      words: `add "default": ${value} to the field "${field.name}", or another value that stands for what was not written`,
      edits: [text.member(object, 'default', value)],
    };
  }
}

function* renamedBack(text: Text, field: AvroField, theirs: AvroField): Generator<Change> {
  const object = text.object(field.at);
  if (object === undefined || field.name === theirs.name) return;
  yield {
    words: `give "${field.name}" its name "${theirs.name}" back: earlier readers look for it`,
    edits: [text.member(object, 'name', quoted(theirs.name))],
  };
}

/** Changes for a field that earlier readers need and the proposed writer does not write. */
function* restoredField(
  text: Text,
  record: AvroRecordNode,
  old: Text,
  field: AvroField,
  holder: AvroRecordNode | undefined,
): Generator<Change> {
  const object = text.object(record.at);
  const list = object === undefined ? undefined : memberOf(object, 'fields');
  if (list === undefined) return;
  const index = holder?.fields.indexOf(field) ?? record.fields.length;
  const edit = text.item(list, index < 0 ? record.fields.length : index, old.slice(field.at));
  if (edit === undefined) return;
  const words = `put the field "${field.name}" back: earlier readers have no default for it`;
  yield { words, edits: [edit] };
}

function* symbols(text: Text, mine: AvroEnumNode, its: AvroEnumNode, reads: boolean): Generator<Change> {
  const object = text.object(mine.at);
  const list = object === undefined ? undefined : memberOf(object, 'symbols');
  if (object === undefined || list?.kind !== 'array') return;
  const known = new Set(mine.symbols);
  const gone = its.symbols.filter((symbol) => !known.has(symbol));
  if (reads && gone.length > 0) {
    const edit = text.item(list, list.items.length, gone.map(quoted).join(', '));
    if (edit !== undefined)
      yield {
        words: `put ${gone.map(quoted).join(', ')} back into the symbols of ${mine.name}`,
        edits: [edit],
      };
  }
  if (!reads) {
    const held = new Set(its.symbols);
    const rest = mine.symbols.filter((symbol) => held.has(symbol));
    const unknownSymbols = mine.symbols.filter((symbol) => !held.has(symbol));
    if (rest.length > 0 && unknownSymbols.length > 0) {
      yield {
        words: `leave ${unknownSymbols.map(quoted).join(', ')} out until every reader has it, or has a "default" symbol for what it does not know`,
        edits: [text.replace(list.at, `[${rest.map(quoted).join(', ')}]`)],
      };
    }
  }
}

function* names(
  text: Text,
  mine: AvroNode & { readonly name: string },
  its: AvroNode & { readonly name: string },
  reads: boolean,
): Generator<Change> {
  const object = text.object(mine.at);
  if (object === undefined || mine.name === its.name) return;
  if (reads)
    yield {
      words: `add "aliases": ["${its.name}"] to ${mine.name}`,
      edits: [text.member(object, 'aliases', aliasList(object, its.name))],
    };
  yield {
    words: `restore the name ${its.name}`,
    edits: [text.member(object, 'name', quoted(its.name))],
  };
}

/** Changes for a type that only one of the unions has. */
function* branches(text: Text, mine: AvroNode, old: Text, its: AvroNode): Generator<Change> {
  if (mine.from !== undefined || its.kind === 'union') return;
  const branch = old.slice(its.at);
  const list = mine.kind === 'union' ? text.list(mine.at) : undefined;
  const edit =
    list === undefined
      ? text.replace(mine.at, `[${branch}, ${text.slice(mine.at)}]`)
      : text.item(list, list.items.length, branch);
  if (edit !== undefined) yield { words: `add the branch ${avroTypeName(its)} to the union`, edits: [edit] };
}

/** Changes for a field that both schemas have. */
function* fields(
  text: Text,
  field: AvroField,
  record: AvroRecordNode | undefined,
  old: Text,
  theirs: AvroField | undefined,
): Generator<Change> {
  const object = text.object(field.at);
  if (object === undefined) return;
  const type = memberOf(object, 'type');
  const before = theirs === undefined ? undefined : old.object(theirs.at);
  const oldType = before === undefined ? undefined : memberOf(before, 'type');
  if (type !== undefined && oldType !== undefined) {
    const was = old.slice(oldType.at);
    const shown = was.length > 60 ? `${was.slice(0, 60)}…` : was;
    yield {
      words: `restore the type ${shown} of the field "${field.name}"`,
      edits: [text.replace(type.at, was)],
    };
  }
  const aliases = text.without(object, 'aliases');
  if (aliases !== undefined)
    yield { words: `remove the aliases of the field "${field.name}"`, edits: [aliases] };
  if (theirs !== undefined)
    yield {
      words: `restore the field "${theirs.name}" as it was`,
      edits: [text.replace(field.at, old.slice(theirs.at))],
    };
  const value = emptyValue(field.type);
  if (record !== undefined && value !== undefined)
    yield {
      words: `set "default": ${value} for the field "${field.name}"`,
      edits: [text.member(object, 'default', value)],
    };
}
