/** Reads metrics pages of running processes. */

export async function metricsOf(address: string): Promise<string> {
  return (await fetch(`http://${address}/metrics`)).text();
}

/** Sum of a metric's series. */
export function metricTotal(page: string, name: string): number {
  return [...page.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'gm'))].reduce(
    (sum, match) => sum + Number(match[1]),
    0,
  );
}
