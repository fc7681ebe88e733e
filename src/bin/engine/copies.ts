/** Copies of an embedded store for readers, while another process has it open: RocksDB lets one
 *  process in at a time.
 *
 *  A reader makes a folder beside the store, takes its lock and puts a file `wanted` in it; the
 *  process that has the store makes a checkpoint of it there, `store`, which shares the files that
 *  never change, or a file `failed` that says why not. The reader removes the folder. One whose
 *  reader is dead, as its lock shows, goes when the store's process looks.
 */
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { sleep, type Timers } from '../../core/clock.ts';
import { findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import { existingDisk, openDisk } from '../../io/disk/node.ts';
import type { FolderLock, LockDriver } from '../../io/lock/port.ts';
import { type KvStore, kvError } from '../../io/rocksdb/port.ts';

const LOOK_MS = 200;
/** A reader looks so often for its copy before it tries the store itself again. */
const LOOKS_A_TRY = 10;
const WANTED = 'wanted';
const FAILED = 'failed';
const STORE = 'store';
/** A checkpoint that is not complete. */
const UNFINISHED = 'store.tmp';

/** Also while the other side writes into it. */
const removeFolder = (path: string): Promise<void> =>
  rm(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });

const copiesOf = (folder: string): string => `${folder}.copies`;

const isWanted = (request: string): boolean => existsSync(join(request, WANTED));

/** Whether the request is of a living reader and has no answer; what a dead one left goes. */
async function isOpen(request: string, locks: LockDriver): Promise<boolean> {
  const outcome = await locks.tryLock(request);
  if ('holder' in outcome) return !existsSync(join(request, STORE)) && !existsSync(join(request, FAILED));
  try {
    await removeFolder(request);
  } finally {
    outcome.lock.release();
  }
  return false;
}

/** @throws not_writable where the reader cannot be told why there is no copy */
async function answer(store: KvStore, request: string, log: Logger): Promise<void> {
  try {
    await removeFolder(join(request, UNFINISHED));
    await store.checkpoint(join(request, UNFINISHED));
    await rename(join(request, UNFINISHED), join(request, STORE));
    log.info({ folder: store.folder }, 'copied the results for an export');
  } catch (thrown) {
    // The reader may have gone; then there is nobody to tell.
    if (!isWanted(request)) return;
    const why = findMillraceError(thrown)?.message ?? String(thrown);
    await (await existingDisk(request)).write(FAILED, [new TextEncoder().encode(why)]);
    log.warn({ folder: store.folder, error: why }, 'cannot copy the results for an export');
  }
}

/** Makes the requested copies until the returned function is called, whose promise settles when no
 *  copy is being made. */
export function serveCopies(
  store: KvStore,
  locks: LockDriver,
  { clock, log }: { readonly clock: Timers; readonly log: Logger },
): () => Promise<void> {
  const off = new AbortController();
  const copies = copiesOf(store.folder);
  /** Requests that could not be served, which is said once. They are tried again, and stand in no
   *  other's way. */
  const failing = new Set<string>();
  const serveOne = async (request: string): Promise<void> => {
    try {
      if (isWanted(request) && (await isOpen(request, locks))) await answer(store, request, log);
    } catch (thrown) {
      // Its reader may be removing it meanwhile.
      if (!isWanted(request) || failing.has(request)) return;
      failing.add(request);
      const error = findMillraceError(thrown)?.toLine() ?? String(thrown);
      log.warn({ request, error }, 'cannot serve an export');
    }
  };
  const serve = async (): Promise<void> => {
    while (!off.signal.aborted) {
      for (const name of await readdir(copies).catch(() => [])) await serveOne(join(copies, name));
      await sleep(clock, LOOK_MS, off.signal, 'background');
    }
  };
  const serving = serve();
  return () => {
    off.abort();
    return serving;
  };
}

/** What a reader asks with. */
export interface CopyRequest {
  readonly folder: string;
  /** Opens the store where it stands. @throws kv_locked */
  readonly open: (folder: string) => Promise<KvStore>;
  readonly locks: LockDriver;
  readonly clock: Timers;
  readonly waitMs: number;
  readonly signal: AbortSignal;
}

/** The store itself, or its copy while another process has it: open, with a way to let go of it.
 *  @throws kv_locked when nobody answers; kv_io when no copy can be made */
export async function openOrCopy(
  ask: CopyRequest,
): Promise<{ readonly store: KvStore; readonly done: () => Promise<void> }> {
  const { folder, open } = ask;
  const itself = async () => {
    try {
      const store = await open(folder);
      return { store, done: () => store.close() };
    } catch (thrown) {
      if (findMillraceError(thrown)?.code === 'kv_locked') return undefined;
      throw thrown;
    }
  };
  const found = await itself();
  if (found !== undefined) return found;
  const request = join(copiesOf(folder), randomUUID());
  let lock: FolderLock | undefined;
  const remove = (): Promise<void> => removeFolder(request).finally(() => lock?.release());
  try {
    const disk = await openDisk(request);
    const outcome = await ask.locks.tryLock(request);
    if ('lock' in outcome) lock = outcome.lock;
    await disk.write(WANTED, []);
    for (let looks = 0; looks * LOOK_MS < ask.waitMs && !ask.signal.aborted; looks++) {
      if (existsSync(join(request, STORE))) {
        const store = await open(join(request, STORE));
        return { store, done: () => store.close().finally(remove) };
      }
      const why = await disk.read(FAILED);
      if (why !== undefined)
        throw kvError('kv_io', `no copy of ${folder} could be made: ${new TextDecoder().decode(why)}`);
      await sleep(ask.clock, LOOK_MS);
      // The other process may have ended.
      const free = looks % LOOKS_A_TRY === LOOKS_A_TRY - 1 ? await itself() : undefined;
      if (free === undefined) continue;
      await remove();
      return free;
    }
    throw kvError('kv_locked', `${folder} is open in another process, which made no copy of it`, {
      next: 'wait longer (-export-wait), or stop that process',
    });
  } catch (thrown) {
    await remove();
    throw thrown;
  }
}
