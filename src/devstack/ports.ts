/** Selection of free ports on 127.0.0.1. */
import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../core/errors.ts';

export const LOOPBACK = '127.0.0.1';

// Below the ephemeral range: an outgoing connection could take a port between check and use.
const FREE_PORT_FIRST = 20_000;
const FREE_PORT_END = 32_000;
const ATTEMPTS_MAX = 200;
/** A killed server may hold its port until its last threads end. */
const RELEASE_MS = 5_000;
const POLL_MS = 20;

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ host: LOOPBACK, port, exclusive: true }, () => server.close(() => resolve(true)));
  });
}

/** True if no process listens on the port, or stops listening within RELEASE_MS. */
export async function isReleased(port: number): Promise<boolean> {
  const deadline = performance.now() + RELEASE_MS;
  while (!(await canListen(port))) {
    if (performance.now() > deadline) return false;
    await sleep(POLL_MS);
  }
  return true;
}

/** Random port that no process listens on and that is not in `taken`. */
export async function freePort(taken: ReadonlySet<number> = new Set()): Promise<number> {
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    const port = randomInt(FREE_PORT_FIRST, FREE_PORT_END);
    if (!taken.has(port) && (await canListen(port))) return port;
  }
  throw coreError('busy_port', `no free port between ${FREE_PORT_FIRST} and ${FREE_PORT_END}`, {
    next: 'stop some servers or give ports by flag',
  });
}

/** The requested port, else the previous port if it is free, else a free port.
 *  @throws busy_port if the requested port is taken */
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
        next: `give another ${flag}, or omit it for a free port`,
      });
    }
    port = given;
  } else if (port === undefined || taken.has(port) || !(await isReleased(port))) {
    port = await freePort(taken);
  }
  taken.add(port);
  return port;
}
