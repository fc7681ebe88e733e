/** Manifest of a savepoint: one JSON document and its checksum, in a text file that a person can
 *  read. It lists every file of the savepoint with size and CRC-32, and it is written last. */
import { crc32 } from 'node:zlib';
import type { Job } from '../../job.ts';
import type { FileEntry } from '../checkpoint/whole-file.ts';
import { STATE_STORES } from './files.ts';

const SAVEPOINT_FORMAT = 'millrace-engine-savepoint';
const SAVEPOINT_VERSION = 1;
export const SAVEPOINT_MANIFEST = 'savepoint.manifest';
/** Greatest number of files that a reader accepts. */
const SAVEPOINT_FILES_MAX = 1_000_000;
/** Bytes that a reader accepts as a manifest: 200 for each file. */
export const MANIFEST_BYTES_MAX = 200 * SAVEPOINT_FILES_MAX;
const PATH_CHARS_MAX = 200;
const PATH = new RegExp(`^(?:(?:${STATE_STORES.join('|')})/)?[A-Za-z0-9][A-Za-z0-9._-]*$`);

export interface Savepoint {
  /** Random identity: a state that began with a savepoint names it. */
  readonly id: string;
  /** Wall time at which it was written, ms. */
  readonly ts: number;
  readonly job: Job;
  readonly clusterId: string;
  /** Checkpoint that it holds. */
  readonly checkpointId: number;
  /** `name` is a path: a file of a store has the store's folder before it. */
  readonly files: readonly FileEntry[];
}

/** True for a path that a savepoint may name: a file of the folder, or of one of its stores. */
export const isSavepointPath = (path: string): boolean => path.length <= PATH_CHARS_MAX && PATH.test(path);

export function encodeSavepoint({ id, ts, job, clusterId, checkpointId, files }: Savepoint): Uint8Array {
  const body = JSON.stringify(
    {
      format: SAVEPOINT_FORMAT,
      version: SAVEPOINT_VERSION,
      savepoint_id: id,
      ts,
      checkpoint_id: checkpointId,
      job,
      cluster_id: clusterId,
      files: files.map(({ name, bytes, crc32: crc }) => ({ path: name, bytes, crc32: crc })),
    },
    null,
    1,
  );
  return new TextEncoder().encode(`${body}\ncrc32 ${crc32(body).toString(16).padStart(8, '0')}\n`);
}

type Decoded = { readonly savepoint: Savepoint } | { readonly fault: string };
type Fields = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

/** Decodes a manifest, or returns the reason why the file has none. Accepts any bytes. */
export function decodeSavepoint(bytes: Uint8Array): Decoded {
  const match = /^([\s\S]*)\ncrc32 ([0-9a-f]{8})\n$/.exec(new TextDecoder().decode(bytes));
  if (match === null) return { fault: 'is cut short or not a manifest' };
  const body = match[1] as string;
  if (crc32(body) !== Number.parseInt(match[2] as string, 16))
    return { fault: 'has changed since it was written' };
  let read: unknown;
  try {
    read = JSON.parse(body);
  } catch {
    return { fault: 'is not JSON' };
  }
  if (!isObject(read)) return { fault: 'is not a manifest' };
  const { format, version } = read;
  if (format !== SAVEPOINT_FORMAT || version !== SAVEPOINT_VERSION)
    return {
      fault: `has form ${String(format)} ${String(version)}, this build reads ${SAVEPOINT_FORMAT} ${SAVEPOINT_VERSION}`,
    };
  return savepointOf(read);
}

function savepointOf(read: Fields): Decoded {
  const { savepoint_id: id, ts, checkpoint_id: checkpointId, job, cluster_id: clusterId, files } = read;
  if (typeof id !== 'string' || typeof clusterId !== 'string' || !isObject(job))
    return { fault: 'does not name its id, job and cluster' };
  if (!isCount(ts) || !isCount(checkpointId) || !Array.isArray(files) || files.length > SAVEPOINT_FILES_MAX)
    return { fault: 'does not name its time, checkpoint and files' };
  const entries: FileEntry[] = [];
  const seen = new Set<string>();
  for (const item of files as readonly unknown[]) {
    const { path, bytes, crc32: crc } = isObject(item) ? item : {};
    const isFile = typeof path === 'string' && isSavepointPath(path) && isCount(bytes) && isCount(crc);
    if (!isFile || seen.has(path)) return { fault: `has no valid file number ${entries.length + 1}` };
    seen.add(path);
    entries.push({ name: path, bytes, crc32: crc });
  }
  return { savepoint: { id, ts, checkpointId, job: job as unknown as Job, clusterId, files: entries } };
}
