/** Command lines of a user: split into words, never interpreted.
 *
 *  Rules: blanks separate words. Single quotes keep everything, double quotes everything but `\"`
 *  and `\\`; outside quotes a backslash keeps the next character. Variables, globs, pipes and
 *  redirections mean nothing. */
import { accessSync, constants, statSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';
import { coreError } from '../../core/errors.ts';

/** Splits a command line into words, one of which is the program.
 *  @param where flag or field with the line, for errors
 *  @throws bad_value */
export function splitWords(where: string, line: string): readonly string[] {
  const words = wordsOf(where, line);
  if (words.length === 0)
    throw coreError('bad_value', `${where} is empty`, { next: 'give a program and its arguments' });
  return words;
}

function wordsOf(where: string, line: string): readonly string[] {
  const bad = (why: string, next: string): Error => coreError('bad_value', `${where} ${why}`, { next });
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

/** @param folder working folder of the process, from which a path of the program is relative
 *  @throws bad_value when the program cannot be found, before anything is started */
export function requireProgram(where: string, program: string, folder = '.'): void {
  if (program.includes('{')) return;
  const places = program.includes('/')
    ? [resolve(folder, program)]
    : (process.env['PATH'] ?? '').split(delimiter).map((folder) => join(folder, program));
  if (places.some(isProgram)) return;
  const why = program.includes('/') ? 'is not a program that this user may run' : 'is in no folder of PATH';
  throw coreError('bad_value', `${where}: ${program} ${why}`, {
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
