/** Compiles the raw C++ limits with the toolchain that the addon needs. */
import { execFile } from 'node:child_process';
import { mkdirSync, renameSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { coreError } from '../src/core/errors.ts';
import { packageRoot } from '../src/shell/package.ts';

const run = promisify(execFile);

/** Compiles peers/NAME and returns the path of the program. Kafka programs link the librdkafka of
 *  the addon. @throws bad_file */
export async function compilePeer(name: 'raw-broker' | 'raw-engine' | 'raw-window'): Promise<string> {
  const root = packageRoot();
  const source = join(root, 'bench', 'peers', name, `${name.replace('-', '_')}.cc`);
  const binary = join(root, '.millrace', 'bench', name);
  const deps = join(root, 'node_modules', 'node-rdkafka', 'build', 'deps');
  const library =
    name === 'raw-window'
      ? []
      : ['-isystem', `${deps}/include`, join(deps, 'librdkafka.so.1'), `-Wl,-rpath,${deps}`];
  mkdirSync(dirname(binary), { recursive: true });
  // Built under a temporary name: another process may be running the existing program.
  const temporary = `${binary}.${process.pid}`;
  try {
    await run('c++', ['-std=c++20', '-O2', '-Wall', '-Wextra', source, ...library, '-o', temporary]);
  } catch (cause) {
    throw coreError('bad_file', `${name} did not compile: ${(cause as Error).message}`, {
      next: 'install a C++ compiler',
      cause,
    });
  }
  renameSync(temporary, binary);
  return binary;
}
