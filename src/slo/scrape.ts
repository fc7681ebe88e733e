/** Scrapes the metrics pages of several processes at an interval. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '../core/clock.ts';
import { coreError } from '../core/errors.ts';
import type { Logger } from '../core/log.ts';
import { textOf } from '../shell/fetch-text.ts';
import { EXPOSITION_BYTES_MAX, parseExposition, type ScrapedPage } from './exposition.ts';
import type { Scraped } from './judge.ts';

/** Returns the address of the metrics page for `host:port`, `http://host:port` or a complete
 *  address. @throws bad_value */
export function metricsAddress(text: string): string {
  const whole = /^https?:\/\//i.test(text) ? text : `http://${text}`;
  const url = URL.canParse(whole) && (whole === text || !text.includes('://')) ? new URL(whole) : undefined;
  if (url === undefined || url.hostname === '' || (!/^https?:/i.test(text) && !/:\d+(\/|$)/.test(text))) {
    throw coreError('bad_value', `-scrape=${text} is not an address`, {
      next: 'give http://host:port, separated by commas',
    });
  }
  if (url.pathname === '/') url.pathname = '/metrics';
  return url.href;
}

export interface ScrapeOptions {
  readonly targets: readonly string[];
  /** Names of the families whose samples are kept. */
  readonly keep: ReadonlySet<string>;
  readonly forMs: number;
  readonly everyMs: number;
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly log: Logger;
  /** Ends the scrapes early; the pages that were read so far count. */
  readonly drain: AbortSignal;
  readonly onRound: (scrapes: number, failed: number) => void;
}

interface Series {
  readonly target: string;
  readonly scrapes: Array<{ readonly atMs: number; readonly page: ScrapedPage }>;
  failed: number;
}

/** Scrapes all targets. @throws unreachable, wrong_server if a target does not answer the first
 *  time */
export async function scrape(
  options: ScrapeOptions,
): Promise<ReadonlyArray<Scraped & { readonly failed: number }>> {
  const { clock, drain, forMs, everyMs } = options;
  const all: readonly Series[] = options.targets.map((target) => ({ target, scrapes: [], failed: 0 }));
  const startMs = clock.monotonicMs();
  await round(all, options, true);
  for (let next = 1; forMs > 0 && !drain.aborted; next++) {
    const dueMs = Math.min(startMs + forMs, startMs + next * everyMs);
    await sleep(Math.max(0, dueMs - clock.monotonicMs()), undefined, { signal: drain }).catch(() => {});
    // The last scrape is at the end of the time, even if the time was cut short.
    await round(all, options, false);
    if (dueMs >= startMs + forMs) break;
  }
  return all;
}

async function round(all: readonly Series[], options: ScrapeOptions, first: boolean): Promise<void> {
  const outcomes = await Promise.all(
    all.map(async (one): Promise<boolean> => {
      const { target } = one;
      try {
        const text = await textOf(target, {
          timeoutMs: options.timeoutMs,
          bytesMax: EXPOSITION_BYTES_MAX,
          accept: 'text/plain',
        }).catch((cause: unknown) => {
          throw coreError('unreachable', `${target} cannot be read: ${(cause as Error).message}`, {
            next: 'give the addresses that the commands print when they start',
            cause,
          });
        });
        one.scrapes.push({
          atMs: options.clock.monotonicMs(),
          page: parseExposition(text, target, options.keep),
        });
        return true;
      } catch (thrown) {
        if (first) throw thrown;
        one.failed++;
        options.log.warn({ target, error: (thrown as Error).message }, 'scrape failed');
        return false;
      }
    }),
  );
  options.onRound(outcomes.filter(Boolean).length, outcomes.filter((one) => !one).length);
}
