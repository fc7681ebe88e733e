/** A page of /metrics that is not older than the question: a process keeps its text for a quarter of a second. */
import { setTimeout as sleep } from 'node:timers/promises';
import { CACHE_MS } from '../../src/io/metrics/prom.ts';

/** Timers are no finer. */
const TIMER_MS = 2;

/** Settles when a page kept before the call is kept no more. */
export const pageIsOver = (): Promise<void> => sleep(CACHE_MS + TIMER_MS);

/** @param origin `http://host:port` or `host:port` */
export async function scrape(origin: string): Promise<string> {
  await pageIsOver();
  return (await fetch(`${origin.startsWith('http') ? '' : 'http://'}${origin}/metrics`)).text();
}
