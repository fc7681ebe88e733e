/** Options: `option NAME = VALUE;` and `[NAME = VALUE, …]`, with values in the text format. */
import type { OptionEntry, OptionNamePart, OptionNode, OptionValue } from './ast.ts';
import type { ProtoCursor } from './cursor.ts';

/** After the word `option`. */
export function parseOptionStatement(cursor: ProtoCursor): OptionNode {
  const option = parseOption(cursor);
  cursor.expect(';');
  return option;
}

/** The list in brackets, if there is one. */
export function parseOptionList(cursor: ProtoCursor): OptionNode[] {
  const options: OptionNode[] = [];
  if (!cursor.takes('[')) return options;
  do options.push(parseOption(cursor));
  while (cursor.takes(','));
  cursor.expect(']');
  return options;
}

function parseOption(cursor: ProtoCursor): OptionNode {
  cursor.count();
  const { at } = cursor;
  const name: OptionNamePart[] = [];
  do {
    if (cursor.takes('(')) {
      name.push({ name: cursor.path('the name of an option'), extension: true });
      cursor.expect(')');
    } else name.push({ name: cursor.name('the name of an option'), extension: false });
  } while (cursor.takes('.'));
  cursor.expect('=');
  const value = cursor.sees('{') ? aggregate(cursor) : scalar(cursor);
  return { kind: 'option', name, value, at };
}

function scalar(cursor: ProtoCursor): OptionValue {
  cursor.count();
  if (cursor.token.kind === 'string') return { kind: 'string', bytes: cursor.string('a value') };
  const sign = cursor.takes('-') ? '-' : '';
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

/** `{ … }` or `< … >`. */
function aggregate(cursor: ProtoCursor): OptionValue {
  const end = cursor.takes('<') ? '>' : '}';
  if (end === '}') cursor.expect('{');
  const entries: OptionEntry[] = [];
  cursor.inside(() => {
    while (!cursor.takes(end)) {
      entries.push(entry(cursor));
      if (!cursor.takes(',')) cursor.takes(';');
    }
  });
  return { kind: 'message', entries };
}

function entry(cursor: ProtoCursor): OptionEntry {
  cursor.count();
  const { at } = cursor;
  let key: string;
  if (cursor.takes('[')) {
    let path = cursor.path('the name of an extension', false);
    while (cursor.takes('/')) path += `/${cursor.path('the name of a type', false)}`;
    cursor.expect(']');
    key = `[${path}]`;
  } else key = cursor.name('the name of a field');
  const hasColon = cursor.takes(':');
  if (!hasColon && !['{', '<', '['].some((open) => cursor.sees(open))) cursor.unexpected('":"');
  return { key, value: element(cursor), at };
}

function element(cursor: ProtoCursor): OptionValue {
  if (cursor.sees('{') || cursor.sees('<')) return aggregate(cursor);
  if (!cursor.takes('[')) return scalar(cursor);
  const values: OptionValue[] = [];
  cursor.inside(() => {
    while (!cursor.takes(']')) {
      cursor.count();
      values.push(element(cursor));
      if (!cursor.sees(']')) cursor.expect(',');
    }
  });
  return { kind: 'list', values };
}
