/** Copies of an embedded store for readers, while another process has it open: RocksDB lets one process in at a time.
 *
 *  A reader makes a folder beside the store, takes its lock and puts a file `wanted` in it; the process that has the store
 *  makes a checkpoint of it there, `store`, which shares the files that never change, or a file `failed` that says why not.
 *  The reader removes the folder. One whose reader is dead, as its lock shows, goes when the store's process looks.
 */
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import { openDisk } from '../../io/disk/node.ts';
import { type KvStore, kvError } from '../../io/kv/port.ts';

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

/** Requests of living readers that have no answer; what dead ones left goes. */
async function openRequests(folder: string): Promise<readonly string[]> {
  const copies = copiesOf(folder);
  const found: string[] = [];
  for (const name of await readdir(copies).catch(() => [])) {
    const request = join(copies, name);
    if (!existsSync(join(request, WANTED))) continue;
    try {
      const { release } = await (await openDisk(request)).lock();
      if (release !== undefined) await removeFolder(request);
      else if (!existsSync(join(request, STORE)) && !existsSync(join(request, FAILED))) found.push(request);
    } catch (thrown) {
      // Its reader has removed it meanwhile.
      if (existsSync(join(request, WANTED))) throw thrown;
    }
  }
  return found;
}

async function answer(store: KvStore, request: string, log: Logger): Promise<void> {
  try {
    await removeFolder(join(request, UNFINISHED));
    await store.checkpoint(join(request, UNFINISHED));
    await rename(join(request, UNFINISHED), join(request, STORE));
    log.info({ folder: store.folder }, 'copied the results for an export');
  } catch (thrown) {
    // The reader may have gone; then there is nobody to tell.
    if (!existsSync(request)) return;
    const why = findMillraceError(thrown)?.message ?? String(thrown);
    log.warn({ folder: store.folder, error: why }, 'cannot copy the results for an export');
    await (await openDisk(request)).write(FAILED, [new TextEncoder().encode(why)]);
  }
}

/** Makes the copies that are asked for, until it is called off; that settles when none is being made. */
export function serveCopies(store: KvStore, log: Logger): () => Promise<void> {
  const off = new AbortController();
  const serve = async (): Promise<void> => {
    while (!off.signal.aborted) {
      for (const request of await openRequests(store.folder)) await answer(store, request, log);
      await sleep(LOOK_MS, undefined, { signal: off.signal, ref: false }).catch(() => {});
    }
  };
  const serving = serve().catch((thrown) => {
    log.warn({ folder: store.folder, error: String(thrown) }, 'no copies for exports are made any longer');
  });
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
  const remove = (): Promise<void> => removeFolder(request);
  try {
    const disk = await openDisk(request);
    await disk.lock();
    await disk.write(WANTED, []);
    for (let looks = 0; looks * LOOK_MS < ask.waitMs && !ask.signal.aborted; looks++) {
      if (existsSync(join(request, STORE))) {
        const store = await open(join(request, STORE));
        return { store, done: () => store.close().finally(remove) };
      }
      const why = await disk.read(FAILED);
      if (why !== undefined)
        throw kvError('kv_io', `no copy of ${folder} could be made: ${new TextDecoder().decode(why)}`);
      await sleep(LOOK_MS);
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
