/** `-checkpoint-store` of a run: takes the lease of the job, loads its newest checkpoint into the
 *  state folder where another engine wrote it, and stores checkpoints while the engine runs. */
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sleep } from '../../../core/clock.ts';
import { coreError, findMillraceError } from '../../../core/errors.ts';
import type { SettingsOf, SettingTable } from '../../../core/settings.ts';
import { engineError } from '../../../engine/errors.ts';
import type { WindowSink } from '../../../engine/output/sink/port.ts';
import type { Disk } from '../../../io/disk/port.ts';
import { folderStore } from '../../../io/objects/folder.ts';
import type { ObjectStore } from '../../../io/objects/port.ts';
import { s3Address, s3Store } from '../../../io/objects/s3.ts';
import type { CommandContext } from '../../../shell/command.ts';
import { lockDriver } from '../../../shell/drivers.ts';
import { hasCheckpoints, moveStaged, removeState, stageFiles } from '../savepoint/load.ts';
import type { PinnedState } from '../savepoint/pins.ts';
import { decodeHead, HEAD, type Head, type StoredFile } from './head.ts';
import { StoreLease } from './lease.ts';
import { CheckpointPublisher, claimHead, PART_BYTES, STORED_FOLDERS } from './publish.ts';
import type { STORE_SETTINGS } from './settings.ts';

/** Folder of the parts that a standby has fetched already. */
const FETCHED = 'standby';
/** File that names the store and the epoch that the state of the folder belongs to. */
const LINEAGE = 'store.lineage';
const LOCK_TRIES_MS = 10;
const LOCK_TRIES = 1_000;

type Settings = SettingsOf<typeof STORE_SETTINGS> & {
  readonly sink: string;
  readonly native: string;
};
type Context = Omit<CommandContext<SettingTable>, 'settings'> & { readonly settings: Settings };

type Found = { readonly head: Head; readonly tag: string };

async function openStore(context: Context, address: string): Promise<ObjectStore> {
  if (address.startsWith('s3:')) return s3Store({ ...s3Address(address), env: process.env });
  const locks = await lockDriver(context);
  return folderStore(address, async (folder) => {
    for (let tries = 0; tries < LOCK_TRIES; tries++) {
      const outcome = await locks.tryLock(folder);
      if ('lock' in outcome) return outcome.lock;
      await sleep(context.clock, LOCK_TRIES_MS);
    }
    throw engineError('state_locked', `${folder} stays locked`, {
      next: 'check the processes that use the folder',
    });
  });
}

/** Fetches parts of files, from the folder of a standby where it has them. */
class Parts {
  private readonly store: ObjectStore;
  private readonly folder: string;
  private last: { readonly part: string; readonly bytes: Uint8Array } | undefined;

  constructor(store: ObjectStore, disk: Disk) {
    this.store = store;
    this.folder = join(disk.where, FETCHED);
  }

  /** Fetches what the head names and this folder lacks, and removes the rest. */
  async fetch({ files }: Head, signal: AbortSignal): Promise<void> {
    await mkdir(this.folder, { recursive: true });
    const here = new Set(await readdir(this.folder));
    const needed = files.flatMap(({ parts }) => parts);
    for (const part of needed) {
      if (signal.aborted) return;
      const name = fileOf(part);
      if (here.delete(name)) continue;
      const found = await this.store.get(part);
      // The head is no longer the newest one.
      if (found === undefined) return;
      await writeFile(join(this.folder, `${name}.tmp`), found.bytes);
      await rename(join(this.folder, `${name}.tmp`), join(this.folder, name));
    }
    for (const name of here) await rm(join(this.folder, name), { force: true });
  }

  async read({ parts }: StoredFile, from: number, bytesMax: number): Promise<Uint8Array> {
    const part = parts[Math.floor(from / PART_BYTES)];
    if (part === undefined) return new Uint8Array(0);
    if (this.last?.part !== part) this.last = { part, bytes: await this.load(part) };
    const at = from % PART_BYTES;
    return this.last.bytes.subarray(at, at + bytesMax);
  }

  async clear(): Promise<void> {
    await rm(this.folder, { recursive: true, force: true });
  }

  private async load(part: string): Promise<Uint8Array> {
    const here = await readFile(join(this.folder, fileOf(part))).catch(() => undefined);
    return here ?? (await this.store.get(part))?.bytes ?? new Uint8Array(0);
  }
}

const fileOf = (part: string): string => part.replaceAll('/', '-');

/** Checkpoint store of one run, whose lease it holds. */
export class OpenedStore {
  readonly lease: StoreLease;
  private readonly context: Context;
  private readonly disk: Disk;
  private readonly store: ObjectStore;
  private readonly found: Found | undefined;

  constructor(context: Context, disk: Disk, store: ObjectStore, lease: StoreLease, found: Found | undefined) {
    this.context = context;
    this.disk = disk;
    this.store = store;
    this.lease = lease;
    this.found = found;
  }

  /** Rejects when another process has taken over the job. */
  get lost(): Promise<never> {
    return this.lease.lost;
  }

  /** Sinks whose steps begin only while the lease is held. A sink of several steps is given the
   *  lease too. */
  guard(sinks: readonly WindowSink[]): readonly WindowSink[] {
    return sinks.map((sink) => guarded(sink, () => this.lease.held()));
  }

  /** Stores checkpoints of the windows until the run closes. */
  async serve(states: readonly PinnedState[]): Promise<void> {
    const { context, disk, store, lease, found } = this;
    const { clock, log, settings } = context;
    const publisher = new CheckpointPublisher(
      {
        ...{ disk, store, lease, states, clock, log },
        sleep: (ms) => sleep(clock, ms),
        intervalMs: settings['checkpoint-store-interval'],
      },
      found,
    );
    context.onClose(() => publisher.stop());
    // A restart elsewhere needs the first offsets.
    await publisher.publish();
    publisher.start();
  }
}

const GUARDED: ReadonlySet<string | symbol> = new Set(['write', 'finish'] satisfies (keyof WindowSink)[]);

function guarded(sink: WindowSink, held: () => Promise<void>): WindowSink {
  return new Proxy(sink, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      const call = value.bind(target) as (...args: readonly unknown[]) => unknown;
      return GUARDED.has(name)
        ? async (...args: readonly unknown[]) => held().then(() => call(...args))
        : call;
    },
  });
}

/** Checks the settings of a checkpoint store. @throws usage, bad_value */
export function demandStorable({
  'checkpoint-store': address,
  sink,
}: {
  readonly 'checkpoint-store': string | undefined;
  readonly sink: string;
}): void {
  if (address === undefined) return;
  if (address.startsWith('s3:')) s3Address(address);
  if (!/^rocksdb:/.test(sink)) return;
  throw coreError(
    'usage',
    '-sink=rocksdb:FOLDER is lost with its machine, so -checkpoint-store cannot continue it',
    {
      next: 'leave -sink out: the results in -state-dir are stored with the checkpoints; or give postgres:URL or kafka:TOPIC',
      details: { setting: 'sink' },
    },
  );
}

/** Warns of results in a folder, which the store does not have. */
export function warnOfSinkFolder({
  settings,
  log,
}: Pick<Context, 'log'> & { readonly settings: { readonly sink: string } }): void {
  const folder = /^parquet:(.+)$/s.exec(settings.sink)?.[1];
  if (folder === undefined) return;
  log.warn(
    { folder },
    'results in this folder are not in the checkpoint store: every machine that may run the job must reach the same folder under this path, such as a mount of a network file system. Windows in a folder of one machine are lost with it, and are not computed again elsewhere',
  );
}

/** Undefined without -checkpoint-store; `stopped` if the run is to end while it waits.
 *  @throws usage, bad_value, state_locked, state_corrupt, store_unavailable, store_refused */
export async function openCheckpointStore(
  context: Context,
  disk: Disk,
): Promise<OpenedStore | 'stopped' | undefined> {
  const { settings, clock, log, drain } = context;
  const address = settings['checkpoint-store'];
  if (address === undefined) return undefined;
  demandStorable(settings);
  warnOfSinkFolder(context);
  const store = await openStore(context, address);
  const parts = new Parts(store, disk);
  let fetchedTag: string | undefined;
  const onWait = async (): Promise<void> => {
    try {
      const found = await store.get(HEAD);
      const head = found && decodeHead(found);
      if (head === undefined || found?.tag === fetchedTag) return;
      await parts.fetch(head, drain);
      fetchedTag = found?.tag;
    } catch (thrown) {
      if (findMillraceError(thrown)?.code !== 'store_unavailable') throw thrown;
    }
  };
  const lease = await StoreLease.take(
    { store, clock, log, sleep: (ms) => sleep(clock, ms) },
    { waits: settings.standby, signal: drain, onWait: settings.standby ? onWait : async () => {} },
  );
  if (lease === undefined) return 'stopped';
  context.onClose(() => lease.release());
  const corrupt = (text: string): Error =>
    engineError('state_corrupt', text, {
      next: 'give another -checkpoint-store, or remove the damaged object',
    });
  const found = await claimHead(store, lease, store.where, corrupt);
  if (found !== undefined && !(await isOwn(disk, store, found)))
    await fetchState(context, disk, parts, found.head);
  await disk.write(LINEAGE, [lineageOf(store, lease.epoch)]);
  await parts.clear();
  return new OpenedStore(context, disk, store, lease, found);
}

const lineageOf = ({ where }: ObjectStore, epoch: number): Uint8Array =>
  new TextEncoder().encode(`${JSON.stringify({ where, epoch })}\n`);

/** True if the state of the folder is that of the store's last owner: it is at least as new. */
async function isOwn(
  disk: Disk,
  store: ObjectStore,
  { head, before }: Found & { readonly before: number },
): Promise<boolean> {
  const lineage = await disk.read(LINEAGE);
  if (lineage === undefined || Buffer.compare(lineage, lineageOf(store, before)) !== 0) return false;
  return hasCheckpoints(
    disk.where,
    head.files.map(({ name }) => name),
  );
}

/** Replaces the state of the folder by the checkpoint of the store. */
async function fetchState({ log, clock }: Context, disk: Disk, parts: Parts, head: Head): Promise<void> {
  const startedMs = clock.monotonicMs();
  const byName = new Map(head.files.map((file) => [file.name, file]));
  const states = await stageFiles(disk, {
    files: head.files,
    read: (path, from, max) => parts.read(byName.get(path) as StoredFile, from, max),
    damaged: (fault) =>
      engineError('state_corrupt', `the checkpoint in the store is damaged: ${fault}`, {
        next: 'put the object back from a copy, or give another -checkpoint-store to compute everything again',
      }),
  });
  await disk.remove(LINEAGE);
  await removeState(disk);
  await moveStaged(disk, head.files, states, STORED_FOLDERS, async () => {});
  const bytes = head.files.reduce((sum, file) => sum + file.bytes, 0);
  const seconds = (clock.monotonicMs() - startedMs) / 1000;
  log.info(
    { checkpoint: head.checkpointId, files: head.files.length, bytes, seconds },
    'checkpoint fetched from the store',
  );
}
