/** Writes the checkpoints of a running engine into a checkpoint store: the files that the store
 *  does not have, and then the head, which makes them the job's newest checkpoint. */
import { mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import type { Clock } from '../../../core/clock.ts';
import { findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import { placeOfPath, type StateFile, WINDOWS_FILE } from '../../../engine/durability/savepoint/files.ts';
import type { ObjectStore } from '../../../io/objects/port.ts';
import { linkStates, type PinParts } from '../savepoint/pins.ts';
import { decodeHead, encodeHead, FILES, HEAD, type Head, type StoredFile } from './head.ts';
import type { StoreLease } from './lease.ts';

/** Bytes of a part of a file: one object, and what an upload keeps in memory. */
export const PART_BYTES = 8 * 1024 * 1024;

/** Files that never change under one path: the others have a name that is used again. */
const isImmutable = (path: string): boolean =>
  path !== WINDOWS_FILE && (!placeOfPath(path).path.includes('/') || path.endsWith('.sst'));

export interface CheckpointPublisherParts extends Omit<PinParts, 'clock'> {
  readonly store: ObjectStore;
  readonly lease: StoreLease;
  readonly clock: Clock;
  readonly sleep: (ms: number) => Promise<void>;
  readonly log: Logger;
  readonly intervalMs: number;
  /** Called before each object is written; it may end the process. */
  readonly onStep?: (step: string) => void | Promise<void>;
}

export class CheckpointPublisher {
  private readonly parts: CheckpointPublisherParts;
  private tag: string | undefined;
  private head: Head | undefined;
  private lastPart = 0;
  private lastPin = 0;
  private isOver = false;
  private working: Promise<void> = Promise.resolve();

  /** @param found head of the store when the lease was taken, already of this epoch */
  constructor(
    parts: CheckpointPublisherParts,
    found: { readonly head: Head; readonly tag: string } | undefined,
  ) {
    this.parts = parts;
    this.head = found?.head;
    this.tag = found?.tag;
  }

  /** Publishes until `stop`. */
  start(): void {
    this.working = this.loop();
  }

  async stop(): Promise<void> {
    this.isOver = true;
    await this.working;
  }

  private async loop(): Promise<void> {
    const { log, intervalMs, clock, sleep } = this.parts;
    while (!this.isOver) {
      const startedMs = clock.monotonicMs();
      try {
        await this.publish();
      } catch (thrown) {
        const known = findMillraceError(thrown);
        // The run has ended: it closes its stores.
        if (ENDED.has(known?.code ?? '')) return;
        log.warn({ error: known?.toLine() ?? String(thrown) }, 'checkpoint not stored; trying again');
      }
      const left = intervalMs - (clock.monotonicMs() - startedMs);
      for (let waited = 0; waited < left && !this.isOver; waited += STEP_MS)
        await sleep(Math.min(STEP_MS, left - waited));
    }
  }

  /** Stores one checkpoint. @throws store_fenced, store_unavailable */
  async publish(): Promise<void> {
    const { disk, store, lease, log, clock, onStep } = this.parts;
    const folder = join(disk.where, 'pins', `store-${++this.lastPin}`);
    const startedMs = clock.monotonicMs();
    await mkdir(join(disk.where, 'pins'), { recursive: true });
    try {
      const { files, checkpointId } = await linkStates(this.parts, folder, STORED_FOLDERS);
      const { stored, bytes } = await this.upload(folder, files);
      await lease.held();
      await onStep?.('head');
      const next = this.headOf(checkpointId, stored);
      const tag = (await store.replace(HEAD, encodeHead(next), this.tag)) ?? (await this.replaceOwn(next));
      const before = this.head;
      this.tag = tag;
      this.head = next;
      const seconds = (clock.monotonicMs() - startedMs) / 1000;
      log.info({ checkpoint: checkpointId, files: files.length, bytes, seconds }, 'checkpoint stored');
      await this.removeUnneeded(before, next);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }

  /** Replaces a head that this process wrote without an answer. @throws store_fenced */
  private async replaceOwn(next: Head): Promise<string> {
    const { store, lease } = this.parts;
    const found = await store.get(HEAD);
    const head = found && decodeHead(found);
    const tag =
      found !== undefined && head?.epoch === lease.epoch
        ? await store.replace(HEAD, encodeHead(next), found.tag)
        : undefined;
    if (tag === undefined) throw lease.fence(undefined);
    return tag;
  }

  private headOf(checkpointId: number, files: readonly StoredFile[]): Head {
    return { epoch: this.parts.lease.epoch, checkpointId, ts: this.parts.clock.wallNowMs(), files };
  }

  private async upload(
    folder: string,
    files: readonly StateFile[],
  ): Promise<{ readonly stored: readonly StoredFile[]; readonly bytes: number }> {
    const known = new Map(this.head?.files.map((file) => [file.name, file]));
    const stored: StoredFile[] = [];
    let bytes = 0;
    for (const { path, bytes: size } of files) {
      const before = known.get(path);
      if (before !== undefined && isImmutable(path) && before.bytes === size) {
        stored.push(before);
        continue;
      }
      stored.push(await this.uploadFile(folder, path, size));
      bytes += size;
    }
    return { stored, bytes };
  }

  private async uploadFile(folder: string, path: string, size: number): Promise<StoredFile> {
    const { store, lease, onStep } = this.parts;
    const file = await open(join(folder, path), 'r');
    const parts: string[] = [];
    let crc = 0;
    try {
      for (let at = 0; at < size; ) {
        const bytes = new Uint8Array(Math.min(PART_BYTES, size - at));
        const { bytesRead } = await file.read(bytes, 0, bytes.length, at);
        if (bytesRead < bytes.length) throw new Error(`${path} ends before byte ${size}`);
        crc = crc32(bytes, crc);
        const name = `${FILES}${lease.epoch}/${++this.lastPart}`;
        await onStep?.(path);
        await store.put(name, bytes);
        parts.push(name);
        at += bytes.length;
      }
    } finally {
      await file.close();
    }
    return { name: path, bytes: size, crc32: crc, parts };
  }

  /** Removes the parts that only the head before needed. A reader of that head begins again. */
  private async removeUnneeded(before: Head | undefined, now: Head): Promise<void> {
    const needed = new Set(now.files.flatMap(({ parts }) => parts));
    for (const part of before?.files.flatMap(({ parts }) => parts) ?? [])
      if (!needed.has(part)) await this.parts.store.remove(part);
  }
}

/** Codes of failures after which the run has ended. */
const ENDED: ReadonlySet<string> = new Set(['store_fenced', 'restoring', 'closed']);
/** Resolution of the wait between two checkpoints. */
const STEP_MS = 100;
/** Folders of the state folder that are stored: its embedded stores and the fired windows. */
export const STORED_FOLDERS = ['spill', 'keys', 'fired'] as const;

/** Takes over the head of the store under the lease's epoch, so that the owner before cannot
 *  replace it, and removes parts that no head names. Undefined: the store has no head. */
export async function claimHead(
  store: ObjectStore,
  lease: StoreLease,
  where: string,
  corrupt: (text: string) => Error,
): Promise<{ readonly head: Head; readonly tag: string; readonly before: number } | undefined> {
  for (;;) {
    const found = await store.get(HEAD);
    if (found === undefined) return undefined;
    const head = decodeHead(found);
    if (head === undefined) throw corrupt(`${where} has no valid ${HEAD}`);
    const claimed = { ...head, epoch: lease.epoch };
    const tag = await store.replace(HEAD, encodeHead(claimed), found.tag);
    // The owner before was faster with its last checkpoint.
    if (tag === undefined) continue;
    const needed = new Set(head.files.flatMap(({ parts }) => parts));
    for (const name of await store.list(FILES)) if (!needed.has(name)) await store.remove(name);
    return { head: claimed, tag, before: head.epoch };
  }
}
