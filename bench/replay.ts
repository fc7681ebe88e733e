/** `millrace bench replay`: old records stay readable. Five corpora, each with several writer
 *  versions of Order interleaved in one partition, are written, decoded with the newest version by
 *  `consumer -replay`, and deleted.
 *
 *  With -out each finished corpus is stored immediately, and a further run of the same build runs
 *  the other corpora. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ready } from '../src/shell/children/ready.ts';
import { buildDigest } from '../src/shell/package.ts';
import { openChildren } from './children.ts';
import { type Bench, type BenchContext, type BenchResult, machine, result, seriesOf } from './harness.ts';
import { selectParts } from './parts.ts';
import { CORPORA, type CorpusResult, type CorpusWorld, runCorpus } from './replay/corpus.ts';
import { type ReplayReport, replayPage } from './replay/page.ts';
import { storeReport } from './stored.ts';

const ROWS = 100_000_000;
const SMOKE_ROWS = 20_000;
/** Records over all corpora that the requirements ask for, and least versions in a partition. */
const RECORDS_MIN = 500_000_000;
const VERSIONS_MIN = 3;

const FORMATS = ['avro', 'protobuf'] as const;

const rowsOf = ({ rows, smoke }: BenchContext): number => rows ?? (smoke ? SMOKE_ROWS : ROWS);

/** Corpora of earlier runs of this build on this machine. */
function keptOf(context: BenchContext): readonly CorpusResult[] {
  const path = context.out === undefined ? undefined : join(context.out, 'replay.json');
  if (path === undefined || !existsSync(path)) return [];
  const { build, machine: ran, rows, corpora } = JSON.parse(readFileSync(path, 'utf8')) as ReplayReport;
  const isOwn =
    build === buildDigest() && rows === rowsOf(context) && JSON.stringify(ran) === JSON.stringify(machine());
  if (!isOwn) return [];
  context.say(`${corpora.length} corpora of an earlier run of this build are kept`);
  return corpora;
}

/** True if the replay accounts for every record that the plain client counts. */
const isWhole = ({ records, replay }: CorpusResult): boolean =>
  replay.complete &&
  replay.records === records &&
  replay.decoded + replay.failed === records &&
  replay.schemas.reduce((sum, one) => sum + one.records, 0) === replay.decoded;

function resultsOf(corpora: readonly CorpusResult[], isProfile: boolean): readonly BenchResult[] {
  const total = (of: (one: CorpusResult) => number): number => corpora.reduce((sum, one) => sum + of(one), 0);
  const least = (value: number): { readonly goal?: { readonly valueAtLeast: number } } =>
    isProfile ? { goal: { valueAtLeast: value } } : {};
  const row = (
    metric: string,
    unit: string,
    better: 'more' | 'less',
    values: readonly number[],
    more: Partial<Parameters<typeof result>[0]> = {},
  ): BenchResult => result({ metric, unit, better, ours: seriesOf(values), ...more });
  const decoded = total(({ replay }) => replay.decoded);
  return [
    row('records decoded with the newest version', 'records', 'more', [decoded], least(RECORDS_MIN)),
    row('records not decoded', 'records', 'less', [total(({ replay }) => replay.failed)], {
      goal: { valueAtMost: 0 },
    }),
    row(
      'replays whose counts differ from the topic',
      'corpora',
      'less',
      [corpora.filter((one) => !isWhole(one)).length],
      { goal: { valueAtMost: 0 } },
    ),
    row(
      'least number of writer versions in a partition',
      'versions',
      'more',
      [Math.min(...corpora.map(({ replay }) => replay.schemas.length))],
      { goal: { valueAtLeast: VERSIONS_MIN } },
    ),
    row(
      'records after one of another version, least share of a corpus',
      'of 1',
      'more',
      [Math.min(...corpora.map(({ changes, sampled }) => changes / sampled))],
      { goal: { valueAtLeast: 0.5 } },
    ),
    ...FORMATS.flatMap((format) => {
      const own = corpora.filter(({ corpus }) => corpus.format === format);
      if (own.length === 0) return [];
      const each = (of: (one: CorpusResult) => number): readonly number[] => own.map(of);
      return [
        row(
          `${format}: decoded from the broker`,
          'records/s',
          'more',
          each(({ replay }) => replay.perSecond),
          { list: true },
        ),
        row(
          `${format}: CPU of the replay a record`,
          'us',
          'less',
          each(({ replay }) => replay.cpuMicrosPerRecord),
          { list: true },
        ),
      ];
    }),
  ];
}

function store(context: BenchContext, corpora: readonly CorpusResult[]): void {
  if (context.out === undefined) return;
  const { smoke, only, rows } = context;
  const flags = [
    ...(smoke ? ['-smoke'] : []),
    ...(only === undefined ? [] : [`-only=${only.join()}`]),
    ...(rows === undefined ? [] : [`-rows=${rows}`]),
  ];
  const report: ReplayReport = {
    bench: 'replay',
    build: buildDigest(),
    machine: machine(),
    ...(flags.length === 0 ? {} : { flags }),
    results: resultsOf(corpora, rowsOf(context) === ROWS && only === undefined),
    rows: rowsOf(context),
    corpora,
  };
  storeReport(context.out, report, replayPage(report));
}

export const bench: Bench = {
  name: 'replay',
  takesBrokerProperties: true,
  storesReport: true,
  summary: 'Old records stay readable: 500M records of several versions, decoded with the newest one.',
  async run(context) {
    const formats = selectParts(context.only, FORMATS);
    const wanted = CORPORA.filter(({ format }) => formats.includes(format));
    const corpora = [...keptOf(context)];
    const isMissing = ({ name }: { readonly name: string }): boolean =>
      !corpora.some(({ corpus }) => corpus.name === name);
    const children = await openChildren(context, 'replay');
    const args = ['registry', '-store=memory', '-listen=127.0.0.1:0', '-log-level=warn'];
    for (const corpus of wanted.filter(isMissing)) {
      // Each corpus has ids of its own.
      const process = children.processes.spawn('registry', args);
      const world: CorpusWorld = {
        context,
        children,
        registry: `http://${await ready('registry', process)}`,
      };
      corpora.push(await runCorpus(world, corpus, rowsOf(context)));
      process.kill('SIGTERM');
      await process.ended;
      store(context, corpora);
    }
    return resultsOf(corpora, rowsOf(context) === ROWS && context.only === undefined);
  },
};
