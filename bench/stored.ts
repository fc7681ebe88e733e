/** Stores the report of a benchmark, and its page if it has one of its own. */
import { mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { BenchReport } from './harness.ts';

/** Writes NAME.json, and NAME.md for a page, into a folder. Each replaces the file before by a
 *  rename, so that a killed run leaves whole files.
 *  @param plots further files of the page, by name */
export function storeReport(
  folder: string,
  report: BenchReport,
  page?: string,
  plots: Readonly<Record<string, string>> = {},
): void {
  mkdirSync(folder, { recursive: true });
  for (const [name, text] of [
    [`${report.bench}.json`, `${JSON.stringify(report, null, 1)}\n`],
    ...(page === undefined ? [] : [[`${report.bench}.md`, page] as const]),
    ...Object.entries(plots),
  ] as const) {
    const path = join(folder, name);
    writeFileSync(`${path}.part`, text);
    renameSync(`${path}.part`, path);
  }
}
