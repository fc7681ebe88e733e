/** Page of the comparison and its part of the README, made from the stored runs alone. */
import { formatDuration } from '../../src/core/quantity.ts';
import type { BenchResult, Series } from '../harness.ts';
import { madeByText } from '../stored.ts';
import {
  allCells,
  type Cell,
  CHECKPOINT_MS,
  cellName,
  DELAY_MS,
  isBase,
  LATENESS_MS,
  SKEW_MS,
} from './cells.ts';
import { CONTESTANTS, type Name, OURS } from './contestant.ts';
import { peersPlots } from './plot.ts';
import { type PeersReport, problemsOf, type Run, Runs, SHOWN } from './report.ts';

const short = (value: number): string =>
  Number(value.toPrecision(3)).toLocaleString('en-US', { maximumFractionDigits: 3 });
const shown = (series: Series | undefined, factor = 1): string =>
  series === undefined ? '-' : short(series.median * factor);

function verdict(runs: readonly Run[]): string {
  const problems = [...new Set(runs.flatMap(problemsOf))];
  const failed = runs.flatMap(({ failed: why }) => why ?? []);
  if (problems.length > 0) return `**${problems.join('; ')}**`;
  if (failed.length > 0) return `no measurement: ${failed[0]}`;
  return 'equal';
}

function contestantRow(runs: Runs, cell: Cell, name: Name): readonly string[] {
  const own = runs.of(cell, name);
  if (own.length === 0) return [];
  const cpu = runs.cpu(cell, name);
  const base = runs.cpu(cell, 'millrace');
  const ratio = cpu === undefined || base === undefined ? '-' : short(cpu.median / base.median);
  const repeats = own.filter(({ drain }) => drain !== undefined).length;
  const cells = [
    runs.title(name),
    cpu === undefined ? '-' : short(1e6 / cpu.median),
    shown(cpu),
    shown(runs.series(cell, name, ({ drain }) => drain?.cpuAllUs)),
    ratio,
    shown(runs.series(cell, name, ({ drain }) => drain?.rate)),
    shown(runs.peak(cell, name), 1 / 1024 ** 2),
    shown(runs.firstEventMs(cell, name), 1e-3),
    shown(runs.firstResultMs(cell, name), 1e-3),
    shown(runs.recoveryMs(cell, name), 1e-3),
    String(repeats),
    verdict(own),
  ];
  return [`| ${cells.join(' | ')} |`];
}

const HEAD = [
  '| contestant | events per CPU second | CPU seconds per million events | the same with the start | of Millrace with librdkafka | events/s | peak RSS, MiB | start to the first event read, s | start to the first result, s | recovery, s | runs | results |',
  '| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |',
];

function cellSection(runs: Runs, cell: Cell): readonly string[] {
  const rows = CONTESTANTS.flatMap((name) => contestantRow(runs, cell, name));
  const title = `## ${cellName(cell)}${isBase(cell) ? ', the base cell' : ''}`;
  if (rows.length === 0) return [title, '', 'Not run.', ''];
  const made = new Set(CONTESTANTS.flatMap((name) => runs.of(cell, name)).map(madeByText));
  return [title, '', ...[...made].map((text) => `By ${text}.`), '', ...HEAD, ...rows, ''];
}

const judged = ({ goal }: BenchResult): boolean => goal !== null;

function goals(report: PeersReport): readonly string[] {
  const rows = report.results.filter(judged);
  return [
    '## Goals',
    '',
    'A ratio compares events per CPU second, bytes or seconds; above 1 Millrace is better.',
    '',
    '| what | value | beside | its value | ratio | goal | |',
    '| --- | ---: | --- | ---: | ---: | --- | --- |',
    ...rows.map(
      (row) =>
        `| ${row.metric} | ${short(row.value)} ${row.unit} | ${row.against ?? ''} | ${row.against_value === null ? '' : short(row.against_value)} | ${row.ratio === null ? '' : short(row.ratio)} | ${row.goal} | ${row.met === true ? 'met' : '**not met**'} |`,
    ),
    '',
  ];
}

function head(report: PeersReport): readonly string[] {
  const { flags = [], events } = report;
  return [
    '# The engine beside other engines',
    '',
    '<!-- Generated from engine-peers.json by `npm run generate`; do not edit. -->',
    '',
    `\`millrace bench engine-peers -out=docs/results\`${flags.length === 0 ? '' : ` with ${flags.join(' ')}`}; the runs of a cell are of one build and machine, which the cell names.`,
    '',
    `Each cell is one topic of 8 partitions with ${events.toLocaleString('en-US')} events in true order, lz4, filled before any contestant starts; a last event in each partition, an hour later, closes the windows. The contestants read it one after the`,
    'other, each with the same broker on the same cores. CPU seconds are those of all processes of a contestant, without the broker, from a third of the events to the last result; they are what noise disturbs least.',
    'Rates and times depend on what else the machine does. Results (account, bounds, count and sum of every window) are compared with a recount of the generated events, which a test compares with the oracle.',
    '',
    `Disorder is bounded by ${formatDuration(DELAY_MS)} for all: a skew of ${formatDuration(SKEW_MS)} and a lateness of ${formatDuration(LATENESS_MS)} for Millrace, one delay for the others. Checkpoints and commits are ${formatDuration(CHECKPOINT_MS)} apart. Millrace makes each result durable; the other engines write theirs to a mapped file.`,
    'Start: of the process; the bare loops do not report their first event. Recovery: from a SIGKILL at half of the events to the position of the kill, immediate restart by the same command.',
    '',
  ];
}

function settings(report: PeersReport): readonly string[] {
  return [
    '## Contestants',
    '',
    '| contestant | settings |',
    '| --- | --- |',
    ...report.contestants.map(
      ({ title, settings: text, absent }) =>
        `| ${title} | ${absent === undefined ? text : `**absent**: ${absent.replaceAll('|', '/')}`} |`,
    ),
    '',
  ];
}

/** Makes docs/results/engine-peers.md. */
export function peersPage(report: PeersReport): string {
  const runs = new Runs(report);
  const plots = Object.keys(peersPlots(report));
  const lines = [
    ...head(report),
    ...(plots.length === 0 ? [] : [...picture('.'), '']),
    ...goals(report),
    ...allCells().flatMap((cell) => cellSection(runs, cell)),
    ...settings(report),
  ];
  return `${lines.join('\n').trimEnd()}\n`;
}

const picture = (folder: string): readonly string[] => [
  '<picture>',
  `  <source media="(prefers-color-scheme: dark)" srcset="${folder}/engine-peers-dark.svg">`,
  `  <img alt="Events per CPU second of each engine" src="${folder}/engine-peers-light.svg">`,
  '</picture>',
];

const README_BEGIN = '<!-- engine-peers: generated from docs/results/engine-peers.json -->';
const README_END = '<!-- /engine-peers -->';

/** Repeats of the base cell that the README needs: a single run says little on a shared machine. */
const README_REPEATS = 3;

/** Names of the peers in the README, which is short. */
const README_NAMES = {
  'flink-heap': 'Flink heap',
  'flink-rocksdb': 'Flink RocksDB',
  'kafka-streams': 'Kafka Streams',
  'hazelcast-jet': 'Hazelcast Jet',
} as const;

/** Ratios of our clients to each peer. */
function readmeRatios(runs: Runs): readonly string[] {
  const ours = OURS.flatMap((name) => runs.cpu(SHOWN, name) ?? []);
  return Object.entries(README_NAMES).flatMap(([peer, text]) => {
    const theirs = runs.cpu(SHOWN, peer as Name);
    if (theirs === undefined || ours.length === 0) return [];
    return [`${text} ${ours.map((own) => `${short(theirs.median / own.median)}x`).join(', ')}`];
  });
}

function readmePart(report: PeersReport | undefined): readonly string[] {
  if (report === undefined || Object.keys(peersPlots(report)).length === 0) return [];
  const runs = new Runs(report);
  const measured = CONTESTANTS.flatMap((name) => runs.of(SHOWN, name)).filter(
    ({ failed }) => failed === undefined,
  );
  const equal = measured.filter((run) => problemsOf(run).length === 0);
  const repeats = Math.max(...measured.map(({ repeat }) => repeat));
  if (repeats < README_REPEATS) return [];
  return [
    ...picture('docs/results'),
    '',
    `Events per CPU second beside ${readmeRatios(runs).join('; ')} (librdkafka, direct client).`,
    `${report.events.toLocaleString('en-US')} events, at most ${repeats} runs each; ${equal.length} of ${measured.length} results equal the oracle: [memory, recovery, misses](docs/results/engine-peers.md).`,
    '',
  ];
}

/** Replaces the generated part of the README. */
export function withPeers(readme: string, report: PeersReport | undefined): string {
  const [begin, end] = [readme.indexOf(README_BEGIN), readme.indexOf(README_END)];
  if (begin < 0 || end < begin) return readme;
  const part = readmePart(report).join('\n');
  return `${readme.slice(0, begin + README_BEGIN.length)}\n${part}${readme.slice(end)}`;
}
