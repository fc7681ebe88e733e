/** One real Kafka and PostgreSQL for a whole test run, started on first demand.
 *
 *  The process that runs vitest opens a door on 127.0.0.1 and tells its address to the test
 *  processes. The first that knocks makes it start an ephemeral stack; all get the same addresses.
 *  So a run of unit tests alone pays nothing, no lock is needed, and the stack has one owner: it
 *  dies with the vitest process, SIGKILL included, and its folder is removed.
 */

import type { AddressInfo } from 'node:net';
import { createServer, type Server } from 'node:net';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { findMillraceError } from '../../src/core/errors.ts';
import type { Stack } from '../../src/devstack/stack.ts';
import { startOwned } from '../fixtures/own-stack.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    stackDoor: number;
  }
}

let door: Server | undefined;
let starting: Promise<Stack> | undefined;

/** The servers that tests start live for seconds: the compiler that pays after minutes would cost
 *  more than it saves. */
const JAVA_OPTIONS = '-XX:TieredStopAtLevel=1';

/** Nothing of this database outlives the run, so what it writes need not reach the disk. */
async function writeLightly(postgres: string): Promise<void> {
  const client = new pg.Client({ connectionString: postgres });
  await client.connect();
  await client.query('ALTER SYSTEM SET fsync = off');
  await client.query('SELECT pg_reload_conf()');
  await client.end();
}

async function start(): Promise<Stack> {
  const stack = await startOwned(undefined);
  await writeLightly(stack.postgres);
  return stack;
}

async function answer(): Promise<unknown> {
  try {
    starting ??= start();
    const { folder, brokers, postgres } = await starting;
    return { folder, brokers, postgres };
  } catch (thrown) {
    return { error: findMillraceError(thrown)?.toLine() ?? String(thrown) };
  }
}

export async function setup(project: TestProject): Promise<void> {
  // The test processes, and what they start, inherit it.
  process.env['JAVA_TOOL_OPTIONS'] ??= JAVA_OPTIONS;
  door = createServer((socket) => {
    socket.on('error', () => {});
    void answer().then((document) => socket.end(JSON.stringify(document)));
  });
  await new Promise<void>((resolve) => door?.listen(0, '127.0.0.1', resolve));
  door.unref();
  project.provide('stackDoor', (door.address() as AddressInfo).port);
}

export async function teardown(): Promise<void> {
  door?.close();
  const stack = await starting?.catch(() => undefined);
  await stack?.close();
}
