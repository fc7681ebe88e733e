/** Candidate changes of a Protobuf schema that may remove a finding, the smallest first. */

import { FIELD_NUMBER_MAX } from '../../../formats/protobuf/syntax/ast.ts';
import type { ProtoEnum, ProtoField, ProtoFile, ProtoMessage } from '../../../formats/protobuf/tree.ts';
import type { ProtoSchema } from '../../../formats/schema.ts';
import type { Finding, SchemaPlace } from '../../compatibility/finding.ts';
import type { Change, Edit, FixContext } from './change.ts';
import { behind, indentAt, offsetOf, protoSpan } from './spans.ts';

interface Found {
  readonly message: ProtoMessage | undefined;
  readonly field: ProtoField | undefined;
  readonly enumeration: ProtoEnum | undefined;
}

/** Field numbers that the Protobuf language reserves. */
const RESERVED_FROM = 19_000;
const RESERVED_TO = 19_999;
/** Matches inside comments too; a change there removes no finding and is rejected. */
const PACKAGE = /\bpackage\s+([\w.]+)\s*;/g;
const LABEL = /(?:optional|required|repeated)\s+/y;
const NUMBER = /=\s*(0[xX][0-9a-fA-F]+|\d+)/g;

const keyOf = ({ line, column }: { readonly line: number; readonly column: number }): string =>
  `${line}:${column}`;

/** Maps places in the schema's own text to messages, fields and enums. */
function placesOf(tree: ProtoFile): ReadonlyMap<string, Found> {
  const places = new Map<string, Found>();
  for (const message of tree.messages) {
    places.set(keyOf(message.at), { message, field: undefined, enumeration: undefined });
    for (const field of message.fields) {
      const { enumeration } = field;
      if (field.at.from === undefined) places.set(keyOf(field.at), { message, field, enumeration });
      if (enumeration === undefined || enumeration.at.from !== undefined) continue;
      const found = { message: undefined, field: undefined, enumeration };
      places.set(keyOf(enumeration.at), found);
      for (const number of enumeration.values.keys()) places.set(keyOf(enumeration.placeOf(number)), found);
    }
  }
  return places;
}

/** True for source text, false for a descriptor. */
const isText = ({ source }: ProtoSchema): boolean => /[{;]/.test(source);

class Text {
  readonly source: string;

  constructor(schema: ProtoSchema) {
    this.source = schema.source;
  }

  private span(at: { readonly line: number; readonly column: number }) {
    return protoSpan(this.source, offsetOf(this.source, at));
  }

  statement(at: { readonly line: number; readonly column: number }): string {
    const { at: from, end } = this.span(at);
    return this.source.slice(from, end);
  }

  replace(at: { readonly line: number; readonly column: number }, text: string): Edit {
    const { at: from, end } = this.span(at);
    return { at: from, end, text };
  }

  /** Removes a statement, with its line if nothing else is on it. */
  removed(place: { readonly line: number; readonly column: number }): Edit {
    const { at, end } = this.span(place);
    const before = /\n[ \t]*$/.exec(this.source.slice(0, at))?.[0];
    const alone = before !== undefined && /^[ \t]*\r?\n/.test(this.source.slice(end));
    return { at: alone ? at - before.length : at, end, text: '' };
  }

  /** Replaces the field's number. */
  number(field: ProtoField, number: number): Edit | undefined {
    const { at, end } = this.span(field.at);
    const statement = this.source.slice(at, end);
    for (const match of statement.matchAll(NUMBER)) {
      if (Number(match[1]) !== field.number) continue;
      const from = at + match.index + match[0].length - (match[1] as string).length;
      return { at: from, end: at + match.index + match[0].length, text: String(number) };
    }
    return undefined;
  }

  /** Returns label and type, up to the name. */
  head(field: ProtoField): { readonly at: number; readonly end: number; readonly text: string } | undefined {
    const { at, end } = this.span(field.at);
    const statement = this.source.slice(at, end);
    const name = new RegExp(`\\b${field.name}\\s*=`).exec(statement);
    if (name === null) return undefined;
    return { at, end: at + name.index, text: statement.slice(0, name.index) };
  }

  label(field: ProtoField): string {
    const head = this.head(field)?.text ?? '';
    LABEL.lastIndex = 0;
    return LABEL.exec(head)?.[0] ?? '';
  }

  /** Inserts a statement as the first one in the braces of the statement at `at`. */
  inside(at: { readonly line: number; readonly column: number }, statement: string): Edit | undefined {
    const begin = offsetOf(this.source, at);
    const open = behind(this.source, begin, '{');
    if (open === undefined) return undefined;
    const rest = this.source.slice(open);
    const next = /^[ \t]*\n([ \t]*)\S/.exec(rest);
    const indent =
      next === null || next[1] === '' ? `${indentAt(this.source, begin)}  ` : (next[1] as string);
    const lines = statement.replace(/\n[ \t]*/g, (gap) => gap);
    return { at: open, end: open, text: `\n${indent}${lines}${/^[ \t]*\n/.test(rest) ? '' : '\n'}` };
  }

  /** Appends a statement to the file. */
  last(statement: string): Edit {
    const end = this.source.length;
    return { at: end, end, text: `${this.source.endsWith('\n') ? '' : '\n'}\n${statement}\n` };
  }
}

const isLine = (place: SchemaPlace | undefined): place is Extract<SchemaPlace, { readonly line: number }> =>
  place !== undefined && 'line' in place && place.from === undefined;

function freeNumber(message: ProtoMessage, all: readonly ProtoFile[]): number | undefined {
  let most = 0;
  for (const tree of all) {
    const held = tree.byName.get(message.name);
    if (held === undefined) continue;
    for (const { number } of held.fields) most = Math.max(most, number);
    for (const { to } of held.reserved.numbers) if (to < FIELD_NUMBER_MAX) most = Math.max(most, to);
  }
  const next = most + 1 >= RESERVED_FROM && most < RESERVED_TO ? RESERVED_TO + 1 : most + 1;
  return next <= FIELD_NUMBER_MAX ? next : undefined;
}

const reservedText = (message: ProtoMessage, number: number, name?: string): string => {
  const { numbers, names } = message.reserved;
  const statements: string[] = [];
  if (!numbers.some(({ from, to }) => from <= number && number <= to)) statements.push(`reserved ${number};`);
  if (name !== undefined && !names.includes(name) && !message.fields.some((field) => field.name === name))
    statements.push(`reserved "${name}";`);
  return statements.join(' ');
};

export function* protoChanges(context: FixContext): Generator<Change> {
  const { finding, direction, proposed, other } = context;
  if (proposed.format !== 'PROTOBUF' || !isText(proposed)) return;
  const [here, there] =
    direction === 'FORWARD' ? [finding.writer, finding.reader] : [finding.reader, finding.writer];
  const places = placesOf(proposed.tree);
  const own = isLine(here) ? places.get(keyOf(here)) : undefined;
  const text = new Text(proposed);
  const trees = [proposed, ...context.ever, ...(other === undefined ? [] : [other])].flatMap((schema) =>
    schema.format === 'PROTOBUF' ? [schema.tree] : [],
  );
  if (direction === 'HISTORY') {
    if (own?.message === undefined) return;
    if (own.field !== undefined) yield* anotherNumber(text, own.message, own.field, trees);
    else yield* keptNumber(text, own.message, finding);
    return;
  }
  if (other?.format !== 'PROTOBUF' || !isText(other)) return;
  yield* restoredPackage(text, proposed.tree, other.tree);
  const theirs = isLine(there) ? placesOf(other.tree).get(keyOf(there)) : undefined;
  const old = new Text(other);
  const gone = theirs?.message;
  if (gone !== undefined && theirs?.field === undefined && !proposed.tree.byName.has(gone.name))
    yield* restoredMessage(text, proposed.tree, old, gone);
  const message = own?.message ?? (gone === undefined ? undefined : proposed.tree.byName.get(gone.name));
  if (theirs?.field !== undefined && message !== undefined)
    yield* restoredNumber(text, message, old, theirs.field);
  if (own?.field !== undefined && theirs?.field !== undefined)
    yield* oneField(text, own.field, old, theirs.field);
  if (own?.field !== undefined && message !== undefined) {
    yield* independent(text, message, own.field);
    yield* optional(text, own.field);
    yield* anotherNumber(text, message, own.field, trees);
  }
  yield* enums(text, own?.enumeration, theirs?.enumeration);
}

/** Restores the package, which is a part of every message's full name. */
function* restoredPackage(text: Text, mine: ProtoFile, theirs: ProtoFile): Generator<Change> {
  const [now, was] = [mine, theirs].map((tree) => tree.link.root.node.package);
  if (now === was || now === undefined || was === undefined) return;
  for (const match of text.source.matchAll(PACKAGE)) {
    const end = match.index + match[0].length - 1;
    const at = match.index + match[0].lastIndexOf(now);
    if (match[1] === now)
      yield {
        words: `restore the package ${was}`,
        edits: [{ at, end: Math.min(end, at + now.length), text: was }],
      };
  }
}

/** Gives the field the next number that was never used, and reserves the old one. */
function* anotherNumber(
  text: Text,
  message: ProtoMessage,
  field: ProtoField,
  all: readonly ProtoFile[],
): Generator<Change> {
  const next = freeNumber(message, all);
  if (next === undefined) return;
  const edit = text.number(field, next);
  const kept = reservedText(message, field.number);
  if (edit === undefined) return;
  const reserved = kept === '' ? undefined : text.inside(message.at, kept);
  yield {
    words: `give "${field.name}" the next free number, ${next}${reserved === undefined ? '' : `, and add \`reserved ${field.number};\` so that no other field uses ${field.number} again`}`,
    edits: reserved === undefined ? [edit] : [reserved, edit],
  };
}

/** Reserves a removed number. */
function* keptNumber(text: Text, message: ProtoMessage, { place, path }: Finding): Generator<Change> {
  const number = Number(/\/([0-9]+)$/.exec(place ?? '')?.[1] ?? Number.NaN);
  if (!Number.isInteger(number)) return;
  const kept = reservedText(message, number, path.slice(path.lastIndexOf('.') + 1));
  const edit = kept === '' ? undefined : text.inside(message.at, kept);
  if (edit !== undefined)
    yield { words: `add \`${kept}\` so that no other field uses ${number} again`, edits: [edit] };
}

/** Moves a member out of its oneof. */
function* independent(text: Text, message: ProtoMessage, field: ProtoField): Generator<Change> {
  if (field.oneof === undefined) return;
  const edit = text.inside(message.at, text.statement(field.at));
  if (edit !== undefined)
    yield {
      words: `leave "${field.name}" outside of the oneof ${field.oneof}`,
      edits: [edit, text.removed(field.at)],
    };
}

/** Restores a field that has another number or is removed. */
function* restoredNumber(
  text: Text,
  message: ProtoMessage,
  old: Text,
  theirs: ProtoField,
): Generator<Change> {
  const moved = message.fields.find(({ name }) => name === theirs.name);
  const edit = moved === undefined ? undefined : text.number(moved, theirs.number);
  const taken = message.fields.find(({ number }) => number === theirs.number);
  if (taken !== undefined) {
    if (moved === undefined || moved === taken) return;
    const turn = text.number(taken, moved.number);
    if (edit !== undefined && turn !== undefined)
      yield {
        words: `give "${moved.name}" its number ${theirs.number} back, and "${taken.name}" the number ${moved.number}`,
        edits: [edit, turn],
      };
    return;
  }
  if (moved !== undefined && edit !== undefined)
    yield { words: `give "${moved.name}" its number ${theirs.number} back`, edits: [edit] };
  if (moved === undefined) {
    const kept = reservedText(message, theirs.number, theirs.name);
    const reserved = kept === '' ? undefined : text.inside(message.at, kept);
    if (reserved !== undefined)
      yield {
        words: `add \`${kept}\` so that no other field uses ${theirs.number} again`,
        edits: [reserved],
      };
    const back = text.inside(message.at, old.statement(theirs.at));
    if (back !== undefined)
      yield { words: `put the field "${theirs.name}" = ${theirs.number} back`, edits: [back] };
  }
}

function* oneField(text: Text, mine: ProtoField, old: Text, theirs: ProtoField): Generator<Change> {
  const head = text.head(mine);
  const before = old.head(theirs);
  if (head !== undefined && before !== undefined && head.text !== before.text) {
    const label = text.label(mine);
    const was = old.label(theirs);
    const type = head.text.slice(label.length);
    if (label !== was)
      yield {
        words:
          was === ''
            ? `take \`${label.trim()}\` away from "${mine.name}"`
            : `restore \`${was.trim()}\` for "${mine.name}"`,
        edits: [{ at: head.at, end: head.end, text: was + type }],
      };
    const oldType = before.text.slice(was.length);
    if (type !== oldType)
      yield {
        words: `restore the type ${oldType.trim()} of "${mine.name}"; give what needs another type a number of its own`,
        edits: [{ at: head.at + label.length, end: head.end, text: oldType }],
      };
    yield {
      words: `restore \`${before.text.trim()}\` for "${mine.name}"`,
      edits: [{ at: head.at, end: head.end, text: before.text }],
    };
  }
  yield {
    words: `restore \`${old.statement(theirs.at)}\``,
    edits: [text.replace(mine.at, old.statement(theirs.at))],
  };
}

function* optional(text: Text, field: ProtoField): Generator<Change> {
  if (!field.required) return;
  const head = text.head(field);
  if (head === undefined) return;
  const edit = { at: head.at, end: head.end, text: head.text.replace(/^required/, 'optional') };
  yield { words: `make "${field.name}" optional`, edits: [edit] };
}

function* restoredMessage(text: Text, tree: ProtoFile, old: Text, gone: ProtoMessage): Generator<Change> {
  const short = gone.name.slice(gone.name.lastIndexOf('.') + 1);
  const outer = tree.byName.get(gone.name.slice(0, Math.max(0, gone.name.length - short.length - 1)));
  const statement = old.statement(gone.at);
  const numbers = (message: ProtoMessage): string =>
    message.fields.map(({ number, type }) => `${number} ${type}`).join();
  // A new message with the same fields is this message under another name.
  const renamed = tree.messages.filter((one) => numbers(one) === numbers(gone));
  const [only] = renamed;
  if (only !== undefined && renamed.length === 1) {
    const head = /^message\s+(\w+)/.exec(text.statement(only.at));
    const from = offsetOf(text.source, only.at);
    if (head !== null && head[1] !== undefined)
      yield {
        words: `restore the name ${short}: readers look a message up by its name`,
        edits: [{ at: from, end: from + head[0].length, text: `message ${short}` }],
      };
  }
  const edit = outer === undefined ? text.last(statement) : text.inside(outer.at, statement);
  if (edit !== undefined) yield { words: `put the message ${short} back`, edits: [edit] };
}

function* enums(text: Text, mine: ProtoEnum | undefined, theirs: ProtoEnum | undefined): Generator<Change> {
  if (mine === undefined || theirs === undefined || mine.at.from !== undefined) return;
  const gone = [...theirs.values].filter(([number]) => !mine.values.has(number));
  const names = new Set(mine.values.values());
  if (gone.length > 0) {
    const lines = gone.map(
      ([number, name]) => `${names.has(name) ? `${name}_${number}` : name} = ${number};`,
    );
    const [first] = mine.values.keys();
    // The new values follow the first value, which is the default and must stay first.
    const place = first === undefined ? undefined : mine.placeOf(first);
    const span = place === undefined ? undefined : protoSpan(text.source, offsetOf(text.source, place));
    if (span !== undefined && place !== undefined) {
      const indent = indentAt(text.source, span.at);
      const put = lines.map((line) => `\n${indent}${line}`).join('');
      yield {
        words: `put ${gone.map(([number, name]) => `${name} = ${number}`).join(', ')} back`,
        edits: [{ at: span.end, end: span.end, text: put }],
      };
    }
  }
}
