/** A stack of a test's own, whose broker it may kill and start again on the same folder and port. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { signalProcess, waitForEnd } from '../../src/devstack/process.ts';
import {
  DEFAULT_KAFKA_HEAP_BYTES,
  START_TIMEOUT_MS,
  type Stack,
  startStack,
} from '../../src/devstack/stack.ts';
import { readState } from '../../src/devstack/state.ts';
import { locks } from '../locks.ts';

export interface OwnStack {
  /** @param kafkaPort undefined: a free one */
  start(kafkaPort: number | undefined): Promise<Stack>;
  killBroker(): Promise<void>;
  /** The one broker's process. */
  broker(): ServerProcess;
  /** Ends every server that was started, and the folder. */
  close(): Promise<void>;
}

type ServerProcess = Parameters<typeof signalProcess>[0];

const brokersOf = (folder: string): ServerProcess[] =>
  (readState(folder)?.servers ?? []).filter((one) => one.name.startsWith('kafka')).map((one) => one.process);

export function ownStack(name: string): OwnStack {
  const folder = mkdtempSync(join(tmpdir(), `millrace-${name}-`));
  const stacks: Stack[] = [];
  return {
    async start(kafkaPort) {
      const stack = await startStack({
        folder,
        owned: true,
        brokerCount: 1,
        kafkaPort,
        postgresPort: undefined,
        kafkaHeapBytes: DEFAULT_KAFKA_HEAP_BYTES,
        locks,
        environment: process.env,
        startTimeoutMs: START_TIMEOUT_MS,
        onStep: () => {},
        signal: undefined,
      });
      stacks.push(stack);
      return stack;
    },
    broker: () => brokersOf(folder)[0] as ServerProcess,
    async killBroker() {
      const servers = brokersOf(folder);
      expect(servers.length).toBe(1);
      for (const server of servers) signalProcess(server, 'SIGKILL');
      await waitForEnd(servers, 60_000);
    },
    async close() {
      for (const stack of stacks.reverse()) await stack.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
