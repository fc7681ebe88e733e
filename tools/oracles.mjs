// Installs the oracles of the tests (test/oracles): downloads jars with Maven from the pinned pom
// and compiles the program around them with one of these jars, because a Java runtime has no
// compiler. Stored in .millrace/oracles/DIGEST; an existing installation is used without network
// access.
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

/** Path of java: from JAVA_HOME, else `java` of the search path. */
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

/** Program and arguments that start an oracle, by its class name. */
export function oracleCommand(name, say = () => {}) {
  const home = join(root, '.millrace', 'oracles');
  const dir = join(home, digestOf());
  if (!existsSync(join(dir, 'stamp'))) install(home, dir, say);
  const flags = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xshare:auto', '-Xmx512m'];
  return { dir, command: javaProgram(), args: [...flags, '-cp', classPath(dir), name] };
}

function install(home, dir, say) {
  say('installing the oracles of the tests (Apache Avro for the JVM, 9 MB)');
  // Installed in a temporary folder and renamed, so that concurrent installations do not interfere.
  const part = join(home, `aside-${process.pid}`);
  rmSync(part, { recursive: true, force: true });
  mkdirSync(join(part, 'classes'), { recursive: true });
  try {
    const jars = join(part, 'jars');
    const pom = join(root, 'test/oracles/pom.xml');
    const goal = ['dependency:copy-dependencies', '-DincludeScope=runtime', `-DoutputDirectory=${jars}`];
    run('mvn', 'mvn', ['-q', '-B', '-f', pom, ...goal]);
    const compiler = readdirSync(jars).find((name) => /^ecj-.*\.jar$/.test(name));
    if (compiler === undefined) throw new Error('mvn downloaded no compiler; next: run this again');
    const java = SOURCES.filter((path) => path.endsWith('.java')).map((path) => join(root, path));
    const to = ['-17', '-proc:none', '-cp', classPath(part), '-d', join(part, 'classes')];
    run('compiling the oracles', javaProgram(), ['-jar', join(jars, compiler), ...to, ...java]);
    writeFileSync(join(part, 'stamp'), '');
    try {
      renameSync(part, dir);
    } catch (thrown) {
      if (!existsSync(join(dir, 'stamp'))) throw thrown;
    }
  } finally {
    rmSync(part, { recursive: true, force: true });
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
