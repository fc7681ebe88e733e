/** Part of `millrace consumer -replay` that one thread runs: pieces of the topic, one after
 *  another, until all are claimed. */
import { loadColumnKernels } from '../../addon/codec.ts';
import { consumerMetrics } from '../../registry/consumer/member.ts';
import { Quarantine } from '../../registry/consumer/quarantine.ts';
import { WriterSchemas } from '../../registry/consumer/writers.ts';
import { ReplayDecoder } from '../../registry/replay/decoder.ts';
import { PieceReader } from '../../registry/replay/piece-reader.ts';
import type { Piece } from '../../registry/replay/pieces.ts';
import { ReplayTally, type TallyData } from '../../registry/replay/tally.ts';
import type { RegistryClient, SubjectVersion } from '../../serde/client.ts';
import { type CodecChoice, recordCodecs } from '../../serde/codec-choice.ts';
import { brokerDriver, kernels, runsNative } from '../../shell/drivers.ts';
import { brokerBase, outputProducer } from './broker.ts';
import type { ConsumerPlan } from './plan.ts';
import type { ReaderContext } from './readers.ts';

/** Number of the next piece, in shared memory. */
export type PieceCells = Int32Array<SharedArrayBuffer>;

export interface ReplayPart {
  readonly context: ReaderContext;
  readonly plan: ConsumerPlan;
  readonly client: RegistryClient;
  readonly reader: SubjectVersion;
  readonly pieces: readonly Piece[];
  readonly next: PieceCells;
  /** Number of the thread. */
  readonly number: number;
}

export interface ReplayedPart {
  readonly tally: TallyData;
  /** Time of decoding, ms. */
  readonly decodeMs: number;
  /** False: the drain came before all pieces were read. */
  readonly isWhole: boolean;
}

/** Counts of a part so far. */
export interface ReplayProgress {
  readonly records: number;
  readonly failures: number;
}

/** Connects a part. Returns its progress and its run. @throws unreachable */
export async function openReplay(part: ReplayPart): Promise<{
  readonly progress: () => ReplayProgress;
  readonly run: () => Promise<ReplayedPart>;
}> {
  const { context, plan, client, reader } = part;
  const { settings, clock, log, drain } = context;
  const driver = await brokerDriver(context);
  const base = brokerBase(context);
  const consumer = await driver.consumer({
    ...base,
    clientId: `millrace-replay-${part.number}`,
    partitionEof: true,
    autoOffsetReset: 'error',
  });
  context.onClose(() => consumer.close());
  const codecs = await recordCodecs(settings.codec as CodecChoice);
  const decoder = new ReplayDecoder({
    kernels: kernels(context),
    columns: loadColumnKernels(runsNative(context) ? 'native' : 'reference'),
    codecs,
    reader: reader.schema,
    writers: new WriterSchemas(client, codecs, {}, reader.context),
    rowCapacity: settings['batch-rows'],
  });
  context.onClose(() => decoder.close());
  const tally = new ReplayTally();
  const readerOfPieces = new PieceReader({
    consumer,
    topic: plan.topic,
    subject: plan.subject,
    decoder,
    quarantine: await quarantineOf(part),
    tally,
    metrics: consumerMetrics(context.metrics),
    clock,
    log,
    drain,
    batchRows: settings['batch-rows'],
    batchBytes: settings['batch-bytes'],
  });
  const run = async (): Promise<ReplayedPart> => {
    let isWhole = true;
    for (;;) {
      const piece = part.pieces[Atomics.add(part.next, 0, 1)];
      if (piece === undefined) break;
      isWhole = await readerOfPieces.read(piece);
      if (!isWhole) break;
    }
    return { tally: tally.data(), decodeMs: readerOfPieces.decodeMs, isWhole };
  };
  return { progress: () => ({ records: tally.records, failures: tally.failures }), run };
}

/** Undefined without -quarantine-topic. */
async function quarantineOf({ context, plan, reader }: ReplayPart): Promise<Quarantine | undefined> {
  const topic = plan.quarantineTopic;
  if (topic === undefined) return undefined;
  const producer = await outputProducer(await brokerDriver(context), brokerBase(context));
  context.onClose(() => producer.close());
  return new Quarantine({ producer, topic, readerVersion: reader.version });
}
