/** Product 3: exact event-time windows over one topic; results stay exact after a crash. Imports
 *  only core, native kernels and ports. */

export { engineRoutes, type WatermarkReport } from './api/routes.ts';
export {
  CHECKPOINT_ACTIONS,
  type CheckpointStep,
  SPILL_ACTIONS,
  type StepHook,
} from './durability/checkpoint/steps.ts';
export { type MemoryShares, sharesOf } from './durability/spill/budget.ts';
export { PIECE_FAMILIES, type PieceOrder, PieceStore } from './durability/spill/pieces.ts';
export { checkJob, type Job, type JobWindows, pieceOrderOf, stateOf, watermarksOf } from './job.ts';
export { engineMetrics } from './metrics.ts';
export {
  type ColumnType,
  type ColumnValue,
  type ResultColumn,
  type ResultShape,
  resultColumns,
  resultShape,
} from './output/columns.ts';
export type { WindowPage, WindowQuery } from './output/fired/lookup.ts';
export type { FiredShape } from './output/fired/mark.ts';
export { ReopeningStore } from './output/fired/reopening-store.ts';
export { FIRED_FAMILIES, FiredStore, readFired } from './output/fired/store.ts';
export type { LateCopy } from './output/late/rows.ts';
export { KafkaLateTopic } from './output/late/topic.ts';
export { ParquetSink, type ParquetSinkParts } from './output/parquet/sink.ts';
export type { QuarantineCopy } from './output/quarantine/rows.ts';
export { KafkaQuarantine } from './output/quarantine/topic.ts';
export type { SideTopic } from './output/side/sender.ts';
export { KafkaSink, SCRATCH_FAMILIES, SINK_TOPIC_NAME } from './output/sink/kafka.ts';
export type { WindowSink } from './output/sink/port.ts';
export { PostgresSink, SINK_TABLE_NAME } from './output/sink/postgres.ts';
export type { EngineParts, RunSummary } from './parts.ts';
export { Engine } from './run.ts';
export type { PartitionProgress, WatermarkGenerator } from './source/admission.ts';
export { BrokerSource, type EventRows, type EventSource } from './source/events.ts';
export { GroupLease } from './source/group.ts';
export { BINARY256, binary256Input } from './source/input/binary256.ts';
export type { InputDefinition, InputFormat } from './source/input/definition.ts';
export type { EventInput } from './source/input/port.ts';
export { demandValidInput } from './source/invalid.ts';
export { LeasedSource } from './source/leased.ts';
export { limitedBy, limitedText, Stages, type StageTimes } from './stages.ts';
export type { StateBackend } from './state/port.ts';
export type { WindowResult } from './window/accumulator.ts';
export type { WindowAssigner } from './window/definition.ts';
export type { FiredPage, Firing } from './window/firing.ts';
