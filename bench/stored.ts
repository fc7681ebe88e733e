/** Stores the report of a benchmark, and its page if it has one of its own. */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { buildDigest } from '../src/shell/package.ts';
import { type BenchContext, type BenchReport, type Machine, machine } from './harness.ts';

/** Build and machine that made a run of a report whose runs need not be of one call. */
export interface MadeBy {
  readonly build: string;
  readonly machine: Machine;
}

/** Build and machine as the pages name them. */
export function madeByText({ build, machine }: Pick<BenchReport, 'build' | 'machine'>): string {
  const memory = `${Math.round(machine.memory_bytes / 2 ** 30)} GiB`;
  const made = build === null ? 'build not recorded' : `build ${build}`;
  return `${made}, ${machine.cores} x ${machine.cpu}, ${memory}, ${machine.os}, Node.js ${machine.node}`;
}

export const madeHere = (): MadeBy => ({ build: buildDigest(), machine: machine() });

/** Runs in NAME.json of the folder `out` with the settings of a wanted cell, by any build on any
 *  machine. A run that does not hold is kept only for the build that made it, so that a corrected
 *  build makes it again. */
export function keptRuns<C, R extends MadeBy & { readonly cell: C }>(
  { out, say }: Pick<BenchContext, 'out' | 'say'>,
  name: string,
  wanted: readonly C[],
  holds: (run: R) => boolean,
): R[] {
  const path = out === undefined ? undefined : join(out, `${name}.json`);
  if (path === undefined || !existsSync(path)) return [];
  const report = JSON.parse(readFileSync(path, 'utf8')) as BenchReport & { readonly runs: readonly R[] };
  const texts = new Set(wanted.map((cell) => JSON.stringify(cell)));
  const build = buildDigest();
  const kept = report.runs.filter(
    (run) => texts.has(JSON.stringify(run.cell)) && (run.build === build || holds(run)),
  );
  say(`${kept.length} runs of earlier calls are kept`);
  return kept;
}

/** Writes a file by a rename, so that a killed run leaves it whole. */
function replaceFile(folder: string, name: string, text: string): void {
  const path = join(folder, name);
  writeFileSync(`${path}.part`, text);
  renameSync(`${path}.part`, path);
}

/** Writes NAME.json, and NAME.md for a page, into a folder, in place of those of an earlier run.
 *  @param plots further files of the page, by name */
export function storeReport(
  folder: string,
  report: BenchReport,
  page?: string,
  plots: Readonly<Record<string, string>> = {},
): void {
  mkdirSync(folder, { recursive: true });
  replaceFile(folder, `${report.bench}.json`, `${JSON.stringify(report, null, 1)}\n`);
  if (page !== undefined) replaceFile(folder, `${report.bench}.md`, page);
  for (const [name, text] of Object.entries(plots)) replaceFile(folder, name, text);
}

/** Writes the report of a whole run into a folder. Selected parts have a file of their own,
 *  NAME-PART.json, so that they do not replace the report of all parts.
 *  @param only the selected parts; undefined: all
 *  @returns the name of the file */
export function storeParts(folder: string, report: BenchReport, only: readonly string[] | undefined): string {
  const parts = [report.bench, ...(only ?? [])].join('-');
  const name = `${parts.replaceAll(/[^\w-]/g, '_')}.json`;
  mkdirSync(folder, { recursive: true });
  replaceFile(folder, name, `${JSON.stringify(report, null, 1)}\n`);
  return name;
}
