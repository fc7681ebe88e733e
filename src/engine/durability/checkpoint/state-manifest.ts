/** Manifest of a checkpoint: one JSON document and its checksum, in a text file that a person can
 *  read.
 *
 *  The file is `{…}\ncrc32 xxxxxxxx\n`. Its fields are checkpoint_id, ts, watermark, source_offsets
 *  (by partition) and state_snapshot_ptr, among others. The pointer names the base files with size
 *  and CRC-32, or the pieces of a state on disk. It also names the first record of the changelog to
 *  replay after them. A checkpoint is complete if its manifest is, every file it names matches, and
 *  the changelog reaches from that record to `durable`. */
import { crc32 } from 'node:zlib';
import { createProgress, PROGRESS_CELLS, watermarkOf } from '../../../core/layout/window-clock.ts';
import type { Disk } from '../../../io/disk/port.ts';
import type { Job } from '../../job.ts';
import { ROW_BYTES } from '../../window/accumulator.ts';
import { cellsFault, isTime, OFFSET_CELL, PARTITIONS_MAX, SAVED_CELLS } from '../changelog/cells.ts';
import type { PieceEntry } from '../spill/pieces.ts';
import type { FileEntry } from './whole-file.ts';

const STATE_FORMAT = 'millrace-engine-checkpoint';
const STATE_VERSION = 7;
/** Oldest version that this build reads. Versions before 6 have no topic_id, those before 7 no
 *  form_from. */
const STATE_VERSION_MIN = 5;

/** Saved cells of a partition except its offset. */
const COUNTED_CELLS = SAVED_CELLS.filter(([, cell]) => cell !== OFFSET_CELL);

/** Run file: all rows of a sealed slice. */
export interface RunEntry extends FileEntry {
  readonly slice: number;
  readonly rows: number;
}

/** Base: the file of the live tables, copied while they changed, and the runs of the sealed slices.
 */
export interface BaseEntry extends FileEntry {
  /** Last record of the changelog that is in any row. */
  readonly covered: number;
  /** Number of rows by part: the start of a slice, 0 for sessions. */
  readonly parts: ReadonlyArray<{ readonly part: number; readonly rows: number }>;
  readonly runs: readonly RunEntry[];
}

/** Pieces of a state on disk. */
export interface SpillEntry {
  /** Greatest id that a piece was given. */
  readonly lastId: number;
  readonly pieces: readonly PieceEntry[];
}

export interface StateManifest {
  readonly id: number;
  /** Wall time, ms. */
  readonly ts: number;
  readonly job: Job;
  /** Cluster that holds the topic. */
  readonly clusterId: string;
  /** Id that the cluster gave the topic at its creation; undefined: unknown. */
  readonly topicId: string | undefined;
  readonly shards: number;
  /** Undefined: the changelog alone is the state. */
  readonly base: BaseEntry | undefined;
  /** Undefined: the state is in memory only. */
  readonly spill: SpillEntry | undefined;
  /** First record of the changelog to replay. */
  readonly replayFrom: number;
  /** Record of the changelog from which on rows have the form of the job, after a change of its
   *  aggregates: the CHANGED record; 0: all have it. The base or the pieces have all rows of the
   *  records before. */
  readonly formFrom: number;
  /** Last durable record; clock and progress are the values after it. */
  readonly durable: number;
  /** Least watermark of the partitions, less the lateness; -Infinity: nothing has happened yet. */
  readonly frontier: number;
  readonly maxSeen: number;
  /** Frontier up to which every window is durable in the sink. */
  readonly fired: number;
  readonly progress: Float64Array;
}

export const stateManifestName = (id: number): string => `checkpoint-${String(id).padStart(8, '0')}.manifest`;
export const rowsName = (role: 'base' | 'run', id: number): string =>
  `${role}-${String(id).padStart(8, '0')}.rows`;

/** Parses the name of a checkpoint file; undefined for any other name. */
export function ownFile(
  name: string,
):
  | { readonly role: 'base' | 'run' | 'manifest'; readonly id: number; readonly isWhole: boolean }
  | undefined {
  const match = /^(?:(base|run)-(\d{8,15})\.rows|checkpoint-(\d{8,15})\.manifest)(\.tmp)?$/.exec(name);
  if (match === null) return undefined;
  const role = (match[1] as 'base' | 'run' | undefined) ?? 'manifest';
  return { role, id: Number(match[2] ?? match[3]), isWhole: match[4] === undefined };
}

// JSON has no infinity: null means that nothing has happened yet.
const finite = (value: number): number | null => (Number.isFinite(value) ? value : null);

export function encodeStateManifest(manifest: StateManifest): Uint8Array {
  const { progress } = manifest;
  const offsets: number[] = [];
  const partitions: Record<string, number | null>[] = [];
  for (let at = 0; at < progress.length; at += PROGRESS_CELLS) {
    offsets.push(progress[at + OFFSET_CELL] as number);
    const cells = COUNTED_CELLS.map(([name, cell]) => [name, finite(progress[at + cell] as number)]);
    partitions.push(Object.fromEntries(cells) as Record<string, number | null>);
  }
  const { frontier, spill } = manifest;
  const body = JSON.stringify(
    {
      format: STATE_FORMAT,
      version: STATE_VERSION,
      checkpoint_id: manifest.id,
      ts: manifest.ts,
      job: manifest.job,
      cluster_id: manifest.clusterId,
      topic_id: manifest.topicId ?? null,
      shards: manifest.shards,
      watermark: finite(watermarkOf(manifest.job, frontier, manifest.maxSeen)),
      frontier_ms: finite(frontier),
      max_seen_ts: finite(manifest.maxSeen),
      fired_ms: finite(manifest.fired),
      source_offsets: offsets,
      state_snapshot_ptr: {
        replay_from: manifest.replayFrom,
        form_from: manifest.formFrom,
        durable: manifest.durable,
        base: manifest.base ?? null,
        spill: spill === undefined ? null : { last_id: spill.lastId, pieces: spill.pieces.map(pieceFields) },
      },
      partitions,
    },
    null,
    1,
  );
  return new TextEncoder().encode(`${body}\ncrc32 ${crc32(body).toString(16).padStart(8, '0')}\n`);
}

const pieceFields = ({ id, part, rows, crc32: crc }: PieceEntry): PieceEntry => ({
  id,
  part,
  rows,
  crc32: crc,
});

type Decoded = { readonly manifest: StateManifest } | { readonly fault: string };

/** Decodes a manifest, or returns the reason why the file has none. Accepts any bytes. */
export function decodeStateManifest(bytes: Uint8Array): Decoded {
  const text = new TextDecoder().decode(bytes);
  const match = /^([\s\S]*)\ncrc32 ([0-9a-f]{8})\n$/.exec(text);
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
  const isKnown = isCount(version) && version >= STATE_VERSION_MIN && version <= STATE_VERSION;
  if (format !== STATE_FORMAT || !isKnown) {
    return {
      fault: `has form ${formatted(format)} ${formatted(version)}, this build reads ${STATE_FORMAT} ${STATE_VERSION_MIN} to ${STATE_VERSION}`,
    };
  }
  return manifestOf(upgraded(read, version));
}

/** Fields of a manifest of an earlier version as this version has them. */
function upgraded(read: Fields, version: number): Fields {
  const pointer = read['state_snapshot_ptr'];
  return {
    ...read,
    ...(version < 6 ? { topic_id: null } : {}),
    ...(version < 7 && isObject(pointer) ? { state_snapshot_ptr: { ...pointer, form_from: 0 } } : {}),
  };
}

/** Reads the manifest of a checkpoint, or returns the reason why there is none. */
export async function readManifest(disk: Pick<Disk, 'read'>, id: number): Promise<Decoded> {
  const bytes = await disk.read(stateManifestName(id));
  if (bytes === undefined) return { fault: 'is missing' };
  const decoded = decodeStateManifest(bytes);
  if ('manifest' in decoded && decoded.manifest.id !== id)
    return { fault: `is the manifest of checkpoint ${decoded.manifest.id}` };
  return decoded;
}

type Fields = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
const timeOf = (value: unknown): number =>
  value === null ? Number.NEGATIVE_INFINITY : typeof value === 'number' ? value : Number.NaN;
/** Formats a value for a message; not every value has a text. */
const formatted = (value: unknown): string => (typeof value === 'object' ? 'an object' : String(value));

function manifestOf(read: Fields): Decoded {
  const { checkpoint_id: id, ts, job, shards } = read;
  const { cluster_id: clusterId, topic_id: topicId } = read;
  const pointer = read['state_snapshot_ptr'];
  const isNamed = typeof clusterId === 'string' && (typeof topicId === 'string' || topicId === null);
  if (!isCount(id) || !isCount(ts) || !isCount(shards) || !isObject(job) || !isNamed)
    return { fault: 'does not name its id, time, job, shards, cluster and topic' };
  if (!isObject(pointer)) return { fault: 'has no state_snapshot_ptr' };
  const { replay_from: replayFrom, form_from: formFrom, durable } = pointer;
  if (!isCount(replayFrom) || !isCount(durable) || replayFrom < 1 || replayFrom > durable + 1)
    return {
      fault: `has replay_from ${formatted(replayFrom)}, which is impossible with durable ${formatted(durable)}`,
    };
  if (!isCount(formFrom) || formFrom > durable + 1)
    return { fault: `has form_from ${formatted(formFrom)}, which is impossible with durable ${durable}` };
  const [frontier, maxSeen, fired] = [read['frontier_ms'], read['max_seen_ts'], read['fired_ms']].map(timeOf);
  if (frontier === undefined || maxSeen === undefined || fired === undefined)
    return { fault: 'has no clock' };
  if (!isTime(frontier) || !isTime(maxSeen) || !isTime(fired) || fired > frontier)
    return {
      fault: `has an impossible clock: frontier_ms ${frontier}, max_seen_ts ${maxSeen}, fired_ms ${fired}`,
    };
  const base = pointer['base'] === null ? undefined : baseOf(pointer['base']);
  if (base !== undefined && 'fault' in base) return base;
  if (base !== undefined && (base.covered > durable || base.covered < replayFrom - 1))
    return { fault: `has a base that covers record ${base.covered}` };
  const spill = pointer['spill'] === null ? undefined : spillOf(pointer['spill']);
  if (spill !== undefined && 'fault' in spill) return spill;
  if (spill !== undefined && base !== undefined) return { fault: 'has both a base and pieces' };
  const progress = progressOf(read['partitions'], read['source_offsets']);
  if ('fault' in progress) return progress;
  const manifest = {
    id,
    ts,
    job: job as unknown as Job,
    clusterId,
    topicId: topicId ?? undefined,
    shards,
    base,
    spill,
    replayFrom,
    formFrom,
    durable,
  };
  return { manifest: { ...manifest, frontier, maxSeen, fired, progress: progress.cells } };
}

function spillOf(read: unknown): SpillEntry | { readonly fault: string } {
  const fault = { fault: 'has invalid pieces' };
  if (!isObject(read) || !Array.isArray(read['pieces']) || !isCount(read['last_id'])) return fault;
  const lastId = read['last_id'];
  const pieces: PieceEntry[] = [];
  for (const item of read['pieces'] as readonly unknown[]) {
    if (!isObject(item)) return fault;
    const { id, part, rows, crc32: crc } = item;
    const isSound = isCount(id) && id >= 1 && id <= lastId && Number.isSafeInteger(part);
    if (!isSound || !isCount(rows) || rows < 1 || !isCount(crc) || crc > 0xffff_ffff) return fault;
    pieces.push({ id, part: part as number, rows, crc32: crc });
  }
  return new Set(pieces.map(({ id }) => id)).size === pieces.length ? { lastId, pieces } : fault;
}

function progressOf(
  read: unknown,
  offsets: unknown,
): { readonly cells: Float64Array } | { readonly fault: string } {
  if (!Array.isArray(read) || read.length < 1 || read.length > PARTITIONS_MAX)
    return { fault: 'lists no partitions' };
  if (!Array.isArray(offsets) || offsets.length !== read.length)
    return { fault: 'does not have one offset for each partition' };
  const cells = createProgress(read.length);
  for (const [partition, item] of read.entries()) {
    if (!isObject(item)) return { fault: `has no partition ${partition}` };
    const offset: unknown = offsets[partition];
    cells[partition * PROGRESS_CELLS + OFFSET_CELL] = typeof offset === 'number' ? offset : Number.NaN;
    for (const [name, cell] of COUNTED_CELLS) {
      const value = item[name];
      if (value !== null && typeof value !== 'number')
        return { fault: `has no ${name} of partition ${partition}` };
      cells[partition * PROGRESS_CELLS + cell] = timeOf(value);
    }
    const fault = cellsFault(cells, partition);
    if (fault !== undefined) return { fault: `has ${fault} in partition ${partition}` };
  }
  return { cells };
}

function fileOf(read: Fields, role: 'base' | 'run'): FileEntry | undefined {
  const { name, bytes, crc32: crc } = read;
  if (typeof name !== 'string' || !isCount(bytes) || !isCount(crc) || crc > 0xffff_ffff) return undefined;
  // A name from a file must not be a path.
  const own = ownFile(name);
  return own?.role === role && own.isWhole ? { name, bytes, crc32: crc } : undefined;
}

function baseOf(read: unknown): BaseEntry | { readonly fault: string } {
  const fault = { fault: 'has an invalid base' };
  if (!isObject(read)) return fault;
  const { covered, parts, runs } = read;
  const file = fileOf(read, 'base');
  if (file === undefined || !isCount(covered) || !Array.isArray(parts) || !Array.isArray(runs)) return fault;
  const isPart = (item: unknown): item is { part: number; rows: number } =>
    isObject(item) && Number.isSafeInteger(item['part']) && isCount(item['rows']);
  if (!parts.every(isPart)) return fault;
  const rowCount = parts.reduce((sum, part) => sum + part.rows, 0);
  if (rowCount * ROW_BYTES > file.bytes)
    return { fault: `has a base of ${rowCount} rows in ${file.bytes} bytes` };
  const entries: RunEntry[] = [];
  for (const item of runs as readonly unknown[]) {
    const run = isObject(item) ? fileOf(item, 'run') : undefined;
    if (run === undefined || !isObject(item)) return fault;
    const { slice, rows } = item;
    if (!Number.isSafeInteger(slice) || !isCount(rows) || rows * ROW_BYTES > run.bytes) return fault;
    entries.push({ ...run, slice: slice as number, rows });
  }
  return { ...file, covered, parts: parts.map(({ part, rows }) => ({ part, rows })), runs: entries };
}
