/** Page of the load of contracts, made from its JSON alone. */
import type { BenchReport } from '../harness.ts';
import { madeByText } from '../stored.ts';
import type { Flatness } from './flat.ts';
import { SCHEMAS } from './load.ts';
import { askingProcesses, type FormatRun, type Minute } from './results.ts';
import { carriedBy, codecShares, coresFor, stageCosts } from './stages.ts';

export type { FormatRun } from './results.ts';

/** JSON of the bench: a report with what was measured in each format. */
export interface ContractsReport extends BenchReport {
  readonly runs: readonly FormatRun[];
}

const TITLES = { avro: 'Avro', protobuf: 'Protobuf' } as const;
const whole = (value: number): string => Math.round(value).toLocaleString('en-US');
const percent = (share: number): string => `${(share * 100).toFixed(2)}%`;
/** JSON has no NaN: what was not measured is null there. */
const seconds = (value: number | null): string =>
  value === null || !Number.isFinite(value) ? 'not measured' : `${value.toFixed(2)} s`;

function headOf(report: ContractsReport): readonly string[] {
  const { flags = [] } = report;
  return [
    '# The load of contracts',
    '',
    '<!-- Generated from contracts.json by `npm run generate`; do not edit. -->',
    '',
    `\`millrace bench contracts -out=docs/results\`${flags.length === 0 ? '' : ` with ${flags.join(' ')}`}, ${madeByText(report)}. Each run was made once.`,
    '',
    'Rates and lags come from the end offsets of the topic and the committed offsets of the groups, read by plain clients. Broker,',
    'producers, consumers and registry share the machine. CPU is that of the processes, from the operating system; the generator and the codec are',
    'measured apart, on one thread, before the load, with the functions that producer and consumer call. [How to repeat it](../how-to/load.md).',
  ];
}

const trialRow = ({ rate, seconds: took, writtenPerSecond, lagSlope, lagMax, isFlat }: Flatness): string =>
  `| ${whole(rate)} | ${took.toFixed(0)} s | ${whole(writtenPerSecond)} | ${percent(lagSlope / rate)} | ${whole(lagMax)} | ${isFlat ? 'flat' : 'not flat'} |`;

const minuteRow = ({ fromSeconds, seconds: took, writtenPerSecond, readPerSecond, lagMax }: Minute): string =>
  `| ${fromSeconds.toFixed(0)} s | ${took.toFixed(0)} s | ${whole(writtenPerSecond)} | ${readPerSecond.map(whole).join(', ')} | ${whole(lagMax)} |`;

function stageLines({ plan, measured, codec }: FormatRun, cores: number): readonly string[] {
  const { process, total, busyCores } = stageCosts(measured);
  const shares = codecShares(codec, plan.groups);
  const rate = measured.flatness.readPerSecond;
  const row = (stage: string, value: number | null, how: string): string =>
    `| ${stage} | ${seconds(value)} | ${how} |`;
  return [
    '| stage | CPU for a million events | measured |',
    '| --- | --- | --- |',
    row('producers', process.producer, 'process'),
    row('- generator of orders', shares.generate, 'apart'),
    row('- codec: encode and frame', shares.encode, 'apart'),
    row('broker', process.broker, 'process'),
    row(`consumers, ${plan.groups} groups`, process.consumer, 'processes'),
    row(`- codec: scan and decode, ${plan.groups} times`, shares.decode, 'apart'),
    row('registry', process.registry, 'process'),
    row('all', total, 'sum'),
    '',
    ...(Number.isFinite(total)
      ? [
          `At ${whole(rate)} events a second this keeps ${busyCores.toFixed(2)} of ${cores} cores busy. With the same CPU an event and the same share of`,
          `each core, ${[4, 8].map((others) => `${others} cores carry ${whole(carriedBy(rate, cores, others))}`).join(' and ')} events a second, and 200,000 need ${coresFor(200_000, rate, cores).toFixed(1)} cores. This`,
          'holds while no stage is bound to one core: each has several threads, and each partition is read by one member of a group.',
        ]
      : [
          'The broker is not on this machine, so its CPU is not known, and nothing follows for other machines.',
        ]),
  ];
}

function rolloutLines({ rollout, plan }: FormatRun): readonly string[] {
  if (rollout === undefined) return [];
  const { rate, durationMs, verdict, reason, produced, errors, upgraded, lagMax } = rollout;
  return [
    '',
    '### Live rollout',
    '',
    `\`millrace rollout\` from version 3 to 4 of Order under BACKWARD, consumers first, with ${plan.rolloutProcesses} producer processes and`,
    `${plan.rolloutProcesses} consumer processes in each of ${plan.groups} groups, together ${plan.producers} producers and ${plan.consumers} members, at ${whole(rate)} events a`,
    `second for ${whole(durationMs / 1000)} s: ${verdict}${reason === null ? '' : ` (${reason})`}; ${whole(produced)} records written, ${whole(errors)} unreadable, ${upgraded.length} processes`,
    `replaced, lag of all groups up to ${whole(lagMax)} records.`,
  ];
}

function runLines(run: FormatRun, cores: number): readonly string[] {
  const { plan, trials, measured, ended } = run;
  const { flatness, minutes, lookups, misses, valueBytes } = measured;
  return [
    '',
    `## ${TITLES[plan.format]}`,
    '',
    `${plan.producers} producers in one process, ${plan.consumers} consumers in ${plan.groups} groups of one process each, ${plan.partitions} partitions, values of ${whole(valueBytes)}`,
    `bytes: **${whole(flatness.readPerSecond)} events a second** end to end for ${whole(flatness.seconds)} s, and the lag grew by ${percent(flatness.lagSlope / flatness.rate)} of the rate${flatness.isFlat ? '' : ', which is **not flat**'}.`,
    '',
    `- ${whole(ended.produced)} records acknowledged, ${whole(ended.written)} in the topic, ${ended.consumed.map(whole).join(' and ')} read by the groups, ${whole(ended.unreadable)} unreadable.`,
    `- The registry answered ${ended.registryCalls} requests; the bound is ${askingProcesses(plan)} processes x ${SCHEMAS} schemas. ${whole(misses)} of ${whole(lookups)} lookups under load missed a cache.`,
    '',
    ...(trials.length === 0
      ? []
      : [
          '### Search',
          '',
          '| rate asked for | time | written a second | growth of the lag | largest lag | |',
          '| --- | --- | --- | --- | --- | --- |',
          ...trials.map(trialRow),
          '',
        ]),
    '### By the minute',
    '',
    '| from | time | written a second | read a second by each group | largest lag |',
    '| --- | --- | --- | --- | --- |',
    ...minutes.map(minuteRow),
    '',
    '### CPU by stage',
    '',
    ...stageLines(run, cores),
    ...rolloutLines(run),
  ];
}

/** Makes docs/results/contracts.md. */
export function contractsPage(report: ContractsReport): string {
  const { cores } = report.machine;
  return `${[...headOf(report), ...report.runs.flatMap((run) => runLines(run, cores))].join('\n')}\n`;
}
