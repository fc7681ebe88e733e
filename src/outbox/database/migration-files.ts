/** Numbered SQL files `0001-what-it-does.sql` of one owner, read from the package. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { coreError } from '../../core/errors.ts';
import type { Migration } from './migrations.ts';

const FILE = /^(\d{4})-([a-z0-9-]+)\.sql$/;

/** Folder that holds package.json; the same from src and from dist. */
function packageRoot(): string {
  let at = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(at, 'package.json'))) at = dirname(at);
  return at;
}

/** Migrations of an owner in the order of their numbers, which have no gaps. @throws bad_file */
export function migrationsOf(owner: 'orders' | 'payments' | 'relay'): readonly Migration[] {
  const folder = join(packageRoot(), 'src', 'outbox', owner, 'sql');
  return readdirSync(folder)
    .filter((name) => name.endsWith('.sql'))
    .sort()
    .map((name, index) => {
      const [, number, what] = FILE.exec(name) ?? [];
      if (what === undefined || Number(number) !== index + 1) {
        throw coreError('bad_file', `${join(folder, name)} is not migration ${index + 1} of ${owner}`, {
          next: 'install the package again',
        });
      }
      return {
        number: index + 1,
        name: what.replaceAll('-', ' '),
        sql: readFileSync(join(folder, name), 'utf8'),
      };
    });
}
