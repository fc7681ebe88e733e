/** File helpers of the stack: atomic writes, and paths that hold in a clone, in `dist` and in an
 *  installation. */
import { randomBytes } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { coreError } from '../core/errors.ts';

/** Folder of Millrace's package.json: the same whether this file runs from `src` or from `dist`. */
export function packageRoot(): string {
  for (let at = dirname(fileURLToPath(import.meta.url)); ; at = dirname(at)) {
    const manifest = join(at, 'package.json');
    if (existsSync(manifest) && readFileSync(manifest, 'utf8').includes('"name": "millrace"')) return at;
    if (at === dirname(at)) {
      throw coreError('internal', 'no package.json of millrace above its own code', {
        next: 'reinstall the package',
      });
    }
  }
}

export const randomName = (): string => randomBytes(6).toString('hex');

/** Replaces a file atomically: a reader sees the old text or the new text. */
export function writeWhole(path: string, text: string, mode = 0o644): void {
  const beside = `${path}.${process.pid}.${randomName()}`;
  writeFileSync(beside, text, { mode });
  renameSync(beside, path);
}

/** Creates a folder and its parents. Node's recursive mkdir does not return if an existing parent
 *  accepts no entries, for example under /proc. */
function makeFolder(path: string, mayLackParents = true): void {
  try {
    mkdirSync(path);
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    if (code === 'EEXIST' && statSync(path).isDirectory()) return;
    if (!mayLackParents || code !== 'ENOENT' || dirname(path) === path) throw thrown;
    makeFolder(dirname(path));
    makeFolder(path, false);
  }
}

/** Creates a folder and checks that this process can write to it.
 *  @throws not_writable */
export function writableFolder(path: string, flag: string): void {
  try {
    makeFolder(resolve(path));
    accessSync(path, constants.W_OK | constants.X_OK);
  } catch (thrown) {
    const { code, message } = thrown as NodeJS.ErrnoException;
    throw coreError('not_writable', `cannot write to ${path}: ${code ?? message}`, {
      next: `make the folder writable or give another one with ${flag}`,
      cause: thrown,
    });
  }
}

/** Quotes text as a single word of a POSIX shell command. */
export const shellWord = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** Last lines of a log, for an error message. */
export function tailOf(path: string, lines: number): string {
  try {
    return readFileSync(path, 'utf8').trimEnd().split('\n').slice(-lines).join('\n');
  } catch {
    return '';
  }
}

/** Further variables of a server, by its name and its data folder. */
export type ServerEnvironment = (name: string, dataFolder: string) => Readonly<Record<string, string>>;

/** Lines of a script that export variables. */
export const exportLines = (variables: Readonly<Record<string, string>>): string =>
  Object.entries(variables)
    .map(([name, value]) => `export ${name}=${shellWord(value)}\n`)
    .join('');
