/** Reads the file of -target. */
import { readFileSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { parseDocument } from 'yaml';
import { type ChaosTarget, readTarget } from '../../../chaos/target/document.ts';
import { coreError } from '../../../core/errors.ts';

const FILE_BYTES_MAX = 1024 * 1024;
/** Values that the anchors of a file may repeat. */
const ALIASES_MAX = 100;

/** @returns the target and the folder of its file @throws bad_file, bad_value */
export function readTargetFile(path: string): { readonly target: ChaosTarget; readonly folder: string } {
  return { target: readTarget(parsed(path), path, process.env), folder: dirname(resolve(path)) };
}

function parsed(path: string): unknown {
  const bad = (why: string, next: string, cause?: unknown): Error =>
    coreError('bad_file', `-target=${path}: ${why}`, { next, cause });
  let text: string;
  try {
    if (statSync(path).size > FILE_BYTES_MAX)
      throw bad(`it has over ${FILE_BYTES_MAX} bytes`, 'give a file that describes a target');
    text = readFileSync(path, 'utf8');
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).syscall === undefined) throw thrown;
    throw bad((thrown as Error).message, 'give a YAML file that exists', thrown);
  }
  const document = parseDocument(text, { merge: true });
  const [error] = document.errors;
  if (error !== undefined)
    throw bad(
      error.message.split('\n', 1)[0]?.replace(/:$/, '') ?? 'no YAML',
      'correct the YAML at that place',
      error,
    );
  try {
    return document.toJS({ maxAliasCount: ALIASES_MAX });
  } catch (cause) {
    throw bad((cause as Error).message, `repeat at most ${ALIASES_MAX} values by anchors`, cause);
  }
}
