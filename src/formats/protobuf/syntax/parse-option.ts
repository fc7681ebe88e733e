/** Parses options: `option NAME = VALUE;` and `[NAME = VALUE, …]`, with values in the text format.
 */
import type { OptionEntry, OptionNamePart, OptionNode, OptionValue } from './ast.ts';
import type { ProtoCursor } from './cursor.ts';

/** Parses a statement after the word `option`. */
export function parseOptionStatement(cursor: ProtoCursor): OptionNode {
  const option = parseOption(cursor);
  cursor.expect(';');
  return option;
}

/** Parses an optional list in brackets. */
export function parseOptionList(cursor: ProtoCursor): OptionNode[] {
  const options: OptionNode[] = [];
  if (!cursor.accept('[')) return options;
  do options.push(parseOption(cursor));
  while (cursor.accept(','));
  cursor.expect(']');
  return options;
}

function parseOption(cursor: ProtoCursor): OptionNode {
  cursor.count();
  const { at } = cursor;
  const name: OptionNamePart[] = [];
  do {
    if (cursor.accept('(')) {
      name.push({ name: cursor.path('the name of an option'), extension: true });
      cursor.expect(')');
    } else name.push({ name: cursor.name('the name of an option'), extension: false });
  } while (cursor.accept('.'));
  cursor.expect('=');
  const value = cursor.isNext('{') ? aggregate(cursor) : scalar(cursor);
  return { kind: 'option', name, value, at };
}

function scalar(cursor: ProtoCursor): OptionValue {
  cursor.count();
  if (cursor.token.kind === 'string') return { kind: 'string', bytes: cursor.string('a value') };
  const sign = cursor.accept('-') ? '-' : '';
  const { kind, text } = cursor.token;
  if (kind === 'integer' || kind === 'float') {
    cursor.next();
    return { kind: 'number', text: sign + text };
  }
  if (kind !== 'name') cursor.unexpected('a value');
  if (sign === '-' && !/^(inf|infinity|nan)$/i.test(text)) cursor.unexpected('a number');
  cursor.next();
  return { kind: 'word', text: sign + text };
}

/** Parses `{ … }` or `< … >`. */
function aggregate(cursor: ProtoCursor): OptionValue {
  const end = cursor.accept('<') ? '>' : '}';
  if (end === '}') cursor.expect('{');
  const entries: OptionEntry[] = [];
  cursor.inside(() => {
    while (!cursor.accept(end)) {
      entries.push(entry(cursor));
      if (!cursor.accept(',')) cursor.accept(';');
    }
  });
  return { kind: 'message', entries };
}

function entry(cursor: ProtoCursor): OptionEntry {
  cursor.count();
  const { at } = cursor;
  let key: string;
  if (cursor.accept('[')) {
    let path = cursor.path('the name of an extension', false);
    while (cursor.accept('/')) path += `/${cursor.path('the name of a type', false)}`;
    cursor.expect(']');
    key = `[${path}]`;
  } else key = cursor.name('the name of a field');
  const hasColon = cursor.accept(':');
  if (!hasColon && !['{', '<', '['].some((open) => cursor.isNext(open))) cursor.unexpected('":"');
  return { key, value: element(cursor), at };
}

function element(cursor: ProtoCursor): OptionValue {
  if (cursor.isNext('{') || cursor.isNext('<')) return aggregate(cursor);
  if (!cursor.accept('[')) return scalar(cursor);
  const values: OptionValue[] = [];
  cursor.inside(() => {
    while (!cursor.accept(']')) {
      cursor.count();
      values.push(element(cursor));
      if (!cursor.isNext(']')) cursor.expect(',');
    }
  });
  return { kind: 'list', values };
}
