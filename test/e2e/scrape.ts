/** Pages of /metrics that are not older than the question: a process keeps a rendered page for a quarter of a second. */
import { until } from '../wait.ts';

/** A page that was rendered after the call: the first one that differs from the page served before. No two renderings of
 *  a process are equal, because they show its heap and its CPU time.
 *  @param ask serves the page as it is kept or rendered anew */
export async function freshPage(ask: () => Promise<string>): Promise<string> {
  const before = await ask();
  return until('another rendering of /metrics', async () => {
    const page = await ask();
    return page !== before && page;
  });
}

/** @param origin `http://host:port` or `host:port` */
export const scrape = (origin: string): Promise<string> =>
  freshPage(async () =>
    (await fetch(`${origin.startsWith('http') ? '' : 'http://'}${origin}/metrics`)).text(),
  );
