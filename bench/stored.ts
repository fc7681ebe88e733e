/** Stores the report of a benchmark, and its page if it has one of its own. */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { buildDigest } from '../src/shell/package.ts';
import { type BenchContext, type BenchReport, machine } from './harness.ts';

/** Runs in NAME.json of the folder `out` that the same build made on this machine with the settings
 *  of a wanted cell. */
export function keptRuns<C, R extends { readonly cell: C }>(
  { out, say }: Pick<BenchContext, 'out' | 'say'>,
  name: string,
  wanted: readonly C[],
): R[] {
  const path = out === undefined ? undefined : join(out, `${name}.json`);
  if (path === undefined || !existsSync(path)) return [];
  const report = JSON.parse(readFileSync(path, 'utf8')) as BenchReport & { readonly runs: readonly R[] };
  if (report.build !== buildDigest() || JSON.stringify(report.machine) !== JSON.stringify(machine()))
    return [];
  const texts = new Set(wanted.map((cell) => JSON.stringify(cell)));
  const kept = report.runs.filter(({ cell }) => texts.has(JSON.stringify(cell)));
  say(`${kept.length} runs of an earlier call of this build are kept`);
  return kept;
}

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
