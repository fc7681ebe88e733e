/** `-job` of `millrace engine`: the file that holds a job. */
import { closeSync, openSync, readSync } from 'node:fs';
import { coreError, findMillraceError } from '../../../core/errors.ts';
import type { SettingTable } from '../../../core/settings.ts';
import { aggregateSpecs } from '../../../engine/aggregate/definition.ts';
import { engineError } from '../../../engine/errors.ts';
import { checkDefinition, keySpec } from '../../../engine/source/input/definition.ts';
import {
  JOB_BYTES_MAX,
  type JobDocument,
  type JobEntry,
  type JobProblem,
  readJobDocument,
} from './document.ts';
import { jobTable } from './schema.ts';

export const JOB_FILE_SETTING = {
  type: 'string',
  help: 'YAML file with the settings of the job by flag name; flags and environment override it. Its JSON Schema is docs/reference/engine-job.schema.json in the package',
} as const;

/** Reads at most the greatest length of a job file. @throws bad_file */
function textOf(path: string): string {
  const bad = (why: string, next: string, cause?: unknown): Error =>
    coreError('bad_file', `job file ${path} ${why}`, { next, cause });
  const bytes = Buffer.alloc(JOB_BYTES_MAX + 1);
  let length = 0;
  try {
    const file = openSync(path, 'r');
    try {
      for (let read = -1; read !== 0 && length < bytes.length; length += read)
        read = readSync(file, bytes, length, bytes.length - length, null);
    } finally {
      closeSync(file);
    }
  } catch (cause) {
    const why = (cause as NodeJS.ErrnoException).code ?? 'unknown reason';
    throw bad(`cannot be read (${why})`, 'give the path of a YAML file of settings', cause);
  }
  if (length > JOB_BYTES_MAX)
    throw bad(`is larger than ${JOB_BYTES_MAX} bytes`, 'give a file of settings alone');
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes.subarray(0, length));
  } catch (cause) {
    throw bad('is not UTF-8', 'save it as UTF-8', cause);
  }
}

const DEFINITION = ['key', 'time', 'value', 'where', 'dedup', 'aggregate'] as const;

/** Problems of the texts that define the input, each by itself. */
function definitionProblems({ entries }: JobDocument): readonly JobProblem[] {
  const problems: JobProblem[] = [];
  for (const name of DEFINITION) {
    const entry = entries.get(name);
    if (entry === undefined) continue;
    const found = firstProblem(name, entry);
    if (found !== undefined) problems.push(found);
  }
  return problems;
}

/** Checks of the parts of a list. */
const PARTS: Readonly<Record<string, ((text: string) => unknown) | undefined>> = {
  key: keySpec,
  aggregate: aggregateSpecs,
};

/** The problem of one part if a part has one, else that of the whole. */
function firstProblem(name: (typeof DEFINITION)[number], entry: JobEntry): JobProblem | undefined {
  const check = PARTS[name];
  if (check !== undefined && entry.parts.length > 1)
    for (const part of entry.parts) {
      const found = problemOf(name, part, () => check(part.text));
      if (found !== undefined) return found;
    }
  const whole = entry.parts.length === 1 ? (entry.parts[0] as JobEntry['parts'][number]) : entry;
  return problemOf(name, whole, () => checkDefinition({ format: 'undecided', [name]: entry.text }));
}

function problemOf(
  setting: string,
  where: JobEntry | JobEntry['parts'][number],
  check: () => unknown,
): JobProblem | undefined {
  try {
    check();
    return undefined;
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    const { at } = error.details;
    const { line, column } = typeof at === 'number' && 'placeOf' in where ? where.placeOf(at) : where;
    return { line, column, setting, code: error.code, message: error.message, next: error.next };
  }
}

/** Reads a job file and checks each of its settings. @param table all settings of the command
 *  @throws bad_file */
export function checkedJob(path: string, table: SettingTable): JobDocument {
  const document = readJobDocument(textOf(path), jobTable(table));
  const problems = [...document.problems, ...definitionProblems(document)];
  return { ...document, entries: document.entries, problems: problems.sort(byPlace) };
}

export const byPlace = (a: JobProblem, b: JobProblem): number => a.line - b.line || a.column - b.column;

/** `job.yaml:3:5: window=sometimes is not a choice; choose from … [bad_value]` */
export const problemLine = (path: string, { line, column, message, next, code }: JobProblem): string =>
  `${path}:${line}:${column}: ${message}${next === undefined ? '' : `; ${next}`} [${code}]`;

/** Texts of the settings of a job file by flag name. @throws bad_file, bad_job */
export function readJob(path: string, table: SettingTable): Readonly<Record<string, string>> {
  const { entries, problems } = checkedJob(path, table);
  const [first, ...more] = problems;
  if (first !== undefined) {
    const { line, column, message, next } = first;
    const rest =
      more.length === 0 ? '' : `; millrace engine validate -job=${path} prints ${more.length} more problems`;
    throw engineError('bad_job', `${path}:${line}:${column}: ${message}`, { next: `${next ?? ''}${rest}` });
  }
  return Object.fromEntries([...entries.values()].map(({ name, text }) => [name, text]));
}
