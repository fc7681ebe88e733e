/** Typed arrays of a kind that the Node-API of the running Node.js does not know, such as
 *  Float16Array in some versions. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { projectRoot } from '../repository/root.ts';
import { includeFolder, type RawFunction, thrownBy } from './kit.ts';

const scratch = mkdtempSync(join(tmpdir(), 'millrace-array-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

function build(name: string, defines: readonly string[]): Record<'bytesOf' | 'float64sOf', RawFunction> {
  const path = join(scratch, `${name}.node`);
  const native = join(projectRoot, 'native');
  const sources = [join(projectRoot, 'test', 'seam', 'unknown-array.cc'), join(native, 'binding', 'args.cc')];
  const flags = ['-std=c++20', '-shared', '-fPIC', `-I${native}`, `-I${includeFolder()}`, '-DNAPI_VERSION=9'];
  const built = spawnSync(process.env['CXX'] ?? 'c++', [...flags, ...defines, ...sources, '-o', path], {
    encoding: 'utf8',
  });
  expect(built.stderr).toBe('');
  return createRequire(import.meta.url)(path) as Record<'bytesOf' | 'float64sOf', RawFunction>;
}

it('a typed array of unknown kind is refused, and its cells are not counted as 8 bytes', () => {
  const array = new Float64Array(4);
  const known = build('known', []);
  expect([known.bytesOf(array), known.float64sOf(array)]).toEqual([32, 4]);
  const unknown = build('unknown', ['-Dnapi_get_typedarray_info=unknown_kind']);
  const wrongType = { name: 'TypeError', code: 'ERR_INVALID_ARG_TYPE' };
  expect(thrownBy(() => unknown.bytesOf(array))).toEqual(wrongType);
  expect(thrownBy(() => unknown.float64sOf(array))).toEqual(wrongType);
  expect(unknown.bytesOf(array.buffer)).toBe(32);
});
