/** Manifest of a savepoint: one JSON document and its checksum, in a text file that a person can
 *  read. It lists every file of the savepoint with size and CRC-32, and it is written last. */
import { crc32 } from 'node:zlib';
import type { Job } from '../../job.ts';
import type { FileEntry } from '../checkpoint/whole-file.ts';
import { placeOfPath, STATE_STORES, WINDOWS_FILE } from './files.ts';

const SAVEPOINT_FORMAT = 'millrace-engine-savepoint';
const VERSION = 1;
/** Version of a savepoint of named windows. */
const WINDOWS_VERSION = 2;
export const SAVEPOINT_MANIFEST = 'savepoint.manifest';
/** Greatest number of files that a reader accepts. */
const SAVEPOINT_FILES_MAX = 1_000_000;
/** Bytes that a reader accepts as a manifest: 200 for each file. */
export const MANIFEST_BYTES_MAX = 200 * SAVEPOINT_FILES_MAX;
const PATH_CHARS_MAX = 200;
const PATH = new RegExp(`^(?:(?:${STATE_STORES.join('|')})/)?[A-Za-z0-9][A-Za-z0-9._-]*$`);

/** State of one window of a savepoint. */
export interface SavedState {
  /** Undefined: the only window, without a name. */
  readonly window: string | undefined;
  readonly job: Job;
  /** Checkpoint that the savepoint holds. */
  readonly checkpointId: number;
}

export interface Savepoint {
  /** Random identity: a state that began with a savepoint names it. */
  readonly id: string;
  /** Wall time at which it was written, ms. */
  readonly ts: number;
  readonly clusterId: string;
  /** States of all windows with names, or of the only window. */
  readonly states: readonly [SavedState, ...SavedState[]];
  /** `name` is a path: a file of a store has the store's folder before it, and a file of a window
   *  the window's folder. */
  readonly files: readonly FileEntry[];
}

/** True for a path that a savepoint may name: a file of a state folder, or of one of its stores. */
export const isSavepointPath = (path: string): boolean =>
  path.length <= PATH_CHARS_MAX && PATH.test(placeOfPath(path).path);

export function encodeSavepoint({ id, ts, clusterId, states, files }: Savepoint): Uint8Array {
  const [{ window, job, checkpointId }] = states;
  const named = states.map((state) => ({
    ...{ name: state.window, checkpoint_id: state.checkpointId, job: state.job },
  }));
  const body = JSON.stringify(
    {
      format: SAVEPOINT_FORMAT,
      version: window === undefined ? VERSION : WINDOWS_VERSION,
      savepoint_id: id,
      ts,
      ...(window === undefined ? { checkpoint_id: checkpointId, job } : { windows: named }),
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
  if (format !== SAVEPOINT_FORMAT || (version !== VERSION && version !== WINDOWS_VERSION))
    return {
      fault: `has form ${String(format)} ${String(version)}, this build reads ${SAVEPOINT_FORMAT} ${VERSION} and ${WINDOWS_VERSION}`,
    };
  return savepointOf(read);
}

/** States of a manifest; undefined: it does not name them. */
function statesOf({
  version,
  windows,
  checkpoint_id: checkpointId,
  job,
}: Fields): readonly SavedState[] | undefined {
  if (version === VERSION)
    return isObject(job) && isCount(checkpointId)
      ? [{ window: undefined, job: job as unknown as Job, checkpointId }]
      : undefined;
  if (!Array.isArray(windows)) return undefined;
  const states: SavedState[] = [];
  for (const item of windows as readonly unknown[]) {
    const { name, checkpoint_id: id, job: own } = isObject(item) ? item : {};
    if (typeof name !== 'string' || !isObject(own) || !isCount(id)) return undefined;
    states.push({ window: name, job: own as unknown as Job, checkpointId: id });
  }
  return new Set(states.map(({ window }) => window)).size === states.length ? states : undefined;
}

function savepointOf(read: Fields): Decoded {
  const { savepoint_id: id, ts, cluster_id: clusterId, files } = read;
  const [first, ...others] = statesOf(read) ?? [];
  if (typeof id !== 'string' || typeof clusterId !== 'string' || first === undefined)
    return { fault: 'does not name its id, cluster, and states with their jobs and checkpoints' };
  if (!isCount(ts) || !Array.isArray(files) || files.length > SAVEPOINT_FILES_MAX)
    return { fault: 'does not name its time and files' };
  const states: Savepoint['states'] = [first, ...others];
  const entries: FileEntry[] = [];
  const seen = new Set<string>();
  for (const item of files as readonly unknown[]) {
    const { path, bytes, crc32: crc } = isObject(item) ? item : {};
    const isFile =
      typeof path === 'string' &&
      isSavepointPath(path) &&
      isOfStates(path, states) &&
      isCount(bytes) &&
      isCount(crc);
    if (!isFile || seen.has(path)) return { fault: `has no valid file number ${entries.length + 1}` };
    seen.add(path);
    entries.push({ name: path, bytes, crc32: crc });
  }
  return { savepoint: { id, ts, clusterId, states, files: entries } };
}

/** True for a file of one of the states, and for the list of their windows. */
function isOfStates(path: string, states: Savepoint['states']): boolean {
  const { window } = placeOfPath(path);
  if (window === undefined && path === WINDOWS_FILE) return states[0].window !== undefined;
  return states.some((state) => state.window === window);
}
