/** Restores the state of a run from its newest valid checkpoint.
 *
 *  A checkpoint is valid if its manifest can be read, every file that it names matches, and the
 *  changelog after it can be replayed. The changelog must not end before a record that any manifest
 *  calls durable. Each refused checkpoint is logged. A torn last record, which a crash leaves, is
 *  cut off. If the folder has state files but no valid checkpoint, the restore refuses: an empty
 *  start would lose results silently.
 */

import { COVER_RANGES } from '../../../addon/window-surface.ts';
import { findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import type { Disk } from '../../../io/disk/port.ts';
import type { DuplicateFilter } from '../../dedup/filter.ts';
import { engineError } from '../../errors.ts';
import type { Job } from '../../job.ts';
import type { KeyDictionary } from '../../keys/dictionary.ts';
import { BINARY256 } from '../../source/input/binary256.ts';
import { keyTypeOf } from '../../source/input/definition.ts';
import { segmentSeq } from '../changelog/log.ts';
import { Replay, type ReplayEnd, truncateTornTail } from '../changelog/replay.ts';
import type { PieceStore } from '../spill/pieces.ts';
import type { RecoveryPoint } from './checkpointer.ts';
import { checkpointsToKeep } from './kept.ts';
import type { LiveState } from './live.ts';
import { Replayer } from './replayer.ts';
import { ALL_RANGES, readBlocks, sizeFault } from './rows-file.ts';
import { ownFile, readManifest, type StateManifest, stateManifestName } from './state-manifest.ts';

export interface RestoreParts {
  readonly disk: Disk;
  readonly log: Logger;
  /** Opens an empty state for the job of a manifest; it is closed when the checkpoint proves
   *  invalid.
   *  @throws job_changed, or another reason not to resume from it */
  readonly open: (manifest: StateManifest) => LiveState;
  /** Present for a state on disk. */
  readonly pieces?: PieceStore;
  /** Receives the identifiers of open windows; called after each `open`. */
  readonly ids?: (() => Pick<DuplicateFilter, 'restore'> | undefined) | undefined;
  /** Opened and used if the keys of the job are no integers. */
  readonly keys?: Pick<KeyDictionary, 'open' | 'replay'> | undefined;
}

export interface Restored extends RecoveryPoint {
  readonly manifest: StateManifest;
  readonly state: LiveState;
  /** Refused checkpoints, one line each. */
  readonly refused: readonly string[];
  /** Number of replayed records of the changelog. */
  readonly replayed: number;
  /** Bytes of a torn record that were cut off. */
  readonly cutBytes: number;
}

type Attempt = Pick<Restored, 'state' | 'replayed' | 'cutBytes'> & {
  readonly replayer: Replayer;
  readonly end: ReplayEnd;
};

/** Returns the state of the newest valid checkpoint and of the changelog after it; undefined for a
 *  folder without state files. The caller holds the lock of the folder. @throws state_corrupt */
export async function restoreState(parts: RestoreParts): Promise<Restored | undefined> {
  const { disk, log } = parts;
  const names = await disk.list();
  const own = names.flatMap((name) => ownFile(name) ?? []);
  const refused: string[] = [];
  const refuse = (fault: string): void => {
    refused.push(fault);
    log.warn({ fault }, 'checkpoint refused');
  };
  const readable: StateManifest[] = [];
  const ids = own.filter(({ role, isWhole }) => role === 'manifest' && isWhole).map(({ id }) => id);
  for (const id of ids.sort((a, b) => b - a)) {
    const read = await readManifest(disk, id);
    if ('fault' in read) refuse(`${stateManifestName(id)} ${read.fault}`);
    else readable.push(read.manifest);
  }
  if (ids.length === 0) {
    const left = names.filter((name) => ownFile(name)?.isWhole || segmentSeq(name) !== undefined).sort();
    if (left.length > 0)
      throw corrupt(disk, [`there is no manifest, but the folder has ${left.slice(0, 3).join(', ')}`]);
    return undefined;
  }
  const durable = Math.max(0, ...readable.map((manifest) => manifest.durable));
  for (const [i, manifest] of readable.entries()) {
    const attempt = await tryRestore(parts, manifest, durable);
    if ('fault' in attempt) {
      refuse(`${stateManifestName(manifest.id)}: ${attempt.fault}`);
      continue;
    }
    const { state, replayer, end, replayed, cutBytes } = attempt;
    await truncateTornTail(disk, end);
    if (cutBytes > 0)
      log.info({ record: end.lastSeq + 1, bytes: cutBytes }, 'torn record cut off the changelog');
    const { progress, frontier, maxSeen, fired, unsent, bytes, ledger } = replayer;
    const { base, replayFrom, formFrom } = manifest;
    return {
      ...{ manifest, state, refused, replayed, cutBytes },
      ...{ progress, frontier, maxSeen, fired, unsent, base, replayFrom, formFrom, ledger },
      nextSeq: end.lastSeq + 1,
      changelogBytes: bytes,
      kept: checkpointsToKeep(readable.slice(i).reverse()),
    };
  }
  throw corrupt(disk, refused);
}

/** Job of the newest checkpoint that can be read; undefined for none. The folder may belong to a
 *  running engine, whose checkpoints come and go. */
export async function savedJob(disk: Pick<Disk, 'list' | 'read'>): Promise<Job | undefined> {
  const own = (await disk.list()).flatMap((name) => ownFile(name) ?? []);
  const ids = own.filter(({ role, isWhole }) => role === 'manifest' && isWhole).map(({ id }) => id);
  for (const id of ids.sort((a, b) => b - a)) {
    const read = await readManifest(disk, id);
    if ('manifest' in read) return read.manifest.job;
  }
  return undefined;
}

const corrupt = (disk: Disk, refused: readonly string[]): Error =>
  engineError('state_corrupt', `no checkpoint in ${disk.where} can be restored: ${refused.join('; ')}`, {
    next: 'put the files back from a copy, or give an empty -state-dir to compute everything again',
    details: { refused },
  });

async function tryRestore(
  parts: RestoreParts,
  manifest: StateManifest,
  durable: number,
): Promise<Attempt | { readonly fault: string }> {
  const { disk } = parts;
  const state = parts.open(manifest);
  const pieces = parts.pieces?.withRows(state.rowBytes);
  let isRestored = false;
  try {
    const covered = new Float64Array(COVER_RANGES);
    const baseFault = await loadBase(disk, manifest, state, covered);
    if (baseFault !== undefined) return { fault: baseFault };
    const keys = keyTypeOf(manifest.job.input ?? BINARY256) === undefined ? undefined : parts.keys;
    await keys?.open(true);
    const replayer = new Replayer(state, manifest, covered, pieces !== undefined, keys, parts.ids?.());
    const end = await new Replay(disk, manifest.replayFrom, durable).run((frame) => replayer.apply(frame));
    const fault = end.damage ?? replayer.fault;
    if (fault !== undefined) return { fault };
    await replayer.reattach();
    await replayer.dropEnded();
    const pieceFault = await adoptPieces(pieces, state, replayer);
    if (pieceFault !== undefined) return { fault: pieceFault };
    const runFault = await loadRuns(disk, manifest, state, replayer);
    if (runFault !== undefined) return { fault: runFault };
    isRestored = true;
    const cutBytes = end.torn === undefined ? 0 : end.torn.bytes - end.torn.wholeBytes;
    return { state, replayer, end, replayed: replayer.records, cutBytes };
  } catch (thrown) {
    if (findMillraceError(thrown)?.code !== 'out_of_range') throw thrown;
    return { fault: `refers to an impossible state: ${(thrown as Error).message}` };
  } finally {
    if (!isRestored) state.close();
  }
}

/** Adopts the pieces of the state after reading each of them completely. */
async function adoptPieces(
  pieces: PieceStore | undefined,
  state: LiveState,
  { ledger }: Replayer,
): Promise<string | undefined> {
  if (pieces === undefined) return undefined;
  for (const entry of ledger?.pieces ?? []) {
    const read = await pieces.verify(entry);
    if ('fault' in read) return read.fault;
    state.adopt(read.piece);
  }
  return undefined;
}

/** Loads the live tables of the base, and fills `covered` with the last record of each range.
 *  Returns the reason if the base is invalid. */
async function loadBase(
  disk: Disk,
  manifest: StateManifest,
  state: LiveState,
  covered: Float64Array,
): Promise<string | undefined> {
  const { base } = manifest;
  if (base === undefined) return undefined;
  const inRuns = new Set(base.runs.map(({ slice }) => slice));
  const isOfUse = (part: number): boolean => !inRuns.has(part) && state.lastEndOf(part) > manifest.fired;
  const size = await sizeFault(disk, base);
  if (size !== undefined) return `${base.name} ${size}`;
  for (const { part, rows } of base.parts) if (isOfUse(part)) state.reserve(part, rows);
  const found = new Map<number, number>();
  let isOutOfPlace = false;
  covered.fill(Number.NaN);
  const fault = await readBlocks(
    disk,
    base,
    (block) => {
      const { range, part, rows, rowCount } = block;
      const before = covered[range];
      isOutOfPlace ||=
        range === ALL_RANGES ||
        (before !== block.covered && !Number.isNaN(before)) ||
        block.covered < manifest.replayFrom - 1 ||
        block.covered > base.covered;
      if (isOutOfPlace) return;
      covered[range] = block.covered;
      if (rowCount === 0) return;
      found.set(part, (found.get(part) ?? 0) + rowCount);
      if (isOfUse(part)) state.load(part, rows, rowCount);
    },
    state.rowBytes,
  );
  if (fault !== undefined) return `${base.name} ${fault}`;
  const isWhole = covered.every((seq) => !Number.isNaN(seq));
  const isCounted =
    found.size === base.parts.length && base.parts.every(({ part, rows }) => found.get(part) === rows);
  if (isOutOfPlace || !isWhole || !isCounted)
    return `${base.name} does not have the rows that the manifest lists`;
  return undefined;
}

/** Replaces the rows of sealed slices by those of their run files. Returns the reason if a file is
 *  invalid. */
async function loadRuns(
  disk: Disk,
  manifest: StateManifest,
  state: LiveState,
  { fired, ledger }: Replayer,
): Promise<string | undefined> {
  for (const run of manifest.base?.runs ?? []) {
    // A slice that was spilled after the checkpoint is in a piece.
    if (state.lastEndOf(run.slice) <= fired || ledger?.hasPart(run.slice) === true) continue;
    const size = await sizeFault(disk, run);
    if (size !== undefined) return `${run.name} ${size}`;
    state.drop(run.slice);
    state.reserve(run.slice, run.rows);
    let found = 0;
    let isOutOfPlace = false;
    const fault = await readBlocks(
      disk,
      run,
      ({ range, part, rows, rowCount }) => {
        isOutOfPlace ||= range !== ALL_RANGES || part !== run.slice;
        if (isOutOfPlace) return;
        found += rowCount;
        if (rowCount > 0) state.load(part, rows, rowCount);
      },
      state.rowBytes,
    );
    if (fault !== undefined) return `${run.name} ${fault}`;
    if (isOutOfPlace || found !== run.rows)
      return `${run.name} does not have the rows that the manifest lists`;
  }
  return undefined;
}
