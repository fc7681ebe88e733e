/** Counters of a fleet, from the metrics pages of its processes. */
import { textOf } from '../../src/shell/fetch-text.ts';
import { EXPOSITION_BYTES_MAX, parseExposition, type Sample } from '../../src/slo/exposition.ts';

const SCRAPE_MS_MAX = 20_000;

const KEPT = [
  'http_requests_total',
  'produced_records_total',
  'produced_bytes_total',
  'consumed_records_total',
  'deserialize_errors_total',
  'schema_cache_lookups_total',
  'rollout_lag_records',
  'rollout_errors',
] as const;
type Metric = (typeof KEPT)[number];

/** Samples of one or several pages. */
export class Counts {
  private readonly samples: readonly Sample[];

  constructor(samples: readonly Sample[]) {
    this.samples = samples;
  }

  total(metric: Metric, selects: (labels: Sample['labels']) => boolean = () => true): number {
    return this.samples
      .filter(({ name, labels }) => name === metric && selects(labels))
      .reduce((sum, { value }) => sum + value, 0);
  }

  /** Growth since earlier counts of the same processes. */
  since(before: Counts): Counts {
    return new Counts([...this.samples, ...before.samples.map((one) => ({ ...one, value: -one.value }))]);
  }
}

/** @param addresses host:port of each process @throws Error if a page cannot be read */
export async function countsOf(addresses: readonly string[]): Promise<Counts> {
  const pages = await Promise.all(
    addresses.map(async (address) => {
      const text = await textOf(`http://${address}/metrics`, {
        timeoutMs: SCRAPE_MS_MAX,
        bytesMax: EXPOSITION_BYTES_MAX,
        accept: 'text/plain',
      });
      return parseExposition(text, address, new Set(KEPT));
    }),
  );
  return new Counts(pages.flatMap(({ samples }) => [...samples.values()].flat()));
}

/** Routes of the registry's own service, beside those that every command serves. */
const REGISTRY_ROUTE = /^\/(schemas|subjects|config|mode|compatibility|contexts)\b/;

/** Requests of clients that the registry has answered. */
export async function registryCalls(address: string): Promise<number> {
  const counts = await countsOf([address]);
  return counts.total('http_requests_total', ({ route = '' }) => REGISTRY_ROUTE.test(route));
}
