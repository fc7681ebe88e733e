/** Checkpoints of a running engine that readers copy over HTTP: each is a folder of hard links in
 *  the state folder, so that the engine may remove its own names meanwhile. */
import { randomUUID } from 'node:crypto';
import { mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Timers } from '../../../core/clock.ts';
import type { SavepointHead, SavepointQueries } from '../../../engine/api/savepoints.ts';
import type { StateManifest } from '../../../engine/durability/checkpoint/state-manifest.ts';
import {
  filesOfCheckpoint,
  prefixOf,
  STATE_STORES,
  type StateFile,
  WINDOWS_FILE,
} from '../../../engine/durability/savepoint/files.ts';
import { engineError } from '../../../engine/errors.ts';
import type { Disk } from '../../../io/disk/port.ts';
import type { KvStore } from '../../../io/rocksdb/port.ts';
import { linkFile, sizeIn, storeFiles } from './folder.ts';

const PINS = 'pins';
/** Checkpoints that readers may hold at a time: each keeps its files on the disk. */
const PINS_MAX = 2;
/** Time after the last read at which a checkpoint is released. */
const IDLE_MS = 600_000;
const SWEEP_MS = 10_000;

interface Pin {
  readonly folder: string;
  readonly files: readonly StateFile[];
  usedMs: number;
}

/** State of a window of a run. */
export interface PinnedState {
  /** Undefined: the only window, without a name. */
  readonly window: string | undefined;
  /** Folder of its checkpoints. */
  readonly disk: Disk;
  readonly stores: ReadonlyMap<string, KvStore>;
  readonly engine: {
    pinned<T>(use: (manifest: StateManifest, lastSeq: number) => Promise<T>): Promise<T>;
  };
}

export interface PinParts {
  /** Folder of the state; the process holds its lock. */
  readonly disk: Disk;
  readonly states: readonly PinnedState[];
  readonly clock: Timers;
}

/** Links the files of a checkpoint into a folder that does not exist, and copies the stores of
 *  these folders: hard links too. The stores are at least as new as the changelog. */
async function linkCheckpoint(
  { disk, stores }: PinnedState,
  folder: string,
  manifest: StateManifest,
  lastSeq: number,
  folders: readonly string[],
): Promise<readonly StateFile[]> {
  const files = await filesOfCheckpoint(disk, manifest, lastSeq, sizeIn(disk.where));
  await mkdir(folder, { recursive: true });
  for (const { path } of files) await linkFile(join(disk.where, path), join(folder, path));
  for (const [name, store] of stores) if (folders.includes(name)) await store.checkpoint(join(folder, name));
  return [...files, ...(await storeFiles(folder, folders))];
}

/** Links a checkpoint of each state into a folder, one after the other: each has its own offsets.
 *  @returns the files, and the greatest id of the checkpoints */
export async function linkStates(
  { disk, states }: Pick<PinParts, 'disk' | 'states'>,
  folder: string,
  folders: readonly string[] = STATE_STORES,
): Promise<{ readonly files: readonly StateFile[]; readonly checkpointId: number }> {
  const files: StateFile[] = [];
  let checkpointId = 0;
  await mkdir(folder, { recursive: true });
  if (states.some(({ window }) => window !== undefined)) {
    await linkFile(join(disk.where, WINDOWS_FILE), join(folder, WINDOWS_FILE));
    files.push({ path: WINDOWS_FILE, bytes: await sizeIn(folder)(WINDOWS_FILE) });
  }
  for (const state of states) {
    const prefix = prefixOf(state.window);
    const linked = await state.engine.pinned((manifest, lastSeq) => {
      checkpointId = Math.max(checkpointId, manifest.id);
      return linkCheckpoint(state, join(folder, prefix), manifest, lastSeq, folders);
    });
    for (const { path, bytes } of linked) files.push({ path: `${prefix}${path}`, bytes });
  }
  return { files, checkpointId };
}

/** Checkpoints of a run for readers. */
export class PinnedCheckpoints implements SavepointQueries {
  private readonly parts: PinParts;
  private readonly pins = new Map<string, Pin>();
  private making = 0;
  private readonly cancel: () => void;

  constructor(parts: PinParts) {
    this.parts = parts;
    this.cancel = parts.clock.every(SWEEP_MS, () => void this.expire(), 'background');
  }

  /** Removes what an earlier process left. */
  static async clear(disk: Disk): Promise<void> {
    await rm(join(disk.where, PINS), { recursive: true, force: true });
  }

  async create(): Promise<SavepointHead> {
    if (this.pins.size + this.making >= PINS_MAX)
      throw engineError('savepoint_busy', `${PINS_MAX} savepoints are being copied`, {
        next: 'wait until one of them is complete, or 10 minutes after its last read',
      });
    this.making++;
    const id = randomUUID();
    const folder = join(this.parts.disk.where, PINS, id);
    try {
      const { files } = await linkStates(this.parts, folder);
      this.pins.set(id, { folder, files, usedMs: this.parts.clock.monotonicMs() });
      return { id, files };
    } catch (thrown) {
      await rm(folder, { recursive: true, force: true });
      throw thrown;
    } finally {
      this.making--;
    }
  }

  async read(id: string, number: number, from: number, bytesMax: number): Promise<Uint8Array> {
    const pin = this.pinOf(id);
    const file = pin.files[number];
    if (file === undefined) throw missing(`savepoint ${id} has no file ${number}`);
    pin.usedMs = this.parts.clock.monotonicMs();
    return readBytes(join(pin.folder, file.path), from, Math.min(bytesMax, Math.max(0, file.bytes - from)));
  }

  async remove(id: string): Promise<void> {
    const { folder } = this.pinOf(id);
    this.pins.delete(id);
    await rm(folder, { recursive: true, force: true });
  }

  async close(): Promise<void> {
    this.cancel();
    this.pins.clear();
    await PinnedCheckpoints.clear(this.parts.disk);
  }

  private pinOf(id: string): Pin {
    const pin = this.pins.get(id);
    if (pin === undefined) throw missing(`there is no savepoint ${JSON.stringify(id.slice(0, 64))}`);
    return pin;
  }

  private async expire(): Promise<void> {
    const oldest = this.parts.clock.monotonicMs() - IDLE_MS;
    for (const [id, { usedMs }] of this.pins) if (usedMs < oldest) await this.remove(id).catch(() => {});
  }
}

const missing = (text: string): Error =>
  engineError('savepoint_missing', text, { next: 'it was released or is complete: make another one' });

async function readBytes(path: string, from: number, bytesMax: number): Promise<Uint8Array> {
  const file = await open(path, 'r');
  try {
    const bytes = new Uint8Array(bytesMax);
    let filled = 0;
    while (filled < bytesMax) {
      const { bytesRead } = await file.read(bytes, filled, bytesMax - filled, from + filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    return bytes.subarray(0, filled);
  } finally {
    await file.close();
  }
}
