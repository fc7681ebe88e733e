/** Savepoints: a folder has its name only when it is complete, every damaged byte is reported with
 *  its file, and a state folder changes only when the whole savepoint is sound. */
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { foldersOf, sizeIn, storeFiles, writeSavepoint } from '../../../src/bin/engine/savepoint/folder.ts';
import { loadSavepoint, type StagedState } from '../../../src/bin/engine/savepoint/load.ts';
import { createProgress } from '../../../src/core/layout/window-clock.ts';
import { silentLogger } from '../../../src/core/log.ts';
import { Changelog } from '../../../src/engine/durability/changelog/log.ts';
import {
  encodeStateManifest,
  type StateManifest,
  stateManifestName,
} from '../../../src/engine/durability/checkpoint/state-manifest.ts';
import {
  newestCheckpoint,
  placeOfPath,
  prefixOf,
  WINDOWS_FILE,
} from '../../../src/engine/durability/savepoint/files.ts';
import {
  decodeSavepoint,
  encodeSavepoint,
  SAVEPOINT_MANIFEST,
  type Savepoint,
} from '../../../src/engine/durability/savepoint/manifest.ts';
import { engineError } from '../../../src/engine/errors.ts';
import { existingDisk, openDisk } from '../../../src/io/disk/node.ts';
import { locks } from '../../locks.ts';

let root: string;
let state: string;
let out: string;
beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), 'savepoint-'));
  state = join(root, 'state');
  out = join(root, 'saved');
  await makeState();
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const RECORDS = 5;

function manifestOf(id: number, over: Partial<StateManifest> = {}): StateManifest {
  const clock = { frontier: 5, maxSeen: 6, fired: 4, progress: createProgress(1) };
  return {
    ...{ id, ts: 1, clusterId: 'c', topicId: undefined, shards: 1, base: undefined, spill: undefined },
    job: { topic: 't', window: 'tumbling', sizeMs: 10, skewMs: 1, latenessMs: 2, watermark: 'partition' },
    ...{ formFrom: 0, replayFrom: 1, durable: RECORDS, ...clock },
    ...over,
  };
}

/** A state folder with two checkpoints, a changelog of two segments, and a store. */
async function makeState(folder = state): Promise<void> {
  const disk = await openDisk(folder);
  const log = new Changelog({ disk, segmentBytes: 1 << 20, nextSeq: 1 });
  const append = (count: number): void => {
    for (let i = 0; i < count; i++) log.append(1, [Uint8Array.of(i, i, i)]);
  };
  append(3);
  expect(await log.seal()).toBe(3);
  append(2);
  await log.close();
  for (const id of [1, 2]) await disk.write(stateManifestName(id), [encodeStateManifest(manifestOf(id))]);
  const store = join(folder, 'spill');
  mkdirSync(store);
  for (const name of ['CURRENT', '000007.sst', 'LOCK', 'LOG.old.1'])
    writeFileSync(join(store, name), `of ${name}`);
}

async function sourceOf(folder = state) {
  const disk = await existingDisk(folder);
  const faults: string[] = [];
  const found = await newestCheckpoint(disk, sizeIn(folder), (fault) => faults.push(fault));
  if (found === undefined) throw new Error(faults.join());
  const files = [...found.files, ...(await storeFiles(folder))];
  const placeOf = await foldersOf(
    folder,
    files.map(({ path }) => path),
  );
  return {
    faults,
    files,
    read: (path: string, from: number, max: number) => {
      const { disk: place, name } = placeOf(path);
      return place.readPiece(name, from, max);
    },
  };
}

const save = async (onStep: (step: string) => void = () => {}) =>
  writeSavepoint(out, await sourceOf(), { locks, nowMs: 9, onStep });

const target = (): string => join(root, 'target');
async function load(onStep: (step: string) => void = () => {}, validate = async () => {}, to = target()) {
  const disk = await openDisk(to);
  return loadSavepoint({ disk, folder: out, log: silentLogger, windows: [], validate, onStep });
}

const contentOf = (folder: string): Record<string, string> =>
  Object.fromEntries(
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => {
        const path = join(entry.parentPath, entry.name);
        return [path.slice(folder.length + 1), readFileSync(path, 'latin1')];
      }),
  );

/** Content without what a savepoint adds, and without the files of a process. */
const stateIn = (folder: string): Record<string, string> =>
  Object.fromEntries(
    Object.entries(contentOf(folder)).filter(
      ([name]) => !/savepoint|LOCK|LOG|^lock$|00000001\.manifest/.test(name),
    ),
  );

describe('folder of a savepoint', () => {
  it('a savepoint has the newest checkpoint with its changelog and stores, and nothing of a process', async () => {
    const saved = await save();
    expect(saved).toMatchObject({ states: [{ checkpointId: 2 }], clusterId: 'c', ts: 9 });
    expect(stateIn(out)).toEqual(stateIn(state));
    expect(Object.keys(contentOf(out)).filter((name) => /LOCK|LOG|^lock$/.test(name))).toEqual([]);
    expect(existsSync(`${out}.unfinished`)).toBe(false);
  });

  it('a folder that is not empty is never written to', async () => {
    mkdirSync(out);
    writeFileSync(join(out, 'mine'), 'x');
    await expect(save()).rejects.toMatchObject({ code: 'savepoint_exists' });
    expect(contentOf(out)).toEqual({ mine: 'x' });
  });

  it('a process that ends at any step leaves no savepoint, and the next one succeeds', async () => {
    const steps: string[] = [];
    await save((step) => void steps.push(step));
    expect(steps.length).toBeGreaterThan(5);
    for (const dying of steps) {
      rmSync(out, { recursive: true });
      // The folder as a process that ends here leaves it: without its clean-up.
      const left = join(root, 'left');
      const keep = (step: string): void => {
        if (step === dying) cpSync(`${out}.unfinished`, left, { recursive: true });
      };
      await save(keep);
      rmSync(out, { recursive: true });
      cpSync(left, `${out}.unfinished`, { recursive: true });
      rmSync(left, { recursive: true });
      await expect(load()).rejects.toMatchObject({ code: 'savepoint_missing' });
      await save();
      expect(stateIn(out), dying).toEqual(stateIn(state));
    }
  });

  it('a newest checkpoint with damage is reported, and an older one is saved', async () => {
    appendFileSync(join(state, stateManifestName(2)), 'x');
    const source = await sourceOf();
    expect(source.faults).toEqual([`${stateManifestName(2)} is cut short or not a manifest`]);
    expect(await writeSavepoint(out, source, { locks, nowMs: 1 })).toMatchObject({
      states: [{ checkpointId: 1 }],
    });
  });

  it('a changelog that ends before a durable record is not saved', async () => {
    truncateSync(join(state, 'changelog-0000000000000004.log'), 8);
    await expect(sourceOf()).rejects.toThrow('which had been durable');
  });

  it('a torn record at the end of the changelog is left out', async () => {
    const last = join(state, 'changelog-0000000000000004.log');
    const whole = readFileSync(last);
    appendFileSync(last, 'torn');
    await save();
    expect(readFileSync(join(out, 'changelog-0000000000000004.log'))).toEqual(whole);
  });
});

describe('run that begins with a savepoint', () => {
  it('a state folder gets the checkpoint, and the next start resumes without the savepoint', async () => {
    await save();
    expect(await load()).toBe(true);
    expect(stateIn(target())).toEqual(stateIn(state));
    expect(await load()).toBe(false);
    rmSync(out, { recursive: true });
    expect(await load()).toBe(false);
  });

  it.each([
    ['cut', (path: string) => truncateSync(path, readFileSync(path).length - 1), 'bytes, not'],
    ['longer', (path: string) => appendFileSync(path, 'x'), 'has more than'],
    ['missing', (path: string) => rmSync(path), 'is missing'],
    [
      'flipped',
      (path: string) => {
        const bytes = readFileSync(path);
        bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] as number) ^ 1;
        writeFileSync(path, bytes);
      },
      'has changed since it was written',
    ],
  ])('any file that is %s is named, and the state folder stays as it was', async (_how, damage, text) => {
    await save();
    const whole = join(root, 'whole');
    cpSync(out, whole, { recursive: true });
    for (const name of Object.keys(contentOf(whole))) {
      if (name === SAVEPOINT_MANIFEST) continue;
      rmSync(out, { recursive: true });
      cpSync(whole, out, { recursive: true });
      damage(join(out, name));
      const failure = await load().catch((thrown: Error) => thrown);
      expect(failure, name).toMatchObject({ code: 'savepoint_damaged' });
      expect((failure as Error).message).toContain(`${name} ${text === 'bytes, not' ? 'has' : text}`);
      expect(contentOf(target()), name).toEqual({});
    }
  });

  it('a savepoint of another job leaves the state folder as it was', async () => {
    await save();
    const refuse = async (): Promise<void> => {
      throw engineError('job_changed', 'another job');
    };
    await expect(load(undefined, refuse)).rejects.toMatchObject({ code: 'job_changed' });
    expect(contentOf(target())).toEqual({});
  });

  it('a state of another origin is neither replaced nor resumed', async () => {
    await save();
    await expect(load(undefined, undefined, state)).rejects.toMatchObject({ code: 'bad_setting' });
    rmSync(join(state, stateManifestName(1)));
    rmSync(join(state, stateManifestName(2)));
    const before = contentOf(state);
    await expect(load(undefined, undefined, state)).rejects.toMatchObject({ code: 'bad_setting' });
    expect(contentOf(state)).toEqual(before);
  });

  it('a process that ends at any step leaves a folder with which the same start succeeds', async () => {
    await save();
    const steps: string[] = [];
    await load((step) => void steps.push(step));
    expect(steps.some((step) => step.startsWith('move checkpoint'))).toBe(true);
    for (const dying of steps) {
      rmSync(target(), { recursive: true });
      const left = join(root, 'left');
      await load((step) => {
        if (step === dying) cpSync(target(), left, { recursive: true });
      });
      rmSync(target(), { recursive: true });
      cpSync(left, target(), { recursive: true });
      rmSync(left, { recursive: true });
      expect(await load(), dying).toBe(true);
      expect(stateIn(target()), dying).toEqual(stateIn(state));
    }
  });
});

describe('savepoint of several windows', () => {
  const SET = '{"names":["a","b"]}';
  const windowsOf = (): string => join(root, 'windows-state');

  /** Saves the states of the windows a and b. */
  async function saveWindows(onStep: (step: string) => void = () => {}) {
    const folder = windowsOf();
    const names = ['a', 'b'];
    const sources = new Map<string, Awaited<ReturnType<typeof sourceOf>>>();
    for (const name of names) {
      const own = join(folder, prefixOf(name));
      await makeState(own);
      sources.set(name, await sourceOf(own));
    }
    writeFileSync(join(folder, WINDOWS_FILE), SET);
    const files = [...sources].flatMap(([name, source]) =>
      source.files.map(({ path, bytes }) => ({ path: `${prefixOf(name)}${path}`, bytes })),
    );
    const list = await existingDisk(folder);
    const read = (path: string, from: number, max: number) => {
      const place = placeOfPath(path);
      if (place.window === undefined) return list.readPiece(path, from, max);
      return (sources.get(place.window) as Awaited<ReturnType<typeof sourceOf>>).read(place.path, from, max);
    };
    const all = [{ path: WINDOWS_FILE, bytes: SET.length }, ...files];
    const saved = await writeSavepoint(out, { files: all, read }, { locks, nowMs: 9, onStep });
    rmSync(folder, { recursive: true });
    return saved;
  }

  async function loadWindows(
    onStep: (step: string) => void = () => {},
    windows: readonly string[] = ['a', 'b'],
  ) {
    const disk = await openDisk(target());
    const validate = async (states: readonly StagedState[]): Promise<void> => {
      expect(states.map(({ window }) => window)).toEqual(['a', 'b']);
    };
    return loadSavepoint({ disk, folder: out, log: silentLogger, windows, validate, onStep });
  }

  it('a savepoint has the states of all windows, and a state folder gets them together', async () => {
    const saved = await saveWindows();
    expect(saved.states.map(({ window, checkpointId }) => [window, checkpointId])).toEqual([
      ['a', 2],
      ['b', 2],
    ]);
    expect(await loadWindows()).toBe(true);
    for (const name of ['a', 'b']) expect(stateIn(join(target(), 'windows', name))).toEqual(stateIn(state));
    expect(readFileSync(join(target(), WINDOWS_FILE), 'utf8')).toBe(SET);
    expect(await loadWindows()).toBe(false);
  });

  it('a process that ends at any step has the states of all windows or of none', async () => {
    const steps: string[] = [];
    await saveWindows();
    await loadWindows((step) => void steps.push(step));
    expect(steps.slice(-2)).toEqual([`move ${WINDOWS_FILE}`, 'move windows']);
    for (const dying of steps) {
      rmSync(target(), { recursive: true });
      const left = join(root, 'left');
      await loadWindows((step) => {
        if (step === dying) cpSync(target(), left, { recursive: true });
      });
      rmSync(target(), { recursive: true });
      cpSync(left, target(), { recursive: true });
      rmSync(left, { recursive: true });
      expect(existsSync(join(target(), 'windows')), dying).toBe(false);
      expect(await loadWindows(), dying).toBe(true);
      for (const name of ['a', 'b'])
        expect(stateIn(join(target(), 'windows', name)), dying).toEqual(stateIn(state));
    }
  });

  it('windows that the savepoint does not have are refused, and so is one without a name', async () => {
    await saveWindows();
    for (const windows of [['c'], []])
      await expect(loadWindows(undefined, windows)).rejects.toMatchObject({
        code: 'job_changed',
        message: expect.stringContaining('the windows a, b'),
      });
    expect(await loadWindows(undefined, ['b', 'c'])).toBe(true);
    rmSync(out, { recursive: true });
    rmSync(target(), { recursive: true });
    await save();
    await expect(loadWindows()).rejects.toMatchObject({ code: 'job_changed' });
    expect(contentOf(target())).toEqual({});
  });
});

describe('manifest of a savepoint', () => {
  const { job } = manifestOf(1);
  const savepoint: Savepoint = {
    ...{ id: 'a-b', ts: 5, clusterId: 'c', states: [{ window: undefined, job, checkpointId: 3 }] },
    files: [{ name: 'spill/000007.sst', bytes: 4, crc32: 7 }],
  };

  it('a manifest is decoded unchanged', () => {
    expect(decodeSavepoint(encodeSavepoint(savepoint))).toEqual({ savepoint });
    const states: Savepoint['states'] = [
      { window: 'a', job, checkpointId: 3 },
      { window: 'b', job, checkpointId: 4 },
    ];
    const names = ['windows.json', 'windows/a/spill/000007.sst', 'windows/b/checkpoint-1.manifest'];
    const files = names.map((name) => ({ name, bytes: 4, crc32: 7 }));
    const several = { ...savepoint, states, files };
    expect(decodeSavepoint(encodeSavepoint(several))).toEqual({ savepoint: several });
    for (const name of ['windows/c/x', 'x', 'windows/a/../x', 'windows/a/windows/b/x'])
      expect(
        decodeSavepoint(encodeSavepoint({ ...several, files: [{ name, bytes: 1, crc32: 1 }] })),
        name,
      ).toEqual({ fault: 'has no valid file number 1' });
  });

  it.each(['../x', '/etc/x', 'spill/../x', 'fired/1.sst', '.hidden', 'spill/', ''])(
    'a manifest with the path %j is refused',
    (name) => {
      const bytes = encodeSavepoint({ ...savepoint, files: [{ name, bytes: 1, crc32: 1 }] });
      expect(decodeSavepoint(bytes)).toEqual({ fault: 'has no valid file number 1' });
    },
  );

  it('bytes that are no manifest are refused', () => {
    const whole = encodeSavepoint(savepoint);
    fc.assert(
      fc.property(fc.nat(whole.length - 1), fc.integer({ min: 1, max: 255 }), (at, flip) => {
        const bytes = whole.slice();
        bytes[at] = (bytes[at] as number) ^ flip;
        expect(decodeSavepoint(bytes)).toHaveProperty('fault');
      }),
    );
    fc.assert(
      fc.property(fc.uint8Array(), (bytes) => {
        expect(decodeSavepoint(bytes)).toHaveProperty('fault');
      }),
    );
  });
});
