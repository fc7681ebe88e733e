/** Checkpoint store: the lease has one holder, whatever its processes do, and a process that ends
 *  at any step of an upload leaves the checkpoint before or the new one, whole. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { sizeIn } from '../../../src/bin/engine/savepoint/folder.ts';
import { decodeHead, decodeLease, HEAD, type Head, LEASE } from '../../../src/bin/engine/store/head.ts';
import { LEASE_MS, RENEW_MS, type StoreLease } from '../../../src/bin/engine/store/lease.ts';
import {
  CheckpointPublisher,
  type CheckpointPublisherParts,
  claimHead,
} from '../../../src/bin/engine/store/publish.ts';
import { createProgress } from '../../../src/core/layout/window-clock.ts';
import { silentLogger } from '../../../src/core/log.ts';
import { Changelog } from '../../../src/engine/durability/changelog/log.ts';
import {
  encodeStateManifest,
  type StateManifest,
  stateManifestName,
} from '../../../src/engine/durability/checkpoint/state-manifest.ts';
import { checkedFiles, prefixOf, WINDOWS_FILE } from '../../../src/engine/durability/savepoint/files.ts';
import { openDisk } from '../../../src/io/disk/node.ts';
import { folderStore } from '../../../src/io/objects/folder.ts';
import type { ObjectStore, StoredObject } from '../../../src/io/objects/port.ts';
import { locks } from '../../locks.ts';
import { pause, until } from '../../wait.ts';
import { Machine, MemoryStore, outcome, take } from './lease-kit.ts';

const leaseIn = (store: MemoryStore) => decodeLease(store.objects.get(LEASE) as StoredObject);

describe('lease of a job', () => {
  it('the first process has the first epoch, and a released lease is taken immediately', async () => {
    const store = new MemoryStore();
    const [a, b] = [new Machine(), new Machine()];
    const first = (await take(store, a)) as StoreLease;
    expect(first.epoch).toBe(1);
    const released = first.release();
    await a.move(RENEW_MS);
    await released;
    expect(((await take(store, b)) as StoreLease).epoch).toBe(2);
  });

  it('a process takes the lease of a dead one only after it saw no renewal for its time', async () => {
    const store = new MemoryStore();
    const [a, b] = [new Machine(), new Machine()];
    await take(store, a);
    const waiting = take(store, b);
    // The holder renews while its clock moves; then it is dead.
    for (let i = 0; i < 10; i++) {
      await a.move(RENEW_MS);
      await b.move(RENEW_MS);
    }
    expect(await outcome(waiting)).toBe('pending');
    await b.move(LEASE_MS - RENEW_MS);
    expect(await outcome(waiting)).toBe('pending');
    await b.move(2 * RENEW_MS);
    expect(await outcome(waiting)).toMatchObject({ epoch: 2 });
    expect(leaseIn(store)).toMatchObject({ epoch: 2, released: false });
  });

  it('a process that does not wait is refused while another renews', async () => {
    const store = new MemoryStore();
    const [a, b] = [new Machine(), new Machine()];
    await take(store, a);
    const refused = take(store, b, false);
    refused.catch(() => {});
    await b.move(RENEW_MS / 2);
    await a.move(RENEW_MS);
    await b.move(RENEW_MS);
    expect(await outcome(refused)).toMatchObject({ code: 'state_locked' });
  });

  it('a standby waits for a process that was stopped inside of a replacement, and others are refused', async () => {
    const store = new MemoryStore();
    store.isLocked = true;
    const [a, b] = [new Machine(), new Machine()];
    const refused = take(store, a, false);
    refused.catch(() => {});
    const standby = take(store, b);
    for (const machine of [a, b]) await machine.move(LEASE_MS + RENEW_MS);
    expect(await outcome(refused)).toMatchObject({ code: 'state_locked' });
    expect(await outcome(standby)).toBe('pending');
    store.isLocked = false;
    await b.move(RENEW_MS);
    expect(await outcome(standby)).toMatchObject({ epoch: 1 });
  });

  it('a holder that was paused writes nothing before a renewal, and none after it was replaced', async () => {
    const store = new MemoryStore();
    const [a, b] = [new Machine(), new Machine()];
    const first = (await take(store, a)) as StoreLease;
    expect(await outcome(first.held())).toBeUndefined();
    const second = take(store, b);
    await b.move(LEASE_MS + RENEW_MS);
    expect(await outcome(second)).toMatchObject({ epoch: 2 });
    // The pause is over: the clock of the first has moved, and its renewal comes next.
    store.isAway = true;
    await a.move(LEASE_MS);
    expect(await outcome(first.held())).toBe('pending');
    store.isAway = false;
    await a.move(2 * RENEW_MS);
    await expect(first.held()).rejects.toMatchObject({ code: 'store_fenced' });
    await expect(first.lost).rejects.toMatchObject({ code: 'store_fenced' });
    expect(leaseIn(store)).toMatchObject({ epoch: 2 });
  });

  it('an outage of the store holds results back until it is over, and ends no holder', async () => {
    const store = new MemoryStore();
    const a = new Machine();
    const first = (await take(store, a)) as StoreLease;
    store.isAway = true;
    await a.move(10 * LEASE_MS);
    const held = first.held();
    expect(await outcome(held)).toBe('pending');
    store.isAway = false;
    await a.move(2 * RENEW_MS);
    expect(await outcome(held)).toBeUndefined();
    expect(leaseIn(store)).toMatchObject({ epoch: 1 });
  });

  it('a lease that several processes wait for is taken by a single one', async () => {
    const store = new MemoryStore();
    await take(store, new Machine());
    const machines = Array.from({ length: 5 }, () => new Machine());
    const waiting = machines.map((machine) => take(store, machine));
    await Promise.all(machines.map((machine) => machine.move(LEASE_MS + RENEW_MS)));
    const results = await Promise.all(waiting.map((one) => outcome(one)));
    expect(results.filter((one) => one !== 'pending')).toHaveLength(1);
  });
});

describe('stored checkpoints', () => {
  let root: string;
  let state: string;
  let store: ObjectStore;
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'checkpoint-store-'));
    state = join(root, 'state');
    mkdirSync(state);
    store = folderStore(join(root, 'store'), async (path) => {
      for (;;) {
        const got = await locks.tryLock(path);
        if ('lock' in got) return got.lock;
        await pause(1);
      }
    });
  });
  afterEach(() => rmSync(root, { recursive: true, force: true }));

  const manifestOf = (id: number, durable: number): StateManifest => ({
    ...{ id, ts: id, clusterId: 'c', topicId: undefined, shards: 1, base: undefined, spill: undefined },
    job: { topic: 't', window: 'tumbling', sizeMs: 10, skewMs: 1, latenessMs: 2, watermark: 'partition' },
    ...{
      formFrom: 0,
      replayFrom: 1,
      durable,
      frontier: 5,
      maxSeen: 6,
      fired: 4,
      progress: createProgress(1),
    },
  });

  /** Engine of a state folder, whose changelog grows with each checkpoint. */
  async function engineOf(folder = state) {
    const disk = await openDisk(folder);
    const log = new Changelog({ disk, segmentBytes: 1 << 20, nextSeq: 1 });
    let id = 0;
    const engine = {
      pinned: async <T>(use: (manifest: StateManifest, lastSeq: number) => Promise<T>): Promise<T> => {
        log.append(1, [new Uint8Array(1000)]);
        const lastSeq = await log.seal();
        const manifest = manifestOf(++id, lastSeq);
        await disk.write(stateManifestName(id), [encodeStateManifest(manifest)]);
        return use(manifest, lastSeq);
      },
    };
    const states = [{ window: undefined, disk, engine, stores: new Map() }];
    return { disk, engine, states, close: () => log.close() };
  }

  /** Lease in the folder. Its clock stands while the folder is read or written, however long that
   *  takes: a lease that is old from the start is never held. */
  const realLease = async (): Promise<StoreLease> => {
    const machine = new Machine();
    const taken: (StoreLease | undefined)[] = [];
    const taking = take(store, machine).then((lease) => taken.push(lease));
    taking.catch(() => {});
    await until('a lease of the folder', async () => {
      if (taken.length === 0 && machine.isAsleep) await machine.move(RENEW_MS);
      return taken.length > 0;
    });
    await taking;
    return taken[0] as StoreLease;
  };
  const publisherOf = async (
    lease: StoreLease,
    { disk, states }: Pick<CheckpointPublisherParts, 'disk' | 'states'>,
    onStep: (step: string) => void = () => {},
  ) => {
    const found = await claimHead(store, lease, store.where, (text) => new Error(text));
    const { clock, sleep } = new Machine();
    const parts = {
      clock: { ...clock, wallNowMs: () => 1 } as never,
      sleep,
      log: silentLogger,
      intervalMs: 100,
    };
    return new CheckpointPublisher(
      {
        ...{ disk, store, lease, onStep, ...parts },
        states,
      },
      found,
    );
  };

  /** Checks that the head names a whole checkpoint, and returns its id. */
  async function wholeCheckpoint(): Promise<number> {
    const head = decodeHead((await store.get(HEAD)) as StoredObject) as Head;
    const copy = join(root, 'copy');
    rmSync(copy, { recursive: true, force: true });
    const disk = await openDisk(copy);
    for (const { name, parts } of head.files) {
      const pieces = await Promise.all(parts.map(async (part) => (await store.get(part))?.bytes));
      expect(pieces.every((piece) => piece !== undefined)).toBe(true);
      writeFileSync(join(copy, name), Buffer.concat(pieces as Uint8Array[]));
    }
    const checked = await checkedFiles(disk, manifestOf(head.checkpointId, head.checkpointId), sizeIn(copy));
    expect(checked).toHaveProperty('files');
    return head.checkpointId;
  }

  it('a checkpoint is stored with the files that the store does not have yet', async () => {
    const own = await engineOf();
    const uploaded: string[] = [];
    const publisher = await publisherOf(await realLease(), own, (step) => uploaded.push(step));
    await publisher.publish();
    await publisher.publish();
    expect(await wholeCheckpoint()).toBe(2);
    expect(uploaded).toEqual([
      ...[stateManifestName(1), 'changelog-0000000000000001.log', 'head'],
      ...[stateManifestName(2), 'changelog-0000000000000002.log', 'head'],
    ]);
    const head = decodeHead((await store.get(HEAD)) as StoredObject) as Head;
    const named = head.files.flatMap(({ parts }) => parts).sort();
    expect([...(await store.list('files/'))].sort()).toEqual(named);
    await own.close();
  });

  it('a checkpoint of several windows has a checkpoint of each and the list of them', async () => {
    const names = ['a', 'b'];
    const owned = [];
    for (const name of names) owned.push({ name, ...(await engineOf(join(state, prefixOf(name)))) });
    const disk = await openDisk(state);
    await disk.write(WINDOWS_FILE, [new TextEncoder().encode('{}')]);
    const lease = await realLease();
    const states = owned.map(({ name, engine, ...own }) => ({
      ...{ window: name, disk: own.disk, engine, stores: new Map() },
    }));
    const publisher = await publisherOf(lease, { disk, states });
    await publisher.publish();
    await disk.write(WINDOWS_FILE, [new TextEncoder().encode('[]')]);
    await publisher.publish();
    const head = decodeHead((await store.get(HEAD)) as StoredObject) as Head;
    expect(head.files.map(({ name }) => name)).toEqual([
      WINDOWS_FILE,
      ...names.flatMap((name) => [
        `${prefixOf(name)}${stateManifestName(2)}`,
        `${prefixOf(name)}changelog-0000000000000001.log`,
        `${prefixOf(name)}changelog-0000000000000002.log`,
      ]),
    ]);
    // The list has one name and may change, so it is stored again.
    const [list] = head.files as readonly [Head['files'][number]];
    expect(Buffer.from((await store.get(list.parts[0] as string))?.bytes ?? []).toString()).toBe('[]');
    for (const { close } of owned) await close();
  });

  it('a process that ends at any step of an upload leaves a whole checkpoint for the next owner', async () => {
    for (let dying = 0; dying < 6; dying++) {
      rmSync(state, { recursive: true });
      rmSync(join(root, 'store'), { recursive: true, force: true });
      const own = await engineOf();
      let steps = 0;
      const publisher = await publisherOf(await realLease(), own, () => {
        if (steps++ === dying) throw new Error('killed');
      });
      let last = 0;
      for (let id = 1; id <= 2; id++) {
        try {
          await publisher.publish();
          last = id;
        } catch (thrown) {
          expect((thrown as Error).message).toBe('killed');
          break;
        }
      }
      if (last === 0) expect(await store.get(HEAD)).toBeUndefined();
      else expect(await wholeCheckpoint()).toBe(last);
      const next = await publisherOf(await realLease(), own);
      if (last > 0) expect(await wholeCheckpoint()).toBe(last);
      await next.publish();
      expect(await wholeCheckpoint()).toBeGreaterThan(last);
      await own.close();
    }
  });

  it('an owner that was replaced stores nothing more', async () => {
    const own = await engineOf();
    const before = await realLease();
    const publisher = await publisherOf(before, own);
    await publisher.publish();
    const next = await publisherOf(await realLease(), own);
    const head = readFileSync(join(root, 'store', HEAD));
    await expect(publisher.publish()).rejects.toMatchObject({ code: 'store_fenced' });
    expect(readFileSync(join(root, 'store', HEAD))).toEqual(head);
    await next.publish();
    expect(await wholeCheckpoint()).toBeGreaterThan(1);
    await own.close();
  });

  it('bytes that are no lease or head are none', () => {
    for (const text of ['', '{}', '{"format":"millrace-engine-store","version":1}\ncrc32 00000000\n']) {
      const object = { bytes: new TextEncoder().encode(text), tag: '' };
      expect(decodeHead(object)).toBeUndefined();
      expect(decodeLease(object)).toBeUndefined();
    }
  });
});
