/** Readiness of a stack's servers, and proof that they belong to the folder. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../core/errors.ts';
import { stackError } from './errors.ts';
import { tailOf } from './files.ts';
import { internalTls } from './kafka/security.ts';
import type { KafkaNode } from './kafka/server.ts';
import { askBroker } from './kafka/wire.ts';
import { LOOPBACK } from './ports.ts';
import { askSystemId } from './postgres/server.ts';
import { isAlive } from './process.ts';
import { postgresAt, type ServerState, type StackIdentity } from './state.ts';

const ASK_TIMEOUT_MS = 2_000;
const POLL_MS = 25;
const LOG_LINES_SHOWN = 3;

function wrongServer(what: string, expected: string, found: string): Error {
  return coreError(
    'wrong_server',
    `${what} answers as ${found}, but the folder was formatted as ${expected}; nothing was written to it`,
    {
      next: 'free the port, or remove the folder to start with an empty stack',
    },
  );
}

/** True if a broker is ready. @throws wrong_server if the answer identifies another cluster */
export async function brokerReady(
  folder: string,
  node: KafkaNode,
  identity: StackIdentity,
): Promise<boolean> {
  const { security } = identity;
  const view =
    security === undefined || node.internalPort === undefined
      ? await askBroker(LOOPBACK, node.port, ASK_TIMEOUT_MS)
      : await askBroker(LOOPBACK, node.internalPort, ASK_TIMEOUT_MS, internalTls(folder, security));
  if (view === undefined || view.clusterId === undefined) return false;
  if (view.clusterId !== identity.kafkaClusterId) {
    throw wrongServer(
      `the broker on port ${node.port}`,
      `cluster ${identity.kafkaClusterId}`,
      `cluster ${view.clusterId}`,
    );
  }
  return view.brokers.length === identity.kafkaNodes && view.brokers.some((one) => one.id === node.id);
}

export async function postgresReady(folder: string, port: number, identity: StackIdentity): Promise<boolean> {
  const id = await askSystemId(postgresAt(folder, port, identity), ASK_TIMEOUT_MS);
  if (id === undefined) return false;
  if (id === identity.postgresSystemId) return true;
  throw wrongServer(
    `PostgreSQL on port ${port}`,
    `system ${identity.postgresSystemId}`,
    id === 'foreign' ? 'a server with another password' : `system ${id}`,
  );
}

export function serverFailed(folder: string, name: string, why: string): Error {
  const log = join(folder, 'logs', `${name}.log`);
  const tail = tailOf(log, LOG_LINES_SHOWN).replaceAll('\n', ' | ');
  return stackError('server_failed', `${name} ${why}${tail === '' ? '' : `: ${tail}`}`, {
    next: `see ${log}`,
    details: { portTaken: /Address already in use|could not bind|BindException/.test(tailOf(log, 200)) },
  });
}

export async function waitReady(
  options: { readonly startTimeoutMs: number; readonly signal: AbortSignal | undefined },
  folder: string,
  server: ServerState,
  ready: () => Promise<boolean>,
): Promise<void> {
  const deadline = performance.now() + options.startTimeoutMs;
  while (!(await ready())) {
    if (options.signal?.aborted === true)
      throw coreError('interrupted', 'interrupted while the stack was starting');
    if (!isAlive(server.process)) throw serverFailed(folder, server.name, 'ended while it was starting');
    if (performance.now() > deadline)
      throw serverFailed(folder, server.name, `was not ready after ${options.startTimeoutMs} ms`);
    await sleep(POLL_MS);
  }
}
