/** Command lines of a user's fleet: split into words without a shell, then filled with the values
 *  of an instance.
 *
 *  Rules: blanks separate words. Single quotes keep everything, double quotes everything but `\"`
 *  and `\\`; outside quotes a backslash keeps the next character. Variables, globs, pipes and
 *  redirections mean nothing. `{name}` is replaced after the split, so a value never makes another
 *  word; `{{name}}` is the text `{name}`. Other braces are kept. */
import { accessSync, constants, statSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { coreError } from '../../core/errors.ts';
import { nearest } from '../../core/settings.ts';

/** Names of the values that an instance gets, in braces or as MILLRACE_NAME of its environment. */
export const PLACEHOLDERS = [
  'instance',
  'role',
  'version',
  'port',
  'brokers',
  'topic',
  'group',
  'registry',
  'subject',
  'schema_version',
  'schema_id',
  'schema_file',
  'rate',
] as const;
export type Placeholder = (typeof PLACEHOLDERS)[number];

const TEMPLATE = /\{\{([a-z_]+)\}\}|\{([a-z_]+)\}/g;

/** Splits a command line into words, one of which is the program. @throws bad_value */
export function splitCommand(flag: string, line: string): readonly string[] {
  const words = wordsOf(flag, line);
  if (words.length === 0)
    throw coreError('bad_value', `${flag} is empty`, { next: 'give a program and its arguments' });
  checkPlaceholders(flag, words);
  checkProgram(flag, words[0] as string);
  return words;
}

function wordsOf(flag: string, line: string): readonly string[] {
  const bad = (why: string, next: string): Error => coreError('bad_value', `${flag} ${why}`, { next });
  const words: string[] = [];
  let word: string | undefined;
  let quote: string | undefined;
  const add = (text: string): void => {
    word = (word ?? '') + text;
  };
  for (let at = 0; at < line.length; at++) {
    const char = line[at] as string;
    const follows = line[at + 1];
    if (quote !== undefined) {
      if (char === quote) quote = undefined;
      else if (char === '\\' && quote === '"' && (follows === '"' || follows === '\\'))
        add(line[++at] as string);
      else add(char);
    } else if (/\s/.test(char)) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else if (char === "'" || char === '"') {
      add('');
      quote = char;
    } else if (char === '\\') {
      if (follows === undefined) throw bad('ends with a backslash', 'quote the backslash');
      add(line[++at] as string);
    } else add(char);
  }
  if (quote !== undefined) throw bad(`has a quote ${quote} without its end`, 'close the quote');
  if (word !== undefined) words.push(word);
  return words;
}

function checkPlaceholders(flag: string, words: readonly string[]): void {
  const names = words.flatMap((word) => [...word.matchAll(TEMPLATE)].flatMap(([, , name]) => name ?? []));
  const unknown = names.find((name) => !(PLACEHOLDERS as readonly string[]).includes(name));
  if (unknown === undefined) return;
  const near = nearest(unknown, PLACEHOLDERS);
  throw coreError('bad_value', `${flag} has an unknown value {${unknown}}`, {
    next:
      near === undefined
        ? `there are ${PLACEHOLDERS.join(', ')}; write {{${unknown}}} for the text itself`
        : `did you mean {${near}}?`,
  });
}

/** @throws bad_value when the program cannot be found, before anything is started */
function checkProgram(flag: string, program: string): void {
  if (program.includes('{')) return;
  const places = program.includes('/')
    ? [program]
    : (process.env['PATH'] ?? '').split(delimiter).map((folder) => join(folder, program));
  if (places.some(isProgram)) return;
  const where = program.includes('/') ? 'is not a program that this user may run' : 'is in no folder of PATH';
  throw coreError('bad_value', `${flag}: ${program} ${where}`, {
    next: 'check the name; a command of a shell needs sh -c in front',
  });
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** Replaces the placeholders of each word. */
export function fillWords(
  words: readonly string[],
  values: Readonly<Record<Placeholder, string>>,
): readonly string[] {
  return words.map((word) =>
    word.replace(TEMPLATE, (_, literal: string | undefined, name: Placeholder) =>
      literal === undefined ? values[name] : `{${literal}}`,
    ),
  );
}

/** Environment of an instance. The names are those of the settings of Millrace's own commands, so
 *  `millrace consumer` needs no further flags. */
export function valueEnvironment(
  values: Readonly<Record<Placeholder, string>>,
): Readonly<Record<string, string>> {
  return {
    ...Object.fromEntries(PLACEHOLDERS.map((name) => [`MILLRACE_${name.toUpperCase()}`, values[name]])),
    MILLRACE_LISTEN: `127.0.0.1:${values.port}`,
  };
}
