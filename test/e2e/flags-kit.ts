/** What a process serves under /metrics, sample by sample, and databases of a test's own. */
import { afterAll } from 'vitest';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { until } from '../wait.ts';
import { scrape } from './scrape.ts';

/** Values by name and labels, as they stand on the page. */
export type Page = ReadonlyMap<string, number>;

const SAMPLE = /^([a-zA-Z_:][\w:]*(?:\{.*\})?) (\S+)$/;

export async function pageOf(address: string): Promise<Page> {
  const text = await scrape(address);
  const page = new Map<string, number>();
  for (const line of text.split('\n')) {
    const [, series, value = ''] = SAMPLE.exec(line) ?? [];
    if (series !== undefined) page.set(series, value === '+Inf' ? Number.POSITIVE_INFINITY : Number(value));
  }
  return page;
}

/** Over the series of a metric. */
export const sumOf = (page: Page, name: string): number =>
  [...page].reduce(
    (sum, [series, value]) => (series === name || series.startsWith(`${name}{`) ? sum + value : sum),
    0,
  );

/** Waits until a series has this value, and returns the page on which it has. */
export async function becomes(
  address: string,
  series: string,
  wanted: number | ((value: number) => boolean),
): Promise<Page> {
  return until(`${series} = ${wanted}`, async () => {
    const page = await pageOf(address);
    const value = page.get(series);
    if (value !== undefined && (typeof wanted === 'number' ? value === wanted : wanted(value))) return page;
    throw new Error(`${series} is ${value}`);
  });
}

/** One connection, closed after the file. */
export async function connectTo(url: string): Promise<SqlPool> {
  const pool = await pgDriver.connect({
    url,
    connectionsMax: 1,
    applicationName: 'flags test',
    connectTimeoutMs: 60_000,
  });
  afterAll(() => pool.close());
  return pool;
}

/** The address of a new database on the same server: nobody else has a session in it. */
export async function ownDatabase(postgres: string, name: string): Promise<string> {
  await (await connectTo(postgres)).query(`CREATE DATABASE ${name}`);
  const url = new URL(postgres);
  url.pathname = `/${name}`;
  return url.href;
}
