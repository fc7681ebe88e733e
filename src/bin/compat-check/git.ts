/** Reads schemas from a git repository. Runs `git` without a shell, with limits on time and output
 *  size. */
import { execFile } from 'node:child_process';
import { coreError } from '../../core/errors.ts';
import { FILE_BYTES_MAX, type SchemaFile } from './files.ts';

const GIT_MS_MAX = 20_000;
/** Number of the latest commits of a file that are read. */
const COMMITS_MAX = 1_000;
/** Number of files that are read from one folder. */
const FILES_MAX = 1_000;

export interface GitPlace {
  readonly revision: string;
  readonly path: string;
}

export interface GitVersion extends SchemaFile {
  /** True if the version counts for compatibility; false if only its history matters. */
  readonly live: boolean;
  /** Commit from which the references of this version are read. */
  readonly revision: string;
}

/** `git:REV:PATH`. @throws bad_value */
export function gitPlaceOf(given: string): GitPlace {
  const [, revision, path] = /^git:([^:]+):(.+)$/s.exec(given) ?? [];
  if (revision !== undefined && path !== undefined && !revision.startsWith('-') && !path.includes('\0'))
    return { revision, path };
  throw coreError('bad_value', `-against=${given} is not git:REV:PATH`, {
    next: 'give a revision such as origin/main, a colon and a path from the top of the repository (./path from here)',
  });
}

/** @throws bad_file, unreachable */
function git(args: readonly string[], signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(
      'git',
      ['--no-optional-locks', '--no-pager', ...args],
      {
        encoding: 'utf8',
        maxBuffer: FILE_BYTES_MAX,
        timeout: GIT_MS_MAX,
        killSignal: 'SIGKILL',
        signal,
        windowsHide: true,
        env: { ...process.env, GIT_TERMINAL_PROMPT: '0', LC_ALL: 'C' },
      },
      (error, stdout, stderr) => {
        if (error === null) {
          resolve(stdout);
          return;
        }
        if (error.code === ('ENOENT' as unknown)) {
          reject(
            coreError('unreachable', 'git cannot be run', {
              next: 'install git, or give -against=FILE',
              cause: error,
            }),
          );
          return;
        }
        const why =
          error.killed === true ? `took longer than ${GIT_MS_MAX} ms` : stderr.trim().split('\n')[0];
        reject(
          coreError('bad_file', `git ${args[0]}: ${why === '' ? error.message : why}`, {
            next: 'check the revision and the path of -against, and that the revision was fetched',
            cause: error,
          }),
        );
      },
    );
  });
}

async function blob(revision: string, path: string, signal: AbortSignal): Promise<string> {
  return git(['cat-file', 'blob', `${revision}:${path}`], signal);
}

/** Content of a file at a revision; undefined if it does not exist there. @throws unreachable */
export async function fileAt({ revision, path }: GitPlace, signal: AbortSignal): Promise<string | undefined> {
  try {
    return await blob(revision, path, signal);
  } catch (thrown) {
    if ((thrown as { readonly code?: string }).code === 'bad_file') return undefined;
    throw thrown;
  }
}

/** Object type: `blob`, `tree`, or undefined if no object has this path. */
async function typeOf(commit: string, path: string, signal: AbortSignal): Promise<string | undefined> {
  try {
    return (await git(['cat-file', '-t', `${commit}:${path}`], signal)).trim();
  } catch (thrown) {
    if ((thrown as { readonly code?: string }).code === 'bad_file') return undefined;
    throw thrown;
  }
}

/** Versions, oldest first; empty if the path does not exist at the revision. A file has one version
 *  for each commit that changed it, then its content at the revision. A folder has one version for
 *  each file, ordered by name. @throws bad_file, unreachable */
export async function gitVersions(
  place: GitPlace,
  signal: AbortSignal,
): Promise<{ readonly versions: readonly GitVersion[]; readonly notes: readonly string[] }> {
  const { revision } = place;
  // git rejects a trailing slash after a file name.
  const path = place.path.replace(/\/+$/, '');
  const commit = (
    await git(['rev-parse', '--verify', '--end-of-options', `${revision}^{commit}`], signal)
  ).trim();
  const type = await typeOf(commit, path, signal);
  if (type === undefined) return { versions: [], notes: [`${path} does not exist at ${revision} yet`] };
  if (type === 'tree') return { versions: await folder(commit, revision, path, signal), notes: [] };
  const notes: string[] = [];
  const listed = await git(
    ['log', '--first-parent', '--format=%H', `--max-count=${COMMITS_MAX}`, commit, '--', pathspec(path)],
    signal,
  );
  const commits = listed.split('\n').filter((line) => line !== '');
  if (commits.length === COMMITS_MAX) notes.push(`only the last ${COMMITS_MAX} commits of ${path} were read`);
  if ((await git(['rev-parse', '--is-shallow-repository'], signal)).trim() === 'true')
    notes.push('the clone is shallow, so field numbers used in commits outside it were not checked');
  const now = await blob(commit, path, signal);
  const versions: GitVersion[] = [];
  for (const one of commits.reverse()) {
    const text = await fileAt({ revision: one, path }, signal);
    if (text === undefined || text === versions[versions.length - 1]?.text) continue;
    versions.push({ name: `${one.slice(0, 10)}:${path}`, text, live: true, revision: one });
  }
  if (versions[versions.length - 1]?.text === now) versions.pop();
  versions.push({ name: `${revision}:${path}`, text: now, live: true, revision: commit });
  return { versions, notes };
}

/** Pathspec with the meaning of `REV:PATH`: relative to the top of the repository unless it starts
 *  with a dot. No character of it is a pattern. */
const pathspec = (path: string): string =>
  /^\.\.?(\/|$)/.test(path) ? `:(literal)${path}` : `:(top,literal)${path}`;

async function folder(
  commit: string,
  revision: string,
  path: string,
  signal: AbortSignal,
): Promise<readonly GitVersion[]> {
  const listed = await git(['ls-tree', '-z', '--full-tree', '--name-only', `${commit}:${path}`], signal);
  const names = listed.split('\0').filter((name) => name !== '');
  const versions: GitVersion[] = [];
  for (const name of versionNames(names, `${revision}:${path}`)) {
    const inner = path === '' || path === '.' ? name : `${path}/${name}`;
    const text = await fileAt({ revision: commit, path: inner }, signal);
    if (text !== undefined)
      versions.push({ name: `${revision}:${inner}`, text, live: true, revision: commit });
  }
  return versions;
}

/** The schema files of a folder, oldest first: v2 before v10. @throws bad_file */
export function versionNames(names: readonly string[], where: string): readonly string[] {
  const files = names.filter((name) => /\.(avsc|avro|proto|json)$/i.test(name));
  if (files.length === 0 || files.length > FILES_MAX) {
    const why = files.length === 0 ? 'holds no schema file' : `holds more than ${FILES_MAX} schema files`;
    throw coreError('bad_file', `-against: ${where} ${why}`, {
      next: 'give a folder with one file a version: v1.avsc, v2.avsc',
    });
  }
  const order = new Intl.Collator('en', { numeric: true });
  return files.sort((a, b) => order.compare(a, b) || (a < b ? -1 : 1));
}
