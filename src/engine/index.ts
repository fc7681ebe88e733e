/** Product 3: exact event-time windows over one topic, exact through a crash. Imports core, native and ports only. */
export type { FiredWindow, WindowResult } from './accumulator.ts';
export { engineRoutes } from './api.ts';
export { CheckpointStore } from './checkpoint/store.ts';
export { Engine, type EngineParts, type RunSummary, type WatermarkReport } from './engine.ts';
export { checkJob, type Job } from './job.ts';
export { engineMetrics } from './metrics.ts';
export type { WindowSink } from './sink/port.ts';
export { PostgresSink, SINK_TABLE_NAME } from './sink/postgres.ts';
export { BrokerSource, type EventSource } from './source.ts';
export { MemState } from './state/mem.ts';
export type { StateBackend } from './state/port.ts';
export type { WindowAssigner } from './windows.ts';
