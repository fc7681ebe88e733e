// Brings the oracles of the tests (test/oracles): jars by Maven from the pinned pom, and the
// program around them, compiled by one of these jars, because a Java that only runs has no
// compiler. Kept under .millrace/oracles/DIGEST; what is there already is used without a network.
//
//   node tools/oracles.mjs      prints {"dir":…}
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run as runProgram } from './run.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const SOURCES = ['test/oracles/pom.xml', 'test/oracles/AvroOracle.java'];

const NEXT = 'run bin/bootstrap, or connect to the package registries, then run this again';
const run = (what, command, args) => runProgram(what, command, args, { cwd: root }, NEXT);

/** The java to use: JAVA_HOME's, else the one on the path. */
function javaProgram() {
  const own = join(process.env.JAVA_HOME ?? '', 'bin', 'java');
  return process.env.JAVA_HOME && existsSync(own) ? own : 'java';
}

function digestOf() {
  const hash = createHash('sha256');
  for (const path of SOURCES) hash.update(`${path}\0`).update(readFileSync(join(root, path)));
  return hash.digest('hex').slice(0, 16);
}

const classPath = (dir) =>
  [join(dir, 'classes'), ...readdirSync(join(dir, 'jars')).map((name) => join(dir, 'jars', name))].join(
    delimiter,
  );

/** Program and arguments that start an oracle, by the name of its class. */
export function oracleCommand(name, say = () => {}) {
  const home = join(root, '.millrace', 'oracles');
  const dir = join(home, digestOf());
  if (!existsSync(join(dir, 'stamp'))) install(home, dir, say);
  const flags = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xshare:auto', '-Xmx512m'];
  return { dir, command: javaProgram(), args: [...flags, '-cp', classPath(dir), name] };
}

function install(home, dir, say) {
  say('bringing the oracles of the tests (Apache Avro for the JVM, 9 MB)');
  // Built aside and renamed, so that two who install at once do not meet.
  const aside = join(home, `aside-${process.pid}`);
  rmSync(aside, { recursive: true, force: true });
  mkdirSync(join(aside, 'classes'), { recursive: true });
  try {
    const jars = join(aside, 'jars');
    const pom = join(root, 'test/oracles/pom.xml');
    const goal = ['dependency:copy-dependencies', '-DincludeScope=runtime', `-DoutputDirectory=${jars}`];
    run('mvn', 'mvn', ['-q', '-B', '-f', pom, ...goal]);
    const compiler = readdirSync(jars).find((name) => /^ecj-.*\.jar$/.test(name));
    if (compiler === undefined) throw new Error('mvn brought no compiler; next: run this again');
    const java = SOURCES.filter((path) => path.endsWith('.java')).map((path) => join(root, path));
    const to = ['-17', '-proc:none', '-cp', classPath(aside), '-d', join(aside, 'classes')];
    run('compiling the oracles', javaProgram(), ['-jar', join(jars, compiler), ...to, ...java]);
    writeFileSync(join(aside, 'stamp'), '');
    try {
      renameSync(aside, dir);
    } catch (thrown) {
      if (!existsSync(join(dir, 'stamp'))) throw thrown;
    }
  } finally {
    rmSync(aside, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    const { dir } = oracleCommand('AvroOracle', (line) => process.stderr.write(`oracles: ${line}\n`));
    process.stdout.write(`${JSON.stringify({ dir })}\n`);
  } catch (thrown) {
    process.stderr.write(`oracles: ${thrown.message}\n`);
    process.exitCode = 3;
  }
}
