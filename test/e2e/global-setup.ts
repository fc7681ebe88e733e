/** Starts one real Kafka and PostgreSQL for a whole test run, on first demand.
 *
 *  The vitest process listens on 127.0.0.1 and passes the port to the test processes. The first
 *  connection makes it start an ephemeral stack; every connection gets the same addresses. A run of
 *  unit tests alone therefore starts nothing, and no lock is needed. The stack has one owner: it
 *  ends with the vitest process, also after SIGKILL, and its folder is removed. */

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

let server: Server | undefined;
let starting: Promise<Stack> | undefined;

/** The servers run for seconds only, so the optimizing compiler of the JVM would cost more than it
 *  saves. */
const JAVA_OPTIONS = '-XX:TieredStopAtLevel=1';

/** Nothing of this database outlives the run, so its writes need not be durable. */
async function disableFsync(postgres: string): Promise<void> {
  const client = new pg.Client({ connectionString: postgres });
  await client.connect();
  await client.query('ALTER SYSTEM SET fsync = off');
  await client.query('SELECT pg_reload_conf()');
  await client.end();
}

async function start(): Promise<Stack> {
  const stack = await startOwned(undefined);
  await disableFsync(stack.postgres);
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
  // Inherited by the test processes and their child processes.
  process.env['JAVA_TOOL_OPTIONS'] ??= JAVA_OPTIONS;
  server = createServer((socket) => {
    socket.on('error', () => {});
    void answer().then((document) => socket.end(JSON.stringify(document)));
  });
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  server.unref();
  project.provide('stackDoor', (server.address() as AddressInfo).port);
}

export async function teardown(): Promise<void> {
  server?.close();
  const stack = await starting?.catch(() => undefined);
  await stack?.close();
}
