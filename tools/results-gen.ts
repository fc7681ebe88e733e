/** Generates docs/results/README.md from the JSON files of full benchmark runs in the same folder:
 *  `millrace bench NAME -json > docs/results/NAME.json`, then `npm run generate`. The cells of the
 *  rollout bench, the sweep, the comparison with other engines, the load of contracts, the
 *  replays, the runs of chaos and the legs of volume have pages of their own. The plot of the
 *  comparison is also in README.md, chosen rows in figures.md and README.md. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type ChaosBenchReport, chaosRunsPage } from '../bench/chaos/page.ts';
import { type ContractsReport, contractsPage } from '../bench/contracts/page.ts';
import type { BenchReport, BenchResult } from '../bench/harness.ts';
import { type ReplayReport, replayPage } from '../bench/replay/page.ts';
import { type RolloutReport, rolloutPage } from '../bench/rollout/page.ts';
import { peersPage, withPeers } from '../bench/side-by-side/page.ts';
import { peersPlots } from '../bench/side-by-side/plot.ts';
import type { PeersReport } from '../bench/side-by-side/report.ts';
import { madeByText } from '../bench/stored.ts';
import { type SweepReport, sweepPage, sweepPlots } from '../bench/sweep/page.ts';
import { type VolumeReport, volumePage } from '../bench/volume/page.ts';
import { packageRoot } from '../src/shell/package.ts';
import { withFigures, withReadmeFigures } from './figures.ts';

const FOLDER = 'docs/results';
const PAGE = `${FOLDER}/README.md`;

/** Rounds to three significant digits and groups thousands. */
function short(value: number | null): string {
  if (value === null) return '';
  const rounded = Number(value.toPrecision(3));
  return rounded.toLocaleString('en-US', { maximumFractionDigits: 3 });
}

/** Values of the single runs, if a result lists them. */
const runsOf = ({ runs = [] }: BenchResult): string =>
  runs.length > 1 ? ` (${runs.map(short).join(', ')})` : '';

const verdict = (met: boolean | null): string => (met === null ? '' : met ? 'met' : '**missed**');

/** A row as cells, with the values of its single runs if asked for. */
const tableRow = (row: BenchResult, runs = ''): string =>
  `| ${row.metric} | ${short(row.value)} ${row.unit}${runs} | ${Math.round(row.spread * 100)}% | ${row.against ?? ''} | ${short(row.against_value)} | ${short(row.ratio)} | ${row.goal ?? ''} | ${verdict(row.met)} |`;

function section(name: string, report: BenchReport): string[] {
  const flags = (report.flags ?? []).map((flag) => ` ${flag}`).join('');
  return [
    `## ${name}`,
    '',
    `\`millrace bench ${report.bench}${flags} -json\`, ${madeByText(report)}`,
    '',
    '| what | value | spread | beside | its value | ratio | goal | |',
    '| --- | --- | --- | --- | --- | --- | --- | --- |',
    ...report.results.map((row) => tableRow(row, runsOf(row))),
    '',
  ];
}

/** The page of figures with its tables. */
function figuresFile(reports: ReadonlyMap<string, BenchReport>): readonly [string, string] {
  const path = `${FOLDER}/figures.md`;
  return [
    path,
    withFigures(readFileSync(join(packageRoot(), path), 'utf8'), reports, (row) => tableRow(row)),
  ];
}

/** The README with its generated parts. */
function readmeFile(
  reports: ReadonlyMap<string, BenchReport>,
  peers: PeersReport | undefined,
): readonly [string, string] {
  const readme = readFileSync(join(packageRoot(), 'README.md'), 'utf8');
  return ['README.md', withReadmeFigures(withPeers(readme, peers), reports, short)];
}

/** The page of the comparison with its plots. */
const peersFiles = (report: PeersReport): readonly (readonly [string, string])[] => [
  [`${FOLDER}/engine-peers.md`, peersPage(report)],
  ...Object.entries(peersPlots(report)).map(([name, text]) => [`${FOLDER}/${name}`, text] as const),
];

/** The pages, by their paths from the project's root. */
export function generateResults(): ReadonlyMap<string, string> {
  const folder = join(packageRoot(), FOLDER);
  const reports = readdirSync(folder)
    .filter((name) => name.endsWith('.json'))
    .sort()
    .map((name) => ({
      name: name.replace(/\.json$/, ''),
      report: JSON.parse(readFileSync(join(folder, name), 'utf8')) as BenchReport,
    }));
  const lines = [
    '# Results',
    '',
    '<!-- Generated from the JSON files beside it by `npm run generate`; do not edit. -->',
    '',
    'Medians of the repeats that the command makes; both sides run in turn in one process tree on one shared and noisy',
    'machine, so the ratio is what holds elsewhere. The spread is (largest - smallest) / median of our side; in parentheses',
    'each run, where the runs are listed.',
    '',
    ...reports.flatMap(({ name, report }) => section(name, report)),
  ];
  const reportOf = (bench: string): BenchReport | undefined =>
    reports.find(({ report }) => report.bench === bench)?.report;
  const [cells, load, replays] = [reportOf('rollout'), reportOf('contracts'), reportOf('replay')];
  const [chaos, sweep] = [reportOf('chaos'), reportOf('sweep') as SweepReport | undefined];
  const volume = reportOf('volume');
  const peers = reportOf('engine-peers') as PeersReport | undefined;
  const byName = new Map(reports.map(({ name, report }) => [name, report]));
  return new Map([
    readmeFile(byName, peers),
    ...(peers === undefined ? [] : peersFiles(peers)),
    figuresFile(byName),
    [PAGE, `${lines.join('\n').trimEnd()}\n`],
    ...(cells === undefined ? [] : [[`${FOLDER}/rollout.md`, rolloutPage(cells as RolloutReport)] as const]),
    ...(load === undefined
      ? []
      : [[`${FOLDER}/contracts.md`, contractsPage(load as ContractsReport)] as const]),
    ...(chaos === undefined
      ? []
      : [[`${FOLDER}/chaos.md`, chaosRunsPage(chaos as ChaosBenchReport)] as const]),
    ...(volume === undefined ? [] : [[`${FOLDER}/volume.md`, volumePage(volume as VolumeReport)] as const]),
    ...(sweep === undefined
      ? []
      : [
          [`${FOLDER}/sweep.md`, sweepPage(sweep)] as const,
          ...Object.entries(sweepPlots(sweep)).map(([name, text]) => [`${FOLDER}/${name}`, text] as const),
        ]),
    ...(replays === undefined ? [] : [[`${FOLDER}/replay.md`, replayPage(replays as ReplayReport)] as const]),
  ]);
}

if (process.argv[1] !== undefined && fileURLToPath(import.meta.url) === process.argv[1]) {
  for (const [path, text] of generateResults()) writeFileSync(join(packageRoot(), path), text);
}
