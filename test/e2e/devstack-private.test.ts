/** A clone below a folder that only its owner may enter: PostgreSQL runs as another user and must
 *  still reach its files. */
import { chmodSync, cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { postgresBinaries } from '../../src/devstack/postgres/binaries.ts';
import { formatPostgres } from '../../src/devstack/postgres/server.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-private-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it('PostgreSQL is formatted with programs and data below a folder of mode 0700', async () => {
  chmodSync(folder, 0o700);
  const stack = join(folder, 'stack');
  mkdirSync(join(stack, 'run'), { recursive: true });
  const installed = postgresBinaries(join(stack, 'run'));
  const native = dirname(dirname(installed.initdb));
  const copy = join(folder, 'native');
  cpSync(native, copy, { recursive: true, verbatimSymlinks: true });
  const moved = (path: string): string => path.replace(native, copy);
  const binaries = { ...installed, initdb: moved(installed.initdb), postgres: moved(installed.postgres) };
  await expect(
    formatPostgres({ folder: stack, binaries, password: 'secret', ephemeral: true }),
  ).resolves.toBeUndefined();
});
