import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { afterAll, expect, it } from 'vitest';
import { loadAddon } from '../../src/addon/load.ts';
import { until } from '../wait.ts';

const children: ChildProcess[] = [];
afterAll(() => {
  for (const child of children) child.kill('SIGKILL');
});

/** Descriptor of a pipe to the standard input of a child, which lives to the end of the tests. */
function pipeTo(...command: readonly [string, ...string[]]): number {
  const [program, ...args] = command;
  const child = spawn(program, args, { stdio: ['pipe', 'ignore', 'ignore'] });
  children.push(child);
  return (child.stdin as unknown as { readonly _handle: { readonly fd: number } })._handle.fd;
}

it('a pipe has a reader until the reader closes it', async () => {
  const { hasReader } = loadAddon();
  const read = pipeTo('cat');
  const closed = pipeTo('sh', '-c', 'exec <&-; exec sleep 1000');
  await until('the pipe without a reader', () => hasReader(closed) === 0);
  expect(hasReader(read)).toBe(1);
});

it('a file always has a reader', () => {
  const file = openSync('/dev/null', 'w');
  expect(loadAddon().hasReader(file)).toBe(1);
  closeSync(file);
});

it('a descriptor out of range is refused', () => {
  for (const fd of [-1, 2 ** 31, 1.5]) expect(() => loadAddon().hasReader(fd)).toThrow();
});
