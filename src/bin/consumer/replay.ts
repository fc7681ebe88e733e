/** `millrace consumer -replay`: decodes a whole topic with one reader schema, over all cores, and
 *  reports what could be decoded. */
import { EXIT } from '../../core/errors.ts';
import { registryError } from '../../registry/errors.ts';
import { piecesOf } from '../../registry/replay/pieces.ts';
import { ReplayTally } from '../../registry/replay/tally.ts';
import type { RegistryClient, SubjectVersion } from '../../serde/client.ts';
import type { SharedRequests } from '../../serde/shared-client.ts';
import { threadCount } from '../../shell/threads/count.ts';
import { ThreadPool } from '../../shell/threads/pool.ts';
import { registryClient, registryRequests, threadPort } from '../registry-clients/shared.ts';
import { type ConsumerPlan, replayPlan } from './plan.ts';
import { pinned, readerOfSubject } from './reader-schema.ts';
import { openReplay, type PieceCells, type ReplayedPart, type ReplayProgress } from './replay-part.ts';
import { type ReplayReport, replayDocument, replayTable } from './replay-report.ts';
import type { ReplayJob } from './replay-thread.ts';
import type { ConsumerContext } from './settings.ts';
import { openRanges } from './topics.ts';

interface Opened {
  readonly plan: ConsumerPlan;
  readonly requests: SharedRequests;
  readonly client: RegistryClient;
  readonly reader: SubjectVersion;
  readonly pieces: ReturnType<typeof piecesOf>;
  readonly threads: number;
  /** Called with the counts of all threads so far. */
  readonly onProgress: (progress: ReplayProgress) => void;
}

/** Interval at which the main thread reports its own progress, ms. */
const PROGRESS_EVERY_MS = 250;

async function replayHere(context: ConsumerContext, opened: Opened): Promise<readonly ReplayedPart[]> {
  const next: PieceCells = new Int32Array(new SharedArrayBuffer(4));
  const { progress, run } = await openReplay({ ...opened, context, next, number: 0 });
  const stop = context.clock.every(PROGRESS_EVERY_MS, () => opened.onProgress(progress()), 'background');
  context.setReady();
  try {
    return [await run()];
  } finally {
    stop();
    opened.onProgress(progress());
  }
}

async function replayThreads(context: ConsumerContext, opened: Opened): Promise<readonly ReplayedPart[]> {
  const { pieces, reader, requests, threads, onProgress } = opened;
  const next: PieceCells = new Int32Array(new SharedArrayBuffer(4));
  const job: ReplayJob = { pieces, next, reader: pinned(reader), threads };
  const states = new Map<number, ReplayProgress>();
  const pool = new ThreadPool({
    context,
    entry: new URL('./replay-thread.js', import.meta.url),
    jobs: Array.from({ length: threads }, (_, thread) => ({
      part: `replay ${thread + 1} of ${threads}`,
      job,
    })),
    registryPort: () => threadPort(requests),
    onState: (thread, state) => {
      if (state === undefined) return;
      states.set(thread, state as ReplayProgress);
      const all = [...states.values()];
      onProgress({
        records: all.reduce((sum, { records }) => sum + records, 0),
        failures: all.reduce((sum, { failures }) => sum + failures, 0),
      });
    },
  });
  await pool.ready;
  context.setReady();
  return pool.run<ReplayedPart>();
}

/** Versions of the subject by schema id, for the report. Empty if the registry does not answer now.
 */
async function versionsOf(
  client: RegistryClient,
  subject: string,
): Promise<ReadonlyMap<number | string, number>> {
  try {
    return new Map((await client.prefetch(subject)).map(({ id, version }) => [id, version]));
  } catch {
    return new Map();
  }
}

interface ReplayLine {
  readonly onProgress: Opened['onProgress'];
  readonly done: () => void;
}

function startProgress(context: ConsumerContext, topic: string, total: number): ReplayLine {
  const progress = context.progress({ what: `replay of ${topic}`, unit: 'records', total });
  let failures = 0;
  const onProgress = (now: ReplayProgress): void => {
    progress.set(now.records);
    progress.error(now.failures - failures);
    failures = now.failures;
  };
  return { onProgress, done: () => progress.done() };
}

/** @returns exit code 1 if a record could not be decoded, or the drain came before the end
 *  @throws unreachable, usage, subject_not_found, version_not_found, records_deleted */
export async function replayTopic(context: ConsumerContext): Promise<number> {
  const { clock, settings } = context;
  const plan = replayPlan(settings);
  const requests = registryRequests(context);
  const client = registryClient(context, requests);
  const reader = await readerOfSubject(context, client, plan.subject);
  if (reader.schema.format === 'JSON')
    throw registryError('invalid_schema', `version ${reader.version} of ${plan.subject} is JSON Schema`, {
      next: 'replay a topic of Avro or Protobuf records',
    });
  const ranges = await openRanges(context, plan);
  const offsets = ranges.map(({ topic, partition, from, high }) => ({ topic, partition, from, to: high }));
  const total = offsets.reduce((sum, { from, to }) => sum + Number(to - from), 0);
  const pieces = piecesOf(offsets, threadCount(context, Number.POSITIVE_INFINITY));
  const threads = threadCount(context, pieces.length);
  const { onProgress, done } = startProgress(context, plan.topic, total);
  const opened: Opened = { plan, requests, client, reader, pieces, threads, onProgress };
  const startMs = clock.monotonicMs();
  const startCpu = process.cpuUsage();
  const parts = await (threads === 1 ? replayHere : replayThreads)(context, opened);
  const { user, system } = process.cpuUsage(startCpu);
  done();
  const tally = new ReplayTally();
  for (const part of parts) tally.add(part.tally);
  const report: ReplayReport = {
    topic: plan.topic,
    subject: plan.subject,
    readerVersion: reader.version,
    quarantineTopic: plan.quarantineTopic,
    tally: tally.data(),
    failures: tally.failures,
    isWhole: parts.every(({ isWhole }) => isWhole),
    threads,
    seconds: (clock.monotonicMs() - startMs) / 1000,
    cpuSeconds: (user + system) / 1e6,
    decodeSeconds: parts.reduce((sum, { decodeMs }) => sum + decodeMs / 1000, 0),
    versions: await versionsOf(client, plan.subject),
  };
  if (settings.json) context.print('', replayDocument(report));
  else for (const line of replayTable(report)) context.say(line);
  return report.failures === 0 && report.isWhole ? EXIT.done : EXIT.no;
}
