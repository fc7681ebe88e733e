/** The broker's jars, downloaded by Maven from the pinned pom.xml into
 *  `.millrace/kafka-jars/<version>-<hash of the pom>`.
 *
 *  Invariant: the folder exists completely or not at all; an existing folder is never downloaded
 *  again. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { join } from 'node:path';
import { coreError } from '../../core/errors.ts';
import { stackError } from '../errors.ts';
import { packageRoot, randomName } from '../files.ts';
import { deathSignalWords } from '../guard.ts';

/** Exit status of a shell, or of a wrapper such as setpriv, if the program does not exist. */
const NOT_FOUND_STATUS = 127;
const MAIN_JAR = /^kafka_2\.13-(.+)\.jar$/;

export interface KafkaJars {
  readonly folder: string;
  readonly version: string;
  /** True if this call downloaded the jars. */
  readonly fetched: boolean;
}

function pomPath(): string {
  return join(packageRoot(), 'src', 'devstack', 'kafka', 'pom.xml');
}

/** Folder of the jars, existing or not. If the package folder is read-only, the jars are kept in
 *  the working folder. */
function kafkaJarsFolder(): { readonly folder: string; readonly version: string } {
  const pom = readFileSync(pomPath(), 'utf8');
  const version = /<kafka\.version>([^<]+)</.exec(pom)?.[1];
  if (version === undefined) throw coreError('internal', 'the pom of the broker names no kafka.version');
  const name = `${version}-${createHash('sha256').update(pom).digest('hex').slice(0, 12)}`;
  const below = (home: string) => join(home, '.millrace', 'kafka-jars', name);
  const own = below(packageRoot());
  if (existsSync(own)) return { folder: own, version };
  try {
    accessSync(packageRoot(), constants.W_OK);
    return { folder: own, version };
  } catch {
    return { folder: below(process.cwd()), version };
  }
}

/** The jars if they are already downloaded. */
export function presentKafka(): KafkaJars | undefined {
  const { folder, version } = kafkaJarsFolder();
  return existsSync(folder) ? { folder, version, fetched: false } : undefined;
}

function mavenMissing(): Error {
  return stackError(
    'missing_tool',
    'mvn (Apache Maven) is not installed; it downloads the jars of Apache Kafka',
    { next: 'run bin/bootstrap, or install Maven (Debian: apt-get install maven)' },
  );
}

function runMaven(into: string): Promise<{ readonly code: number | null; readonly output: string }> {
  const args = [
    '-q',
    '-B',
    '-f',
    pomPath(),
    'dependency:copy-dependencies',
    '-DincludeScope=runtime',
    `-DoutputDirectory=${into}`,
  ];
  return new Promise((resolve, reject) => {
    // Maven must not outlive a killed `up`.
    const words = [...deathSignalWords(), 'mvn', ...args];
    const child = spawn(words[0] as string, words.slice(1), { stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    const keep = (chunk: Buffer) => {
      output = (output + chunk.toString('utf8')).slice(-16_384);
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    child.on('error', () => reject(mavenMissing()));
    child.on('close', (code) => {
      if (code === NOT_FOUND_STATUS) reject(mavenMissing());
      else resolve({ code, output });
    });
  });
}

/** Downloads the jars if they are missing.
 *  @throws missing_tool, fetch_failed, not_writable */
export async function fetchKafka(): Promise<KafkaJars> {
  const { folder, version } = kafkaJarsFolder();
  if (existsSync(folder)) return { folder, version, fetched: false };
  const part = `${folder}.part-${randomName()}`;
  try {
    mkdirSync(part, { recursive: true });
  } catch (thrown) {
    throw coreError('not_writable', `cannot write to ${folder}`, {
      next: 'make the folder writable',
      cause: thrown,
    });
  }
  try {
    const { code, output } = await runMaven(part);
    const line = output.split('\n').find((one) => one.includes('ERROR')) ?? output.split('\n')[0] ?? '';
    if (code !== 0) {
      throw stackError('fetch_failed', `Maven could not download the jars of Apache Kafka: ${line.trim()}`, {
        next: 'check the network and the mirror settings of Maven, then run it again',
      });
    }
    if (!readdirSync(part).some((name) => MAIN_JAR.exec(name)?.[1] === version)) {
      throw stackError('fetch_failed', `Maven downloaded no jar of Apache Kafka ${version}`, {
        next: 'run it again',
      });
    }
    try {
      renameSync(part, folder);
    } catch (thrown) {
      // Another process was faster; its jars are the same.
      if (!existsSync(folder)) throw thrown;
    }
    return { folder, version, fetched: true };
  } finally {
    rmSync(part, { recursive: true, force: true });
  }
}
