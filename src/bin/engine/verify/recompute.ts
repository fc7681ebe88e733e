/** `millrace engine verify`: recomputes a range of windows from the topic with an oracle, and
 *  compares them with the sink. It reads, and changes nothing. */
import { existsSync } from 'node:fs';
import { coreError, EXIT } from '../../../core/errors.ts';
import { PARTITION_PROGRESS } from '../../../core/layout/layouts.gen.ts';
import { RecordBatch } from '../../../core/layout/record-batch.ts';
import { PROGRESS_CELLS } from '../../../core/layout/window-clock.ts';
import type { SettingsOf, SettingTable } from '../../../core/settings.ts';
import { aggregateSpecs } from '../../../engine/aggregate/definition.ts';
import {
  ownFile,
  readManifest,
  type StateManifest,
} from '../../../engine/durability/checkpoint/state-manifest.ts';
import { engineError } from '../../../engine/errors.ts';
import { type Job, jobChanges } from '../../../engine/job.ts';
import type { KeyDictionary } from '../../../engine/keys/dictionary.ts';
import { type KeyType, keyValues, valueText } from '../../../engine/keys/type.ts';
import { offsetIn } from '../../../engine/source/admission.ts';
import { RecordSample } from '../../../engine/source/first/sample.ts';
import { BINARY256 } from '../../../engine/source/input/binary256.ts';
import {
  aggregatesIn,
  fieldsOf,
  hasSignedKeys,
  type InputDefinition,
  withAggregates,
} from '../../../engine/source/input/definition.ts';
import { DIFFERENCES_MAX, differenceLine, SinkComparison } from '../../../engine/verify/compare.ts';
import { WindowOracle } from '../../../engine/verify/oracle.ts';
import { RecordReader, type SchemaOf } from '../../../engine/verify/records.ts';
import type { WindowResult } from '../../../engine/window/accumulator.ts';
import type { Schema } from '../../../formats/schema.ts';
import { existingDisk } from '../../../io/disk/node.ts';
import type { BatchConsumer, BrokerDriver } from '../../../io/kafka/port.ts';
import type { CommandContext } from '../../../shell/command.ts';
import { brokerDriver, kernels } from '../../../shell/drivers.ts';
import { openInput, readerOf, registryOf } from '../input.ts';
import { jobOf } from '../job.ts';
import { readSink } from '../sinks.ts';
import type { VerifiedWindow } from '../windows/settings.ts';
import { rangeOf } from './range.ts';
import type { VERIFY_SETTINGS } from './settings.ts';
import { firstOffsets, fixedStart, type KeptOffsets } from './start.ts';

const WAIT_MS = 1_000;
const BOUNDS_TIMEOUT_MS = 10_000;

type Settings = SettingsOf<typeof VERIFY_SETTINGS> &
  Parameters<typeof jobOf>[0] &
  Parameters<typeof readSink>[0]['settings'] &
  Parameters<typeof openInput>[0]['settings'] & {
    readonly start: string;
    readonly 'batch-rows': number;
    readonly 'batch-bytes': number;
  };
type Context = Omit<CommandContext<SettingTable>, 'settings'> & { readonly settings: Settings };

/** Result of the verification of one window. */
interface Verdict {
  readonly isEqual: boolean;
  readonly text: string;
  readonly document: object;
}

/** Verifies windows one after the other, and prints the verdicts.
 *  @param windows the windows; the only one may have no name */
export async function verifyResults(
  context: Omit<Context, 'settings'>,
  windows: readonly VerifiedWindow<Settings>[],
): Promise<number> {
  const verdicts: Verdict[] = [];
  for (const { settings, aggregates } of windows)
    verdicts.push(await verifyWindow({ ...context, settings }, aggregates));
  const isEqual = verdicts.every((verdict) => verdict.isEqual);
  const [only, ...others] = verdicts;
  if (others.length === 0) context.print(only?.text ?? '', only?.document);
  else
    context.print(verdicts.map(({ text }, at) => `${windows[at]?.name}: ${text}`).join('\n'), {
      equal: isEqual,
      windows: Object.fromEntries(verdicts.map(({ document }, at) => [windows[at]?.name, document])),
    });
  return isEqual ? EXIT.done : EXIT.no;
}

async function verifyWindow(context: Context, aggregates: readonly string[]): Promise<Verdict> {
  const { settings } = context;
  const job = jobOf(settings);
  const brokers = settings.brokers;
  if (brokers === undefined)
    throw coreError('usage', '-brokers is required', {
      next: 'give -brokers=… of the cluster that has the topic',
    });
  const start = fixedStart(settings.start);
  const range = rangeOf(settings);
  const saved = await newestManifest(settings['state-dir']);
  if (saved !== undefined) demandSameJob(saved, job);
  const driver = await brokerDriver(context);
  const consumer = await driver.consumer({
    ...{ brokers, clientId: 'millrace-engine-verify', autoOffsetReset: 'error', partitionEof: true },
    properties: { 'enable.auto.commit': false },
  });
  context.onClose(() => consumer.close());
  const bounds = await boundsOf(context, driver, consumer, brokers);
  const place = { brokers, topic: job.topic };
  const offsets = await firstOffsets(start, driver, place, { bounds, fromMs: range.fromMs });
  // Records that the checkpoint has; without one, and of a bounded run, all records.
  const progress = settings.bounded ? undefined : saved?.progress;
  const ends = bounds.map(({ high }, partition) =>
    progress === undefined || partition >= progress.length / PROGRESS_CELLS
      ? high
      : Math.min(high, offsetIn(progress, partition)),
  );
  const input = await decidedInput(context, job, consumer, { offsets, ends, saved });
  const decided: Job = { ...job, input };
  const aggregate = aggregatesIn(input);
  const read = aggregates.length === 0 ? input : withAggregates(input, { aggregates });
  const own =
    aggregate === undefined
      ? undefined
      : { specs: aggregateSpecs(aggregate), fields: fieldsOf(read).aggregates?.fields ?? [] };
  const oracle = new WindowOracle(decided, own, bounds.length, range, settings['verify-windows-max']);
  await readAll(context, consumer, oracle, await recordReader(context, read), { offsets, ends });
  if (context.drain.aborted)
    throw coreError('interrupted', 'engine verify was stopped before it had read the topic', {
      next: 'run it again: it changes nothing',
    });
  const lastMs = settings.bounded ? undefined : lastEnd(saved, oracle.frontierMs);
  const isDue = (startMs: bigint, endMs: bigint): boolean =>
    oracle.isInRange(startMs, endMs) && (settings.bounded || (lastMs !== undefined && endMs <= lastMs));
  const comparison = new SinkComparison(oracle.results(), aggregate, isDue);
  const rows = await readSink(context, { aggregate, emit: job.emit });
  for await (const page of rows.pages)
    for (const row of page) comparison.row(keyTexts(rows.keyType(), input, row), row);
  comparison.finish();
  return verdictOf(oracle, comparison, saved);
}

/** End of the last window that must be in the sink: what the checkpoint calls durable there, else
 *  the frontier of the oracle. */
function lastEnd(saved: StateManifest | undefined, frontierMs: bigint | undefined): bigint | undefined {
  if (saved === undefined) return frontierMs;
  return Number.isFinite(saved.fired) ? BigInt(saved.fired) : undefined;
}

async function newestManifest(folder: string): Promise<StateManifest | undefined> {
  if (!existsSync(folder)) return undefined;
  const disk = await existingDisk(folder);
  const own = (await disk.list()).flatMap((name) => ownFile(name) ?? []);
  const ids = own.filter(({ role, isWhole }) => role === 'manifest' && isWhole).map(({ id }) => id);
  for (const id of ids.sort((a, b) => b - a)) {
    // The folder may belong to a running engine, whose checkpoints come and go.
    const read = await readManifest(disk, id);
    if ('manifest' in read) return read.manifest;
  }
  return undefined;
}

/** @throws job_changed */
function demandSameJob(saved: StateManifest, job: Job): void {
  const changes = jobChanges(saved.job, job);
  if (changes.length === 0) return;
  const text = changes.map(
    ({ flag, was, is }) => `-${flag} was ${was ?? 'not given'}, is ${is ?? 'not given'}`,
  );
  throw engineError(
    'job_changed',
    `the checkpoint in -state-dir was made by another job: ${text.join(', ')}`,
    {
      next: 'give the flags, or the -job file, with which the engine ran',
    },
  );
}

async function boundsOf(
  context: Context,
  driver: BrokerDriver,
  consumer: BatchConsumer,
  brokers: string,
): Promise<readonly KeptOffsets[]> {
  const { topic } = context.settings;
  const admin = await driver.admin({ brokers, clientId: 'millrace-engine-verify' });
  try {
    const found = (await admin.listTopics()).find((one) => one.topic === topic);
    if (found === undefined)
      throw (
        (await admin.refusalOf(topic)) ??
        engineError('topic_missing', `there is no topic ${topic}`, { next: 'give -topic of the job' })
      );
    const all = found.partitions.map((_, partition) =>
      consumer.watermarkOffsets({ topic, partition }, BOUNDS_TIMEOUT_MS),
    );
    return (await Promise.all(all)).map(({ low, high }) => ({ low: Number(low), high: Number(high) }));
  } finally {
    await admin.close();
  }
}

/** Definition of the input: the checkpoint's, or what the flags and the first records decide. */
async function decidedInput(
  context: Context,
  job: Job,
  consumer: BatchConsumer,
  {
    offsets,
    ends,
    saved,
  }: {
    readonly offsets: readonly number[];
    readonly ends: readonly number[];
    readonly saved: StateManifest | undefined;
  },
): Promise<InputDefinition> {
  const known = saved === undefined ? undefined : (saved.job.input ?? BINARY256);
  if (known !== undefined && known.format !== 'undecided') return known;
  let decided: InputDefinition | undefined;
  // Keys are interned by the engine alone.
  const keys = { open: async () => {}, intern: () => {} } as unknown as KeyDictionary;
  const input = await openInput(context, job, kernels(context), keys, (definition) => {
    decided = definition;
  });
  const { settings, drain } = context;
  const records = RecordBatch.create(settings['batch-rows'], settings['batch-bytes']);
  await assign(consumer, settings.topic, offsets);
  const left = new Set(
    offsets.flatMap((offset, partition) => (offset < (ends[partition] as number) ? [partition] : [])),
  );
  let sample = new RecordSample();
  while (decided === undefined && left.size > 0 && !drain.aborted) {
    records.clear();
    const { ends: ended } = await consumer.consume(records, WAIT_MS);
    for (const { partition } of ended) left.delete(partition);
    sample.add(records);
    if (!sample.isFull && left.size > 0) continue;
    await input.decide(sample.toBatch());
    sample = new RecordSample();
  }
  return decided ?? { ...(job.input ?? BINARY256), format: 'binary256' };
}

const assign = (consumer: BatchConsumer, topic: string, offsets: readonly number[]): Promise<void> =>
  consumer.assign(offsets.map((offset, partition) => ({ topic, partition, offset: BigInt(offset) })));

async function recordReader(context: Context, input: InputDefinition): Promise<RecordReader> {
  const client = input.format === 'binary256' ? undefined : registryOf(context);
  const reader = client === undefined ? undefined : (await readerOf(client, context.settings.topic))?.schema;
  const schemaOf: SchemaOf = async (id) => {
    const found = await client?.schemasById(new Map([[id, 1]]));
    const schema = found?.get(id);
    return schema instanceof Error ? undefined : (schema as Schema | undefined);
  };
  return new RecordReader(input, schemaOf, reader);
}

/** Reads the records of all partitions up to their ends. */
async function readAll(
  { settings, drain, ...context }: Context,
  consumer: BatchConsumer,
  oracle: WindowOracle,
  reader: RecordReader,
  { offsets, ends }: { readonly offsets: readonly number[]; readonly ends: readonly number[] },
): Promise<void> {
  const { topic } = settings;
  const records = RecordBatch.create(settings['batch-rows'], settings['batch-bytes']);
  const left = new Set(
    offsets.flatMap((offset, partition) => (offset < (ends[partition] as number) ? [partition] : [])),
  );
  const total = offsets.reduce(
    (sum, offset, partition) => sum + Math.max(0, (ends[partition] as number) - offset),
    0,
  );
  const progress = context.progress({ what: 'records', unit: 'records', total });
  await assign(consumer, topic, offsets);
  while (left.size > 0 && !drain.aborted) {
    records.clear();
    const { rowCount, ends: ended, events } = await consumer.consume(records, WAIT_MS);
    const oversize = events.find(({ name }) => name === 'MILLRACE_OVERSIZE');
    if (oversize !== undefined)
      throw engineError('oversize_record', oversize.message, { next: 'give a larger -batch-bytes' });
    const { partition: partitions, offset: places, timestamp } = records.columns;
    for (let row = 0; row < rowCount; row++) {
      const partition = partitions[row] as number;
      const offset = places[row] as bigint;
      if (Number(offset) >= (ends[partition] as number)) {
        left.delete(partition);
        continue;
      }
      const stamp = timestamp[row] as bigint;
      const timestampMs = stamp < 0n ? undefined : stamp;
      const record = { partition, offset, timestampMs, key: records.key(row), value: records.value(row) };
      oracle.add(await reader.events(record), { partition, offset }, timestampMs);
      if (Number(offset) + 1 >= (ends[partition] as number)) left.delete(partition);
    }
    for (const { partition } of ended) left.delete(partition);
    progress.set(oracle.counts.read);
  }
  progress.done();
}

function keyTexts(type: KeyType | undefined, input: InputDefinition, row: WindowResult): readonly string[] {
  if (type !== undefined) return keyValues(type, row.key as Uint8Array).map(valueText);
  return [String(hasSignedKeys(input) ? BigInt.asIntN(64, row.accountId) : row.accountId)];
}

function verdictOf(
  { counts }: WindowOracle,
  { compared, differing, differences, expectedCount }: SinkComparison,
  saved: StateManifest | undefined,
): Verdict {
  const text = `${counts.read} records: ${counts.accepted} accepted${counts.filtered === 0 ? '' : `, ${counts.filtered} of them filtered`}${counts.duplicates === 0 ? '' : `, ${counts.duplicates} of them duplicates`}, ${counts.late} late, ${counts.invalid} invalid${counts.empty === 0 ? '' : `, ${counts.empty} without an element`}`;
  const afterIdle = saved === undefined ? 0 : droppedAfterIdle(saved);
  const lines =
    differing === 0
      ? [`equal: ${compared} windows, recomputed from ${text}`]
      : [
          `different: ${differing} of ${expectedCount} windows, recomputed from ${text}`,
          ...differences.map(differenceLine),
          ...(differing > DIFFERENCES_MAX ? [`  and ${differing - DIFFERENCES_MAX} more`] : []),
        ];
  if (afterIdle > 0)
    lines.push(
      `${afterIdle} events were dropped because their partition had been idle, which depends on time: windows that lack them differ`,
    );
  const document = {
    equal: differing === 0,
    windows: expectedCount,
    compared,
    differing,
    differences,
    dropped_after_idle: afterIdle,
    ...counts,
  };
  return { isEqual: differing === 0, text: lines.join('\n'), document };
}

/** Events of the checkpoint's job that only the idleness of their partition made late. */
function droppedAfterIdle({ progress }: StateManifest): number {
  const at = PARTITION_PROGRESS.DROPPED_AFTER_IDLE / 8;
  let dropped = 0;
  for (let cell = at; cell < progress.length; cell += PROGRESS_CELLS) dropped += progress[cell] as number;
  return dropped;
}
