/** Wait of a new client for the first answer of a broker. */
import { isFinal, unreachable } from './errors.ts';
import type { BrokerOptions } from './port.ts';

/** Limit of the first request, ms. It doubles with each further one: a request drops the late
 *  answer of the one before, and a slow broker must be heard too. */
const LIMIT_MS = 250;
/** Greatest limit of a request, ms: a refusal is seen when a request ends. */
const LIMIT_MS_MAX = 2000;
/** Pause between two requests, ms. */
const PAUSE_MS = 10;

/** Repeats a request until a broker answers, the time is over, or the brokers have refused the
 *  client for a reason that lasts.
 *  @param ask sends one request with this limit; undefined: a broker answered, else the reasons why
 *    none did, a line each
 *  @throws broker_unauthenticated, broker_untrusted, unreachable, and the errors of `ask` */
export async function reachBroker(
  options: Pick<BrokerOptions, 'brokers' | 'properties'>,
  timeoutMs: number,
  ask: (limitMs: number) => Promise<string | undefined>,
): Promise<void> {
  const endMs = performance.now() + timeoutMs;
  for (let limitMs = LIMIT_MS; ; limitMs = Math.min(2 * limitMs, LIMIT_MS_MAX)) {
    const leftMs = Math.max(1, Math.ceil(endMs - performance.now()));
    const why = await ask(Math.min(limitMs, leftMs));
    if (why === undefined) return;
    if (performance.now() >= endMs || isFinal(options.brokers, why)) throw unreachable(options, why);
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}
