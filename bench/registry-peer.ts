/** The registry to compare with: a registry at a URL, or with -vs=apicurio one on the JVM that is
 *  downloaded and started here. */
import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { coreError, invariant } from '../src/core/errors.ts';
import { javaProgram } from '../src/devstack/kafka/server.ts';
import { freePort } from '../src/devstack/ports.ts';
import { packageRoot } from '../src/shell/package.ts';
import type { BenchContext } from './harness.ts';
import { type Started, untilWritable } from './registry-server.ts';

const run = promisify(execFile);
const PEER = 'apicurio';
/** Path of its interface for schema registry clients. */
const API_PATH = '/apis/ccompat/v7';

/** Downloads the pinned archive once and returns its folder. @throws unreachable */
async function fetched(): Promise<{ readonly folder: string; readonly version: string }> {
  const pom = join(packageRoot(), 'bench', 'peers', 'registry', 'pom.xml');
  const version = /<apicurio\.version>(.+)<\//.exec(readFileSync(pom, 'utf8'))?.[1];
  invariant(version !== undefined, 'the pom pins a version');
  const folder = join(packageRoot(), '.millrace', 'bench', `${PEER}-${version}`);
  if (existsSync(folder)) return { folder, version };
  const part = `${folder}-${process.pid}`;
  mkdirSync(part, { recursive: true });
  try {
    await run('mvn', ['-B', '-q', '-f', pom, 'dependency:unpack-dependencies', `-DoutputDirectory=${part}`]);
    renameSync(part, folder);
  } catch (cause) {
    rmSync(part, { recursive: true, force: true });
    throw coreError('unreachable', `the registry to compare with could not be downloaded: ${String(cause)}`, {
      next: 'check that Maven is installed and its repository is reachable, or give -vs=URL',
      cause,
    });
  }
  return { folder, version };
}

/** Starts the peer on an empty store. */
async function startPeer(): Promise<Started> {
  const { folder, version } = await fetched();
  const jar = readdirSync(folder).find((name) => name.endsWith('-runner.jar'));
  invariant(jar !== undefined, 'the archive holds a program');
  const port = await freePort();
  const started = performance.now();
  const args = [`-Dquarkus.http.port=${port}`, '-Dquarkus.http.host=127.0.0.1', '-jar', join(folder, jar)];
  const child = spawn(javaProgram(process.env), args, { stdio: ['ignore', 'ignore', 'pipe'] });
  const name = `Apicurio ${version} (JVM, in memory)`;
  return untilWritable(name, `http://127.0.0.1:${port}${API_PATH}`, child, started, 'first');
}

/** Function that restarts the peer; undefined if this run cannot start it. */
export const peerStarter = (context: BenchContext): (() => Promise<Started>) | undefined =>
  context.vs === PEER ? startPeer : undefined;

/** The peer; undefined if none is requested. */
export async function peerOf(
  context: BenchContext,
): Promise<Pick<Started, 'name' | 'url' | 'stop'> | undefined> {
  if (context.vs === undefined) return undefined;
  if (context.vs === PEER) return startPeer();
  return { name: context.vs, url: context.vs, stop: async () => {} };
}
