/** Page of the replay bench, made from its JSON alone. */
import type { BenchReport } from '../harness.ts';
import { madeByText } from '../stored.ts';
import type { CorpusResult } from './corpus.ts';

/** JSON of the bench: a report with each corpus. */
export interface ReplayReport extends BenchReport {
  /** Most records of a corpus. */
  readonly rows: number;
  readonly corpora: readonly CorpusResult[];
}

const whole = (value: number): string => Math.round(value).toLocaleString('en-US');

const rowOf = ({ corpus, replay, ...ran }: CorpusResult): string =>
  `| ${corpus.name} | ${replay.readerVersion} | ${replay.schemas.map(({ version, records }) => `${version ?? '-'}: ${whole(records)}`).join(', ')} | ${whole(replay.decoded)} | ${whole(replay.failed)} | ${ran.changes} of ${ran.sampled} | ${whole(ran.records / ran.writeSeconds)} | ${whole(replay.perSecond)} | ${replay.cpuMicrosPerRecord.toFixed(2)} µs | ${replay.decodeMicrosPerRecord.toFixed(2)} µs |`;

/** Makes docs/results/replay.md. */
export function replayPage(report: ReplayReport): string {
  const { flags = [], corpora } = report;
  const total = (of: (one: CorpusResult) => number): string =>
    whole(corpora.reduce((sum, one) => sum + of(one), 0));
  return `${[
    '# Replay of old records',
    '',
    '<!-- Generated from replay.json by `npm run generate`; do not edit. -->',
    '',
    `\`millrace bench replay -out=docs/results\`${flags.length === 0 ? '' : ` with ${flags.join(' ')}`}, ${madeByText(report)}. Each corpus was made and replayed once.`,
    '',
    `**${total(({ replay }) => replay.decoded)} of ${total(({ records }) => records)} records decoded, ${total(({ replay }) => replay.failed)} failures.** Each corpus is a topic with one partition that \`millrace gen\` writes (orders of about 512`,
    'bytes, lz4), that `millrace consumer -replay` decodes with the newest of its schema versions over all cores, and that is then deleted. The number of records is the',
    'end offset that a plain client reads. Changes are those of the schema id from one record to the next among the first ones: the versions are interleaved.',
    '[Why there are several corpora](../decisions/0083-five-corpora-stand-for-one.md); [how to replay a topic of your own](../how-to/topics-from-the-shell.md#prove-that-old-records-are-readable).',
    '',
    '| corpus | reader version | decoded by writer version | decoded | failed | changes of the version | written a second | decoded a second | CPU of the replay a record | of it decoding |',
    '| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |',
    ...corpora.map(rowOf),
  ].join('\n')}\n`;
}
