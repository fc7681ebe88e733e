/** Wake-ups over Unix sockets: every relay gets a hint of a commit, whichever side started first;
 *  calls are coalesced; no call fails. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import type { WakeScope } from '../../src/io/wake/port.ts';
import { unixWakeIn, wakeFolder } from '../../src/io/wake/unix.ts';
import { turns, until } from '../wait.ts';

const root = mkdtempSync(join(tmpdir(), 'wake-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
const driver = unixWakeIn(root);

let count = 0;
const fresh = (): WakeScope => ({
  systemIdentifier: '7575757575757575757',
  database: 'shop',
  table: `public.outbox_${count++}`,
});

it('a wake-up reaches every relay of its outbox, and no other relay', async () => {
  const scope = fresh();
  const heard = [0, 0, 0];
  const hears = (which: number) => (): void => {
    heard[which] = (heard[which] as number) + 1;
  };
  const listeners = [
    await driver.listen(scope, hears(0)),
    await driver.listen(scope, hears(1)),
    await driver.listen(fresh(), hears(2)),
  ];
  const waker = await driver.waker(scope);
  await until('a greeting at both relays', () => heard[0] === 1 && heard[1] === 1);
  waker.wake();
  await until('a wake-up of both relays', () => heard[0] === 2 && heard[1] === 2);
  expect(heard[2]).toBe(0);
  await waker.close();
  for (const one of listeners) await one.close();
  expect(readdirSync(wakeFolder(scope, root))).toEqual([]);
});

it('a waker finds a relay that starts later, and one that starts again after it was killed', async () => {
  const scope = fresh();
  const waker = await driver.waker(scope);
  waker.wake();
  let heard = 0;
  const first = await driver.listen(scope, () => heard++);
  await until('a wake-up', () => heard > 0);
  await first.close();
  // A killed relay leaves a socket file without a listener.
  const dead = join(wakeFolder(scope, root), '0123456789abcdef.sock');
  spawnSync(process.execPath, [
    '-e',
    `require('net').createServer().listen(${JSON.stringify(dead)}, () => process.kill(process.pid, 'SIGKILL'))`,
  ]);
  expect(readdirSync(wakeFolder(scope, root))).toEqual(['0123456789abcdef.sock']);
  heard = 0;
  const second = await driver.listen(scope, () => heard++);
  await until('a wake-up', () => heard > 0);
  waker.wake();
  await until(
    'a folder without the dead socket',
    () => !readdirSync(wakeFolder(scope, root)).includes('0123456789abcdef.sock'),
  );
  await waker.close();
  await second.close();
});

it('wake-ups of one turn are coalesced into one message', async () => {
  const scope = fresh();
  let heard = 0;
  const listener = await driver.listen(scope, () => heard++);
  const waker = await driver.waker(scope);
  await until('a greeting', () => heard === 1);
  const calls = 100_000;
  for (let i = 0; i < calls; i++) waker.wake();
  await until('a wake-up', () => heard >= 2);
  // A second message of that turn would arrive before the message of a later turn.
  waker.wake();
  await until('a later wake-up', () => heard >= 3);
  await turns(20);
  expect(heard).toBe(3);
  await waker.close();
  await listener.close();
  waker.wake();
});

it('a folder of wake-ups belongs to its user alone, and a missing folder is reported with a reason', async () => {
  const scope = fresh();
  const listener = await driver.listen(scope, () => {});
  expect(statSync(wakeFolder(scope, root)).mode & 0o777).toBe(0o700);
  await listener.close();
  const blocked = join(root, 'blocked');
  mkdirSync(blocked);
  writeFileSync(join(blocked, `millrace-wake-${process.getuid?.() ?? 0}`), '');
  await expect(unixWakeIn(blocked).listen(scope, () => {})).rejects.toMatchObject({ code: 'not_writable' });
  // The waker reaches no relay there, and throws no error.
  const waker = await unixWakeIn(blocked).waker(scope);
  waker.wake();
  await waker.close();
});

it('a waker is not blocked by a relay that reads nothing', async () => {
  const scope = fresh();
  const folder = wakeFolder(scope, root);
  mkdirSync(folder, { recursive: true });
  const sockets: Socket[] = [];
  const deaf = createServer((socket) => sockets.push(socket.pause()));
  await new Promise<void>((resolve) => deaf.listen(join(folder, 'fedcba9876543210.sock'), resolve));
  const waker = await driver.waker(scope);
  for (let turn = 0; turn < 2000; turn++) {
    waker.wake();
    await new Promise((resolve) => setImmediate(resolve));
  }
  await waker.close();
  for (const socket of sockets) socket.destroy();
  await new Promise((resolve) => deaf.close(resolve));
});
