/** The raw addon, and valid arguments for every kernel function, for tests that corrupt them. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { findAddon } from '../../src/addon/load.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { FrameBatch } from '../../src/core/layout/frame-batch.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';

export const addonPath = findAddon() ?? '';

/** Folder of the headers of the running Node.js. */
export function includeFolder(): string {
  const beside = join(dirname(dirname(process.execPath)), 'include', 'node');
  const given = process.env['npm_config_nodedir'];
  return [beside, ...(given === undefined ? [] : [join(given, 'include', 'node')])].find((path) =>
    existsSync(join(path, 'node_api.h')),
  ) as string;
}

/** Addon function as JavaScript sees it: it accepts any arguments. */
export type RawFunction = (...args: readonly unknown[]) => unknown;
export const raw = createRequire(import.meta.url)(addonPath) as Record<string, RawFunction>;

export function records(rows = 4, shared = false): RecordBatch {
  const batch = RecordBatch.create(rows, rows * 256, shared);
  for (let i = 0; i < rows; i++) batch.append({ value: new Uint8Array(256).fill(i) });
  return batch;
}

const bytes = (batch: { readonly buffer: ArrayBufferLike }): Uint8Array => new Uint8Array(batch.buffer);

/** New valid arguments of each kernel function; a batch is a view of all its bytes. */
export const VALID: Readonly<Record<string, (shared?: boolean) => unknown[]>> = {
  shardOf: (shared) => [bytes(EventBatch.create(4, shared)), 3, new Int32Array(4)],
  decodeEvents: (shared) => [bytes(records(4, shared)), bytes(EventBatch.create(4, shared))],
  scanFrames: (shared) => [bytes(records(4, shared)), true, bytes(FrameBatch.create(4))],
  writeFrames: (shared) => [
    new Uint8Array(10),
    Uint32Array.of(0, 5),
    Int32Array.of(5, 5),
    2,
    7,
    Int32Array.of(1),
    bytes(RecordBatch.create(4, 100, shared)),
  ],
  probeKeys: (shared) => [
    bytes(EventBatch.create(4, shared)),
    new Int32Array(4),
    new Int32Array(4),
    new Int32Array(8),
    0,
    Uint32Array.of(1, 2),
    new Int32Array(16),
    new Int32Array(64),
    1,
    1000,
    new Int32Array(12),
    new Float64Array(4),
  ],
  copyKeys: () => [
    new Int32Array(64),
    0,
    16,
    0,
    4,
    new Int32Array(16),
    new Int32Array(64),
    Int32Array.of(1),
    new Uint8Array(64),
    new Uint32Array(4),
    new Int32Array(4),
    new Float64Array(2),
  ],
};

/** Arguments that are plain bytes, by function. */
const PLAIN_BYTES: Readonly<Record<string, number>> = { writeFrames: 0, copyKeys: 8 };

/** True if an argument of a kernel function is a batch. */
export const isBatch = (name: string, place: number, argument: unknown): argument is Uint8Array =>
  argument instanceof Uint8Array && PLAIN_BYTES[name] !== place;

export interface Thrown {
  readonly name: string;
  readonly code: string | undefined;
}

/** Returns the error that a call throws, or null. */
export function thrownBy(call: () => unknown): Thrown | null {
  try {
    call();
    return null;
  } catch (thrown) {
    const error = thrown as Error & { code?: string };
    return { name: error.name, code: error.code };
  }
}
