/** `millrace consumer -redrive`: writes quarantined records that can be read again to an output. */
import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { coreError, EXIT } from '../../../core/errors.ts';
import type { BrokerAdmin } from '../../../io/kafka/port.ts';
import type { KeyForm, LineForm, LineOptions } from '../../../registry/consumer/line.ts';
import { consumerMetrics } from '../../../registry/consumer/member.ts';
import {
  budgetCells,
  recordBudget,
  recordFilter,
  SelectingDecoder,
} from '../../../registry/consumer/selection.ts';
import { LineFile } from '../../../registry/consumer/sink.ts';
import { registryError } from '../../../registry/errors.ts';
import {
  LinesOutput,
  lineRecord,
  type RedriveOutput,
  sourceRecord,
} from '../../../registry/quarantine/output.ts';
import { PROGRESS_CONFIG } from '../../../registry/quarantine/progress.ts';
import {
  REDRIVE_OUTCOMES,
  Redrive,
  type RedriveTally,
  redriveMetrics,
  sumOf,
} from '../../../registry/quarantine/redrive.ts';
import { Scan } from '../../../registry/quarantine/scan.ts';
import { TopicOutput, type TopicOutputOptions } from '../../../registry/quarantine/topic-output.ts';
import { createTopics, registryClient } from '../../registry-clients/shared.ts';
import { readerOf, recordDecoding } from '../decoding.ts';
import { type ConsumerOutput, outputOf } from '../plan.ts';
import type { ConsumerContext } from '../settings.ts';
import { outputSpec } from '../topics.ts';
import { filterOf, type OpenQuarantine, openQuarantine, type QuarantineTopics, topicsOf } from './open.ts';

type Output = ConsumerOutput | { readonly kind: 'source' };

/** @throws usage, bad_value */
function redriveOutput({ settings }: ConsumerContext, topics: QuarantineTopics): Output {
  const out = settings.out ?? 'source';
  if (out === 'source') return { kind: 'source' };
  const output = outputOf(out);
  if (output === undefined)
    throw coreError('bad_value', '-out=none with -redrive would write nothing', {
      next: 'give source, kafka:TOPIC, a file or -; -dry-run counts without writing',
    });
  if (output.kind === 'kafka' && Object.values(topics).includes(output.topic))
    throw coreError('bad_value', `-out=${out} would write JSON lines into ${output.topic}`, {
      next: 'give -out=source to write the records back to their topic, or another topic',
    });
  if (output.kind === 'stdout' && settings.json)
    throw coreError('usage', '-json and -out=- both write to stdout', {
      next: 'give another -out, or leave -json out',
    });
  if (output.kind !== 'kafka' && settings.lines !== 'record')
    throw coreError('usage', `-lines=${settings.lines} has no place for the id of a redriven record`, {
      next: 'leave -lines out; jq .value prints the value of each line',
    });
  return output;
}

const labelOf = (output: Output): string => {
  switch (output.kind) {
    case 'source':
      return 'source';
    case 'kafka':
      return `kafka:${output.topic}`;
    case 'file':
      return output.path;
    case 'stdout':
      return 'stdout';
  }
};

const writeStdout = (text: string): Promise<void> =>
  new Promise((resolve) => process.stdout.write(text, () => resolve()));

/** Notes the lines that a file has. */
async function readLines(path: string, output: LinesOutput): Promise<void> {
  try {
    const lines = createInterface({ input: createReadStream(path), crlfDelay: Number.POSITIVE_INFINITY });
    for await (const line of lines) output.note(line);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw coreError('not_writable', `cannot read ${path}: ${(cause as Error).message}`, {
      next: 'give -out=file:PATH of a file that this user may read and write',
      cause,
    });
  }
}

async function openLines(
  context: ConsumerContext,
  output: Output & { readonly kind: 'file' | 'stdout' },
  line: LineOptions,
): Promise<RedriveOutput> {
  const dry = context.settings['dry-run'];
  if (output.kind === 'stdout') return new LinesOutput(line, dry ? undefined : writeStdout);
  // Opening removes a line that a killed process left unfinished, before the ids are read.
  const file = dry ? undefined : await LineFile.open(output.path);
  if (file !== undefined) context.onClose(() => file.close());
  const lines = new LinesOutput(line, file === undefined ? undefined : (text) => file.append(text));
  await readLines(output.path, lines);
  return lines;
}

/** Creates the progress topic, or checks that it keeps every record. @throws progress_unfit */
async function prepareProgress(
  context: ConsumerContext,
  admin: BrokerAdmin,
  topic: string,
  exists: boolean,
): Promise<void> {
  const unfit = (why: string): Error =>
    registryError('progress_unfit', `topic ${topic} cannot keep the progress of a redrive: ${why}`, {
      next: 'create it with 1 partition and cleanup.policy=compact, or delete it and leave -create-topics on',
    });
  if (!exists) {
    if (!context.settings['create-topics']) throw unfit('it does not exist');
    await createTopics(context, admin, [{ topic, partitions: 1, config: PROGRESS_CONFIG }]);
    return;
  }
  const found = await admin.describeTopic(topic);
  if (found !== undefined && found.partitions !== 1) throw unfit(`it has ${found.partitions} partitions`);
  const policy = found?.config?.get('cleanup.policy');
  if (policy !== undefined && policy !== 'compact') throw unfit(`its cleanup.policy is ${policy}`);
}

async function openTopicOutput(
  context: ConsumerContext,
  opened: OpenQuarantine,
  topics: QuarantineTopics,
  output: Output & { readonly kind: 'source' | 'kafka' },
  line: LineOptions,
): Promise<RedriveOutput> {
  const { settings, clock } = context;
  const dry = settings['dry-run'];
  const source = opened.topics.get(topics.topic);
  if (output.kind === 'source' && source === undefined)
    throw coreError('unreachable', `topic ${topics.topic} does not exist`, {
      next: 'create it, or give another -out',
    });
  const hasProgress = opened.topics.has(topics.progress);
  if (!dry) {
    if (output.kind === 'kafka')
      await createTopics(context, opened.admin, [outputSpec(output.topic, settings['batch-bytes'])]);
    await prepareProgress(context, opened.admin, topics.progress, hasProgress);
  }
  const options: TopicOutputOptions = {
    scan: opened.scan,
    clock,
    quarantineTopic: topics.quarantine,
    name: labelOf(output),
    topic: output.kind === 'kafka' ? output.topic : topics.topic,
    record: output.kind === 'kafka' ? lineRecord(line) : sourceRecord(source?.partitions.length ?? 0),
  };
  if (dry) return TopicOutput.dry(options, hasProgress);
  const into = await TopicOutput.open(options);
  context.onClose(() => into.close());
  return into;
}

interface Summary {
  readonly topics: QuarantineTopics;
  readonly output: Output;
  readonly tally: RedriveTally;
  readonly deleted: number;
  readonly isWhole: boolean;
}

function summarize(context: ConsumerContext, { topics, output, tally, deleted, isWhole }: Summary): void {
  const dry = context.settings['dry-run'];
  const [redriven, repeated, failed, refused] = REDRIVE_OUTCOMES.map((outcome) => sumOf(tally, outcome));
  const target = output.kind === 'source' ? topics.topic : labelOf(output);
  const left = [
    `${failed} still cannot be read`,
    ...(refused === 0 ? [] : [`${refused} were refused by the output`]),
    ...(tally.skipped === 0 ? [] : [`${tally.skipped} were not selected`]),
    ...(tally.otherTopics === 0 ? [] : [`${tally.otherTopics} are of other topics`]),
    ...(tally.foreign === 0 ? [] : [`${tally.foreign} have no quarantine headers`]),
    ...(deleted === 0 ? [] : [`${deleted} were deleted by retention before they were read`]),
  ];
  const verb = dry ? 'would redrive' : 'redrove';
  const text = `${verb} ${redriven} records of ${topics.quarantine} to ${target}; ${repeated} were redriven before; ${left.join('; ')}`;
  const document = {
    topic: topics.topic,
    quarantineTopic: topics.quarantine,
    out: labelOf(output),
    dryRun: dry,
    complete: isWhole,
    records: tally.read,
    redriven,
    repeated,
    failed,
    refused,
    skipped: tally.skipped,
    otherTopics: tally.otherTopics,
    foreign: tally.foreign,
    deleted,
    byReason: Object.fromEntries(tally.byReason),
  };
  if (output.kind === 'stdout' && !dry) context.log.info(document, verb);
  else context.print([text, ...reasonLines(tally)].join('\n'), document);
}

const reasonLines = ({ byReason }: RedriveTally): readonly string[] =>
  [...byReason].map(
    ([reason, counts]) =>
      `  ${reason}: ${REDRIVE_OUTCOMES.filter((outcome) => counts[outcome] > 0)
        .map((outcome) => `${counts[outcome]} ${outcome}`)
        .join(', ')}`,
  );

export async function redriveQuarantine(context: ConsumerContext): Promise<number> {
  const { settings, clock, log, drain } = context;
  const topics = topicsOf(settings);
  const output = redriveOutput(context, topics);
  const filter = filterOf(settings);
  const condition = settings.filter === undefined ? undefined : recordFilter(settings.filter);
  const client = registryClient(context);
  const reader = await readerOf(context, client);
  const opened = await openQuarantine(context, topics);
  const { decoder, keys } = await recordDecoding(context, client, reader, {
    keyForm: settings['key-format'] as KeyForm,
    namedUnions: settings.unions === 'named',
  });
  const line: LineOptions = { form: settings.lines as LineForm, keys, topic: topics.topic };
  const into =
    output.kind === 'file' || output.kind === 'stdout'
      ? await openLines(context, output, line)
      : await openTopicOutput(context, opened, topics, output, line);
  const scan = await Scan.open(opened.scan, topics.quarantine, opened.partitions);
  context.onClose(() => scan.close());
  const budget = recordBudget(budgetCells(settings.count));
  const progress =
    output.kind === 'stdout'
      ? undefined
      : context.progress({ what: `records of ${topics.quarantine}`, unit: 'records', total: scan.total });
  const redrive = new Redrive({
    scan,
    topic: topics.topic,
    filter,
    decoder: new SelectingDecoder(decoder, { filter: condition, budget, line }),
    output: into,
    metrics: redriveMetrics(context.metrics),
    consumerMetrics: consumerMetrics(context.metrics),
    clock,
    log,
    drain,
    isEnough: () => budget.isSpent,
    onRead: (records, failed) => {
      progress?.add(records);
      progress?.error(failed);
    },
  });
  context.setReady();
  const isWhole = await redrive.run();
  progress?.done();
  summarize(context, { topics, output, tally: redrive.tally, deleted: scan.deleted, isWhole });
  const { tally } = redrive;
  return sumOf(tally, 'failed') + sumOf(tally, 'refused') > 0 ? EXIT.no : EXIT.done;
}
