/** Peers that a benchmark downloads and builds at first use, with versions pinned by the files in
 *  bench/peers. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { coreError } from '../src/core/errors.ts';
import { packageRoot } from '../src/shell/package.ts';

const run = promisify(execFile);
const FETCH_MS_MAX = 1_200_000;

/** Folder with the pinned set-up of a peer. */
export const peerSource = (name: string): string => join(packageRoot(), 'bench', 'peers', name);

/** Runs a program that downloads or builds a peer. */
export async function runForPeer(program: string, args: readonly string[], cwd?: string): Promise<void> {
  await run(program, args, { timeout: FETCH_MS_MAX, ...(cwd === undefined ? {} : { cwd }) });
}

/** Makes the folder of a peer once: an existing folder is complete. @throws unreachable */
export async function peerFolder(
  name: string,
  version: string,
  make: (folder: string) => Promise<void>,
): Promise<string> {
  const folder = join(packageRoot(), '.millrace', 'bench', `${name}-${version}`);
  if (existsSync(folder)) return folder;
  const part = `${folder}-${process.pid}`;
  mkdirSync(part, { recursive: true });
  try {
    await make(part);
    renameSync(part, folder);
  } catch (cause) {
    rmSync(part, { recursive: true, force: true });
    // A process that made the folder at the same time was first.
    if (existsSync(folder)) return folder;
    const { stderr, message } = cause as { stderr?: string; message: string };
    throw coreError('unreachable', `the download failed: ${(stderr || message).trim().split('\n')[0]}`, {
      next: 'check that its tools are installed and its registry is reachable',
      cause,
    });
  }
  return folder;
}

/** Digest of files of a peer's set-up, as the version of a folder made from them. */
export function peerDigest(name: string, files: readonly string[]): string {
  const hash = createHash('sha256');
  for (const file of files) hash.update(readFileSync(join(peerSource(name), file)));
  return hash.digest('hex').slice(0, 16);
}

/** Makes a folder with a copy of a peer's set-up and its npm packages, as the lock file has them.
 *  @throws unreachable */
export function npmPeerFolder(name: string): Promise<string> {
  return peerFolder(name, peerDigest(name, ['package.json', 'package-lock.json']), async (folder) => {
    cpSync(peerSource(name), folder, { recursive: true });
    await runForPeer('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], folder);
  });
}
