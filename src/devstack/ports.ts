/** Ports of 127.0.0.1. */
import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../core/errors.ts';

export const LOOPBACK = '127.0.0.1';

// Below the range that systems give to outgoing connections, which could take a port between the
// look and the use.
const FREE_PORT_FIRST = 20_000;
const FREE_PORT_END = 32_000;
const ATTEMPTS_MAX = 200;
/** A killed server that is gone by name may hold its port for as long as its last threads end. */
const RELEASE_MS = 5_000;
const POLL_MS = 20;

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ host: LOOPBACK, port, exclusive: true }, () => server.close(() => resolve(true)));
  });
}

/** Whether nobody listens on the port, or soon nobody does. */
export async function isReleased(port: number): Promise<boolean> {
  const deadline = performance.now() + RELEASE_MS;
  while (!(await canListen(port))) {
    if (performance.now() > deadline) return false;
    await sleep(POLL_MS);
  }
  return true;
}

/** A port that nobody listens on, and none of `taken`. */
export async function freePort(taken: ReadonlySet<number> = new Set()): Promise<number> {
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    const port = randomInt(FREE_PORT_FIRST, FREE_PORT_END);
    if (!taken.has(port) && (await canListen(port))) return port;
  }
  throw coreError('busy_port', `no free port between ${FREE_PORT_FIRST} and ${FREE_PORT_END}`, {
    next: 'end some servers or give ports by flag',
  });
}

/** The port asked for, the one used before when it is still free, or a free one.
 *  @throws busy_port when the port asked for is taken */
export async function choosePort(
  flag: string,
  given: number | undefined,
  before: number | undefined,
  taken: Set<number>,
): Promise<number> {
  let port = before;
  if (given !== undefined) {
    const isFree = given === before ? isReleased : canListen;
    if (taken.has(given) || !(await isFree(given))) {
      throw coreError('busy_port', `port ${given} of ${LOOPBACK} is in use`, {
        next: `give another ${flag}, or leave it out for a free one`,
      });
    }
    port = given;
  } else if (port === undefined || taken.has(port) || !(await isReleased(port))) {
    port = await freePort(taken);
  }
  taken.add(port);
  return port;
}
