/** Root folder, version and code digest of the installed package. */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Returns the folder with package.json; the same for the sources and for dist. */
export function packageRoot(): string {
  let at = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(at, 'package.json'))) at = dirname(at);
  return at;
}

export function packageVersion(): string {
  const parsed = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8')) as {
    readonly version: string;
  };
  return parsed.version;
}

/** Hexadecimal digits of a build digest; enough to distinguish all builds of a project. */
const DIGEST_DIGITS = 16;
const CODE = /\.(js|ts|cc|h)$/;
const DECLARATIONS = /\.d\.ts$/;

/** Returns a digest of the running code: the folder of this file (dist/src, or src in a test) and
 *  the sources of the addon. Builds of the same sources have the same digest, whatever the state of
 *  the repository. */
export function buildDigest(): string {
  const code = join(dirname(fileURLToPath(import.meta.url)), '..');
  const sum = createHash('sha256');
  for (const folder of [code, join(packageRoot(), 'native')]) {
    if (!existsSync(folder)) continue;
    const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((path) => CODE.test(path) && !DECLARATIONS.test(path))
      .sort();
    for (const path of files)
      sum
        .update(path)
        .update('\0')
        .update(readFileSync(join(folder, path)))
        .update('\0');
  }
  return sum.digest('hex').slice(0, DIGEST_DIGITS);
}
