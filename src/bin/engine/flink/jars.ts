/** Jars of connectors for Flink, copied by Maven into a folder. */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import type { Timers } from '../../../core/clock.ts';
import { coreError } from '../../../core/errors.ts';
import { type FlinkJar, jarFile } from '../../../engine/flink/jars.ts';

const run = promisify(execFile);
const FETCH_MS_MAX = 1_200_000;
/** Most characters of a reason in an error. */
const REASON_CHARS_MAX = 1_000;

const pomOf = (jars: readonly FlinkJar[]): string => `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>millrace</groupId>
  <artifactId>flink-jars</artifactId>
  <version>1</version>
  <dependencies>
${jars
  .map(
    ({ group, artifact, version }) =>
      `    <dependency><groupId>${group}</groupId><artifactId>${artifact}</artifactId><version>${version}</version></dependency>`,
  )
  .join('\n')}
  </dependencies>
</project>
`;

/** Clock of the time limit, and the stop of the command. */
interface CopyOptions {
  readonly clock: Timers;
  readonly signal: AbortSignal;
}

/** Copies the jars that a folder lacks into it. Returns the paths of all.
 *  @throws unreachable if Maven fails, not_writable, interrupted */
export async function fetchJars(
  folder: string,
  jars: readonly FlinkJar[],
  options: CopyOptions,
): Promise<readonly string[]> {
  const into = resolve(folder);
  const missing = jars.filter((jar) => !existsSync(join(into, jarFile(jar))));
  if (missing.length > 0) await copy(into, missing, options);
  return jars.map((jar) => join(into, jarFile(jar)));
}

/** Renames whole jars into the folder: a part of a jar that an ended Maven leaves would pass for
 *  the jar in the next call. */
async function copy(into: string, jars: readonly FlinkJar[], options: CopyOptions): Promise<void> {
  const staging = stagingIn(into);
  try {
    const pom = join(staging, 'pom.xml');
    writeFileSync(pom, pomOf(jars));
    const goal = ['dependency:copy-dependencies', '-DexcludeTransitive=true', `-DoutputDirectory=${staging}`];
    await runMaven(['-q', '-B', '-f', pom, ...goal], options);
    for (const jar of jars) renameSync(join(staging, jarFile(jar)), join(into, jarFile(jar)));
  } finally {
    // Maven may be writing its last file.
    rmSync(staging, { recursive: true, force: true, maxRetries: 10 });
  }
}

/** @throws not_writable */
function stagingIn(into: string): string {
  try {
    mkdirSync(into, { recursive: true });
    return mkdtempSync(join(into, '.millrace-'));
  } catch (cause) {
    throw coreError('not_writable', `cannot write to -flink-jars=${into}: ${(cause as Error).message}`, {
      next: 'give a folder that can be written',
      details: { setting: 'flink-jars' },
      cause,
    });
  }
}

/** @throws unreachable, interrupted */
async function runMaven(words: readonly string[], { clock, signal }: CopyOptions): Promise<void> {
  const limit = new AbortController();
  const cancel = clock.after(FETCH_MS_MAX, () => limit.abort(), 'background');
  try {
    await run('mvn', words, { signal: AbortSignal.any([limit.signal, signal]) });
  } catch (cause) {
    if (signal.aborted)
      throw coreError('interrupted', 'engine submit was stopped while Maven copied the jars of Flink', {
        next: 'submit the job again',
        cause,
      });
    const why = limit.signal.aborted
      ? `Maven has not ended within ${FETCH_MS_MAX / 1000} s`
      : reasonOf(cause as MavenFailure);
    throw coreError('unreachable', `the jars of Flink were not copied: ${why}`, {
      next: 'install Maven and check its mirror settings, or copy the jars that -explain names yourself',
      cause,
    });
  } finally {
    cancel();
  }
}

interface MavenFailure extends Error {
  readonly code?: unknown;
  readonly stdout?: string;
  readonly stderr?: string;
}

/** The first error that Maven prints, or else the first line of its launcher. */
function reasonOf({ code, stdout = '', stderr = '', message }: MavenFailure): string {
  if (code === 'ENOENT') return 'mvn (Apache Maven) is not installed';
  const lines = [
    ...stdout.split('\n').filter((line) => line.includes('ERROR')),
    ...stderr.split('\n'),
    message,
  ];
  const [line = ''] = lines.map((one) => one.replace('[ERROR]', '').trim()).filter((one) => one !== '');
  return line.slice(0, REASON_CHARS_MAX);
}
