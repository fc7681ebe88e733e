/** `millrace consumer`: reads the records of a topic, prints them as JSON lines, and quarantines
 *  unreadable ones. */
import { EXIT } from '../core/errors.ts';
import { endCells } from '../registry/consumer/ends.ts';
import { budgetCells } from '../registry/consumer/selection.ts';
import { LineFile } from '../registry/consumer/sink.ts';
import type { RegistryClient, SubjectVersion } from '../serde/client.ts';
import type { SharedRequests } from '../serde/shared-client.ts';
import { defineCommand } from '../shell/command.ts';
import { runsNative } from '../shell/drivers.ts';
import { onReaderGone } from '../shell/terminal/reader.ts';
import { partsName, shares, threadCount } from '../shell/threads/count.ts';
import { ThreadPool } from '../shell/threads/pool.ts';
import { readerOf } from './consumer/decoding.ts';
import { type ConsumerPlan, consumerPlan } from './consumer/plan.ts';
import { listQuarantine } from './consumer/quarantine/list.ts';
import { redriveQuarantine } from './consumer/quarantine/redrive.ts';
import { pinned } from './consumer/reader-schema.ts';
import { inAll, Readers, type SharedRun } from './consumer/readers.ts';
import { replayTopic } from './consumer/replay.ts';
import { CONSUMER_SETTINGS, type ConsumerContext } from './consumer/settings.ts';
import type { ConsumerJob, ConsumerResult, ConsumerState } from './consumer/thread.ts';
import { openRanges } from './consumer/topics.ts';
import { registryClient, registryRequests, threadPort } from './registry-clients/shared.ts';

const writeStdout = (text: string): Promise<void> =>
  new Promise((resolve) => process.stdout.write(text, () => resolve()));

/** Error of a write to a pipe that nothing reads; the process then ends as after such a write. */
const closedPipe = (): Error =>
  Object.assign(new Error('the reader of stdout closed the pipe'), { code: 'EPIPE' });

/** Opens the target of lines: stdout, or the file of -out. @throws not_writable */
async function textTarget(
  context: ConsumerContext,
  { output }: ConsumerPlan,
): Promise<(text: string) => Promise<void>> {
  // The addon is needed: a check without a write is a system call that Node.js does not have.
  if (output?.kind === 'stdout' && runsNative(context))
    context.onClose(onReaderGone(context.clock, () => process.stdout.emit('error', closedPipe())));
  if (output?.kind !== 'file') return writeStdout;
  const file = await LineFile.open(output.path);
  context.onClose(() => file.close());
  return (text) => file.append(text);
}

interface Tally {
  read: number;
  failed: number;
  selected: number;
}

/** Parts of a run before its readers. */
interface Opened {
  readonly plan: ConsumerPlan;
  readonly requests: SharedRequests;
  readonly client: RegistryClient;
  readonly reader: SubjectVersion | undefined;
  readonly shared: SharedRun;
  /** Instances that have something to read. */
  readonly instances: number;
  readonly writeText: (text: string) => Promise<void>;
  readonly onRows: (rows: number, failed: number, selected: number) => void;
}

/** Runs all readers on the main thread. @returns the fields of the filter that no record had */
async function runHere(context: ConsumerContext, opened: Opened): Promise<readonly string[]> {
  const { instances } = opened;
  const all = Array.from({ length: instances }, (_, instance) => instance);
  const readers = await Readers.open({ ...opened, context, instances: all, instancesAll: instances });
  context.readiness('delivery', () => delivers(readers.heldReason()));
  context.setReady();
  await readers.run();
  return readers.unseenFields;
}

/** Runs the readers on worker threads. @returns the fields of the filter that no record had */
async function runThreads(
  context: ConsumerContext,
  opened: Opened,
  threads: number,
): Promise<readonly string[]> {
  const { instances, reader, shared, requests } = opened;
  const states = new Map<number, ConsumerState>();
  const pool = new ThreadPool({
    context,
    entry: new URL('./consumer/thread.js', import.meta.url),
    jobs: shares(instances, threads).map((share) => ({
      part: partsName('instance', share),
      job: {
        shared,
        instances: share,
        instancesAll: instances,
        threads,
        reader: reader === undefined ? undefined : pinned(reader),
      } satisfies ConsumerJob,
    })),
    registryPort: () => threadPort(requests),
    answer: (_thread, text) => opened.writeText(text as string),
    onState: (thread, state) => {
      const now = state as ConsumerState | undefined;
      if (now === undefined) return;
      const { read, failed, selected } = states.get(thread) ?? { read: 0, failed: 0, selected: 0 };
      states.set(thread, now);
      opened.onRows(now.read - read, now.failed - failed, now.selected - selected);
    },
  });
  context.readiness('delivery', () =>
    delivers([...states.values()].map(({ held }) => held).find((reason) => reason !== undefined)),
  );
  await pool.ready;
  context.setReady();
  const results = await pool.run<ConsumerResult>();
  return inAll(results.map(({ unseenFields }) => unseenFields));
}

/** Readiness of the outputs. @throws the reason why a partition is held */
function delivers(held: string | undefined): true {
  if (held !== undefined) throw new Error(held);
  return true;
}

function summarize(
  context: ConsumerContext,
  { plan, reader }: Opened,
  tally: Tally,
  unseenFields: readonly string[],
): void {
  const { topic, quarantineTopic, output } = plan;
  if (tally.read > 0 && tally.selected === 0 && unseenFields.length > 0)
    context.log.warn({ fields: unseenFields }, 'no record has these fields of -filter');
  const schema = reader === undefined ? '' : ` as version ${reader.version}`;
  const unread = `${tally.failed} of them ${quarantineTopic === undefined ? 'unreadable' : `to ${quarantineTopic}`}`;
  const document = {
    topic,
    subject: plan.subject,
    readerVersion: reader?.version ?? null,
    records: tally.read,
    selected: tally.selected,
    quarantined: quarantineTopic === undefined ? 0 : tally.failed,
    unreadable: tally.failed,
    quarantineTopic: quarantineTopic ?? null,
  };
  // Lines of records may be on stdout.
  if (output?.kind === 'stdout') context.log.info(document, 'read');
  else context.print(`read ${tally.read} records of ${topic}${schema}, ${unread}`, document);
}

async function runConsumer(context: ConsumerContext): Promise<number> {
  const { settings } = context;
  if (settings.redrive) return redriveQuarantine(context);
  if (settings.quarantine) return listQuarantine(context);
  if (settings.replay) return replayTopic(context);
  const plan = consumerPlan(settings);
  const requests = registryRequests(context);
  const client = registryClient(context, requests);
  const reader = await readerOf(context, client);
  const writeText = await textTarget(context, plan);
  const ranges = await openRanges(context, plan);
  const tally: Tally = { read: 0, failed: 0, selected: 0 };
  const progress =
    plan.output?.kind === 'stdout'
      ? undefined
      : context.progress({ what: `records of ${plan.topic}`, unit: 'records' });
  const instances =
    plan.group === undefined ? Math.min(settings.instances, ranges.length) : settings.instances;
  const opened: Opened = {
    plan,
    requests,
    client,
    reader,
    shared: {
      ranges,
      ends: settings['exit-at-end'] ? endCells(ranges) : undefined,
      budget: budgetCells(settings.count),
    },
    instances,
    writeText,
    onRows: (rows, failed, selected) => {
      tally.read += rows;
      tally.failed += failed;
      tally.selected += selected;
      progress?.add(rows);
      progress?.error(failed);
    },
  };
  const threads = threadCount(context, instances);
  const unseenFields =
    threads === 1 ? await runHere(context, opened) : await runThreads(context, opened, threads);
  progress?.done();
  summarize(context, opened, tally, unseenFields);
  return EXIT.done;
}

export const command = defineCommand({
  name: 'consumer',
  summary: 'Print the records of a topic as JSON lines, by schema, and quarantine what cannot be read.',
  description: [
    'Without -subject every record is read with the schema of its writer: framed Avro, Protobuf and JSON, and plain JSON.',
    'Examples: millrace consumer -brokers=localhost:9092 -topic=orders -out=- | jq .value',
    '          millrace consumer -brokers=localhost:9092 -topic=orders -filter=\'status = "PAID"\' -start=2026-01-31T12:00:00Z -count=10',
    '          millrace consumer -brokers=localhost:9092 -subject=orders-value -reader-version=1 -group=billing -out=file:orders.jsonl',
    '          millrace consumer -brokers=localhost:9092 -topic=orders -replay',
    '          millrace consumer -brokers=localhost:9092 -subject=orders-value -quarantine',
    '          millrace consumer -brokers=localhost:9092 -subject=orders-value -redrive -reason=unknown_schema_id -dry-run',
  ].join('\n'),
  settings: CONSUMER_SETTINGS,
  run: runConsumer,
});
