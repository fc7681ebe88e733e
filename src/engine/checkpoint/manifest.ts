/** The manifest of a checkpoint: one JSON document and its checksum, in a text file that a person can read.
 *
 *  `{…}\ncrc32 xxxxxxxx\n`. It names every file of the checkpoint with size and CRC-32, so a checkpoint is whole exactly
 *  when its manifest is and every file it names matches.
 */
import { crc32 } from 'node:zlib';
import type { Job } from '../job.ts';
import type { PartitionProgress } from '../operator.ts';

export const MANIFEST_FORMAT = 'millrace-engine-checkpoint';
export const MANIFEST_VERSION = 1;

export interface FileEntry {
  readonly name: string;
  readonly bytes: number;
  readonly crc32: number;
  /** `state`: the open windows. `fired`: windows that fired since the checkpoint before. */
  readonly kind: 'state' | 'fired';
  /** Greatest window end in a `fired` file; it goes when that is past its time. */
  readonly lastEnd: number | null;
}

export interface Manifest {
  readonly format: typeof MANIFEST_FORMAT;
  readonly version: typeof MANIFEST_VERSION;
  readonly id: number;
  /** Wall time of the cut, ms. */
  readonly ts: number;
  readonly job: Job;
  /** Cluster that holds the topic. */
  readonly clusterId: string;
  readonly shards: number;
  /** min over partitions; null while one has had no event. */
  readonly watermark_ms: number | null;
  /** Every window that ends at or before it has fired; null before the first. */
  readonly fired_ms: number | null;
  readonly dropped_late: number;
  readonly partitions: readonly PartitionProgress[];
  readonly files: readonly FileEntry[];
}

const finite = (value: number): number | null => (Number.isFinite(value) ? value : null);
const orNone = (value: number | null): number => value ?? Number.NEGATIVE_INFINITY;

export const manifestName = (id: number): string => `checkpoint-${String(id).padStart(8, '0')}.manifest`;

/** Number of a manifest's file name, or undefined for any other name. */
export function manifestId(name: string): number | undefined {
  const match = /^checkpoint-(\d{8,15})\.manifest$/.exec(name);
  return match === null ? undefined : Number(match[1]);
}

export function encodeManifest(manifest: Manifest): Uint8Array {
  // JSON has no infinity: what has not happened yet is null.
  const partitions = manifest.partitions.map((one) => ({ ...one, maxSeenTs: finite(one.maxSeenTs) }));
  const body = JSON.stringify({ ...manifest, partitions }, null, 1);
  return new TextEncoder().encode(`${body}\ncrc32 ${crc32(body).toString(16).padStart(8, '0')}\n`);
}

/** The manifest in a file, or the reason why there is none. Total for any bytes. */
export function decodeManifest(
  bytes: Uint8Array,
): { readonly manifest: Manifest } | { readonly fault: string } {
  const text = new TextDecoder().decode(bytes);
  const match = /^([\s\S]*)\ncrc32 ([0-9a-f]{8})\n$/.exec(text);
  if (match === null) return { fault: 'is cut short or not a manifest' };
  const body = match[1] as string;
  if (crc32(body) !== Number.parseInt(match[2] as string, 16))
    return { fault: 'has changed since it was written' };
  let read: Manifest;
  try {
    read = JSON.parse(body) as Manifest;
  } catch {
    return { fault: 'is not JSON' };
  }
  if (read.format !== MANIFEST_FORMAT || read.version !== MANIFEST_VERSION) {
    return {
      fault: `has form ${read.format} ${read.version}, this build reads ${MANIFEST_FORMAT} ${MANIFEST_VERSION}`,
    };
  }
  const partitions = read.partitions.map((one) => ({
    ...one,
    maxSeenTs: orNone(one.maxSeenTs as number | null),
  }));
  return { manifest: { ...read, partitions } };
}
