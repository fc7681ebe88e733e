/** Settings that demo refuses before it starts a server. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const millrace = join(import.meta.dirname, '../../../bin/millrace');

test('demo refuses to run without any slice', () => {
  const { status, stdout, stderr } = spawnSync(millrace, ['demo', '-slices='], { encoding: 'utf8' });
  expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
  expect(stderr).toMatch(/\nerror: -slices names no slice; [^\n]+ \[usage\]\n$/);
});
