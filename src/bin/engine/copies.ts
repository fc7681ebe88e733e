/** Copies of an embedded store for readers while another process has it open: RocksDB admits one
 *  process at a time.
 *
 *  Protocol: a reader creates a folder next to the store, locks it and writes a file `wanted`. The
 *  process that owns the store creates a checkpoint there, `store`, which shares the immutable
 *  files, or a file `failed` with the reason. The reader withdraws its request by renaming the
 *  folder, and then removes it. The owner may be answering meanwhile: it removes what it created
 *  where no process wants it. If the lock shows that the reader is dead, the owner removes the
 *  folder at its next poll. */
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

const POLL_MS = 200;
/** Polls of a reader between two attempts to open the store openStore. */
const POLLS_PER_ATTEMPT = 10;
const WANTED = 'wanted';
const FAILED = 'failed';
const STORE = 'store';
/** Ending of the folder of a withdrawn request. */
const WITHDRAWN = '.withdrawn';
/** Incomplete checkpoint. */
const UNFINISHED = 'store.tmp';

/** Retries: the other process may still write into the folder. */
const removeFolder = (path: string): Promise<void> =>
  rm(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });

const copiesOf = (folder: string): string => `${folder}.copies`;

const isWanted = (request: string): boolean => existsSync(join(request, WANTED));

/** True while the reader lives. Removes the folder of a dead reader. */
async function isAlive(request: string, locks: LockDriver): Promise<boolean> {
  const outcome = await locks.tryLock(request);
  if ('holder' in outcome) return true;
  try {
    await removeFolder(request);
  } finally {
    outcome.lock.release();
  }
  return false;
}

/** True if no answer was given. Asked after the reader was found alive, which may have withdrawn
 *  its request meanwhile. */
const isOpen = (request: string): boolean =>
  isWanted(request) && !existsSync(join(request, STORE)) && !existsSync(join(request, FAILED));

/** @throws not_writable if the reader cannot be informed of the failure */
async function answer(store: KvStore, request: string, log: Logger): Promise<void> {
  try {
    await removeFolder(join(request, UNFINISHED));
    await store.checkpoint(join(request, UNFINISHED));
    await rename(join(request, UNFINISHED), join(request, STORE));
    log.info({ folder: store.folder }, 'copied the results for an export');
  } catch (thrown) {
    // If the reader has withdrawn its request, no process waits for the reason.
    if (!isWanted(request)) return;
    const why = findMillraceError(thrown)?.message ?? String(thrown);
    await (await existingDisk(request)).write(FAILED, [new TextEncoder().encode(why)]);
    log.warn({ folder: store.folder, error: why }, 'cannot copy the results for an export');
  } finally {
    if (!isWanted(request)) await removeFolder(request);
  }
}

/** Serves copy requests until the returned function is called. Its promise settles when no copy is
 *  in progress. */
export function serveCopies(
  store: KvStore,
  locks: LockDriver,
  { clock, log }: { readonly clock: Timers; readonly log: Logger },
): () => Promise<void> {
  const off = new AbortController();
  const copies = copiesOf(store.folder);
  /** Requests that failed: each is logged once and retried, and does not block other requests. */
  const failing = new Set<string>();
  const serveOne = async (request: string): Promise<void> => {
    try {
      if (request.endsWith(WITHDRAWN)) await isAlive(request, locks);
      else if (isWanted(request) && (await isAlive(request, locks)) && isOpen(request))
        await answer(store, request, log);
    } catch (thrown) {
      // The reader may be removing the folder meanwhile.
      if (!isWanted(request) || failing.has(request)) return;
      failing.add(request);
      const error = findMillraceError(thrown)?.toLine() ?? String(thrown);
      log.warn({ request, error }, 'cannot serve an export');
    }
  };
  const serve = async (): Promise<void> => {
    while (!off.signal.aborted) {
      for (const name of await readdir(copies).catch(() => [])) await serveOne(join(copies, name));
      await sleep(clock, POLL_MS, off.signal, 'background');
    }
  };
  const serving = serve();
  return () => {
    off.abort();
    return serving;
  };
}

/** Request of a reader. */
export interface CopyRequest {
  readonly folder: string;
  /** Opens the store at its own path. @throws kv_locked */
  readonly open: (folder: string) => Promise<KvStore>;
  readonly locks: LockDriver;
  readonly clock: Timers;
  readonly waitMs: number;
  readonly signal: AbortSignal;
}

/** Opens the store openStore, or a copy while another process has it open. `done` closes it and
 *  removes the copy.
 *  @throws kv_locked if no copy was made in time; kv_io if the copy failed */
export async function openOrCopy(
  ask: CopyRequest,
): Promise<{ readonly store: KvStore; readonly done: () => Promise<void> }> {
  const { folder, open } = ask;
  const openStore = async () => {
    try {
      const store = await open(folder);
      return { store, done: () => store.close() };
    } catch (thrown) {
      if (findMillraceError(thrown)?.code === 'kv_locked') return undefined;
      throw thrown;
    }
  };
  const found = await openStore();
  if (found !== undefined) return found;
  const request = join(copiesOf(folder), randomUUID());
  let lock: FolderLock | undefined;
  const remove = async (): Promise<void> => {
    const withdrawn = `${request}${WITHDRAWN}`;
    try {
      // ENOENT: the folder was not created, or the owner has removed it.
      await rename(request, withdrawn).catch((thrown: NodeJS.ErrnoException) => {
        if (thrown.code !== 'ENOENT') throw thrown;
      });
      await removeFolder(withdrawn);
    } finally {
      lock?.release();
    }
  };
  try {
    const disk = await openDisk(request);
    const outcome = await ask.locks.tryLock(request);
    if ('lock' in outcome) lock = outcome.lock;
    await disk.write(WANTED, []);
    for (let polls = 0; polls * POLL_MS < ask.waitMs && !ask.signal.aborted; polls++) {
      if (existsSync(join(request, STORE))) {
        const store = await open(join(request, STORE));
        return { store, done: () => store.close().finally(remove) };
      }
      const why = await disk.read(FAILED);
      if (why !== undefined)
        throw kvError('kv_io', `no copy of ${folder} could be made: ${new TextDecoder().decode(why)}`);
      await sleep(ask.clock, POLL_MS);
      // The other process may have ended.
      const free = polls % POLLS_PER_ATTEMPT === POLLS_PER_ATTEMPT - 1 ? await openStore() : undefined;
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
