/** Jars of connectors for Flink, copied by Maven into a folder. */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { coreError } from '../../../core/errors.ts';
import { type FlinkJar, jarFile } from '../../../engine/flink/jars.ts';

const run = promisify(execFile);
const FETCH_MS_MAX = 1_200_000;

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

/** Copies the jars that a folder lacks into it. Returns the paths of all.
 *  @throws unreachable if Maven fails, not_writable */
export async function fetchJars(folder: string, jars: readonly FlinkJar[]): Promise<readonly string[]> {
  const into = resolve(folder);
  const missing = jars.filter((jar) => !existsSync(join(into, jarFile(jar))));
  if (missing.length > 0) await copy(into, missing);
  return jars.map((jar) => join(into, jarFile(jar)));
}

async function copy(into: string, jars: readonly FlinkJar[]): Promise<void> {
  try {
    mkdirSync(into, { recursive: true });
  } catch (cause) {
    throw coreError('not_writable', `cannot write to -flink-jars=${into}`, {
      next: 'give a folder that can be written',
      cause,
    });
  }
  const folder = mkdtempSync(join(tmpdir(), 'millrace-flink-'));
  try {
    const pom = join(folder, 'pom.xml');
    writeFileSync(pom, pomOf(jars));
    const goal = ['dependency:copy-dependencies', '-DexcludeTransitive=true', `-DoutputDirectory=${into}`];
    await run('mvn', ['-q', '-B', '-f', pom, ...goal], { timeout: FETCH_MS_MAX });
  } catch (cause) {
    const { code, stdout = '', message } = cause as { code?: unknown; stdout?: string; message: string };
    const reason = stdout.split('\n').find((line) => line.includes('ERROR')) ?? message.split('\n')[0] ?? '';
    const why = code === 'ENOENT' ? 'mvn (Apache Maven) is not installed' : reason.trim();
    throw coreError('unreachable', `the jars of Flink were not copied: ${why}`, {
      next: 'install Maven and check its mirror settings, or copy the jars that -explain names yourself',
      cause,
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
