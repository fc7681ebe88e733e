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

function digestOf(paths, also = '') {
  const hash = createHash('sha256');
  for (const path of paths) hash.update(`${path}\0`).update(readFileSync(join(root, path)));
  return hash.update(also).digest('hex').slice(0, 16);
}

const jarsIn = (folder) => readdirSync(folder).map((name) => join(folder, name));
const classPath = (dir) => [join(dir, 'classes'), ...jarsIn(join(dir, 'jars'))].join(delimiter);
const JVM = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xshare:auto', '-Xmx512m'];

/** Program and arguments that start an oracle, by its class name. */
export function oracleCommand(name, say = () => {}) {
  const dir = oraclesDir(say);
  return { dir, command: javaProgram(), args: [...JVM, '-cp', classPath(dir), name] };
}

/** Program and arguments that start the writer of the tests over the Java client of Kafka.
 *  @param jars folder with the jars of the broker, which contain the client */
export function kafkaWriterCommand(jars, say = () => {}) {
  const source = 'test/clients/java/KafkaWriter.java';
  const compiler = jarsIn(join(oraclesDir(say), 'jars'));
  const home = join(root, '.millrace', 'oracles');
  const dir = join(home, `writer-${digestOf([source], jars)}`);
  installed(home, dir, (part) => compile(compiler, [source], jarsIn(jars), join(part, 'classes')));
  const path = [join(dir, 'classes'), ...jarsIn(jars)].join(delimiter);
  return { command: javaProgram(), args: [...JVM, '-cp', path, 'KafkaWriter'] };
}

function oraclesDir(say) {
  const home = join(root, '.millrace', 'oracles');
  const dir = join(home, digestOf(SOURCES));
  installed(home, dir, (part) => {
    say('installing the oracles of the tests (Apache Avro for the JVM, 9 MB)');
    const jars = join(part, 'jars');
    const pom = join(root, 'test/oracles/pom.xml');
    const goal = ['dependency:copy-dependencies', '-DincludeScope=runtime', `-DoutputDirectory=${jars}`];
    run('mvn', 'mvn', ['-q', '-B', '-f', pom, ...goal]);
    const java = SOURCES.filter((path) => path.endsWith('.java'));
    compile(jarsIn(jars), java, jarsIn(jars), join(part, 'classes'));
  });
  return dir;
}

function compile(from, sources, path, to) {
  const compiler = from.find((name) => /ecj-[^/\\]*\.jar$/.test(name));
  if (compiler === undefined) throw new Error('mvn downloaded no compiler; next: run this again');
  const flags = ['-17', '-proc:none', '-cp', path.join(delimiter), '-d', to];
  const java = sources.map((source) => join(root, source));
  run('compiling the oracles', javaProgram(), ['-jar', compiler, ...flags, ...java]);
}

/** Makes the folder `dir` unless it exists. */
function installed(home, dir, make) {
  if (existsSync(join(dir, 'stamp'))) return;
  // Installed in a temporary folder and renamed, so that concurrent installations do not interfere.
  const part = join(home, `aside-${process.pid}`);
  rmSync(part, { recursive: true, force: true });
  mkdirSync(join(part, 'classes'), { recursive: true });
  try {
    make(part);
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
