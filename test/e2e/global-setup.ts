/** One real Kafka and PostgreSQL for a whole test run, started on first demand.
 *
 *  The process that runs vitest opens a door on 127.0.0.1 and tells its address to the test processes. The first that
 *  knocks makes it start an ephemeral stack; all get the same addresses. So a run of unit tests alone pays nothing, no
 *  lock is needed, and the stack has one owner: it dies with the vitest process, SIGKILL included, and its folder is
 *  removed.
 */

import type { AddressInfo } from 'node:net';
import { createServer, type Server } from 'node:net';
import type { TestProject } from 'vitest/node';
import { findMillraceError } from '../../src/core/errors.ts';
import {
  DEFAULT_KAFKA_HEAP_BYTES,
  START_TIMEOUT_MS,
  type Stack,
  startStack,
} from '../../src/devstack/stack.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    stackDoor: number;
  }
}

let door: Server | undefined;
let starting: Promise<Stack> | undefined;

function start(): Promise<Stack> {
  return startStack({
    folder: undefined,
    owned: true,
    brokerCount: 1,
    kafkaPort: undefined,
    postgresPort: undefined,
    kafkaHeapBytes: DEFAULT_KAFKA_HEAP_BYTES,
    environment: process.env,
    startTimeoutMs: START_TIMEOUT_MS,
    onStep: () => {},
    signal: undefined,
  });
}

async function answer(): Promise<unknown> {
  try {
    starting ??= start();
    const { brokers, postgres } = await starting;
    return { brokers, postgres };
  } catch (thrown) {
    return { error: findMillraceError(thrown)?.toLine() ?? String(thrown) };
  }
}

export async function setup(project: TestProject): Promise<void> {
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
