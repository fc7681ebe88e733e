/** Compiles the raw C++ limits with the toolchain that the addon needs. */
import { execFile } from 'node:child_process';
import { mkdirSync, renameSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { coreError } from '../src/core/errors.ts';
import { packageRoot } from '../src/shell/package.ts';

const run = promisify(execFile);

/** Libraries that a program links; `librdkafka` is that of the addon. */
const LIBRARIES = {
  'raw-broker': 'librdkafka',
  'raw-engine': 'librdkafka',
  'raw-fetch': 'lz4',
  'raw-window': 'none',
} as const;

/** Compiles peers/NAME and returns the path of the program. @throws bad_file */
export async function compilePeer(name: keyof typeof LIBRARIES): Promise<string> {
  const root = packageRoot();
  const source = join(root, 'bench', 'peers', name, `${name.replace('-', '_')}.cc`);
  const binary = join(root, '.millrace', 'bench', name);
  const deps = join(root, 'node_modules', 'node-rdkafka', 'build', 'deps');
  const flags = {
    librdkafka: ['-isystem', `${deps}/include`, join(deps, 'librdkafka.so.1'), `-Wl,-rpath,${deps}`],
    lz4: ['-llz4'],
    none: [],
  };
  const library = flags[LIBRARIES[name]];
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
