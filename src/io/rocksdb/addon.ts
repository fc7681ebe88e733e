/** RocksDB driver over the state addon, which works on threads of its own with one call for each
 *  batch. */
import { resolve } from 'node:path';
import { callAddon } from '../../addon/load.ts';
import { loadStateAddon } from '../../addon/state.ts';
import type {
  RowsArguments,
  RunHandle,
  ScanHandle,
  StateAddon,
  StateAnswer,
  StoreHandle,
} from '../../addon/state-functions.ts';
import { coreError, type MillraceError } from '../../core/errors.ts';
import { demandKeys, demandRows, type Keys, type Rows, type SortableRows } from '../../core/rows.ts';
import { clearIncoming, prepareFolder, sealCheckpoint } from './folder.ts';
import {
  demandOptions,
  demandRange,
  type KvDriver,
  type KvErrorCode,
  type KvFile,
  type KvLog,
  type KvOptions,
  type KvPage,
  type KvRange,
  type KvRun,
  type KvRunReport,
  type KvScan,
  type KvScanShape,
  type KvStats,
  type KvStore,
  type KvValues,
  kvError,
} from './port.ts';

const NAME = 'rocksdb';
const USES = { runs: 0, rows: 1 } as const;
const LOGS = { off: 0, on: 1, sync: 2 } as const satisfies Record<KvLog, number>;
const SHAPES = { spans: 0, fixed: 1, records: 2 } as const;

/** Error codes by the numbers of native/state/status.h. */
const CODES: ReadonlyArray<KvErrorCode | 'out_of_range' | 'internal'> = [
  'internal',
  'kv_corrupt',
  'kv_full',
  'kv_locked',
  'kv_version',
  'kv_io',
  'kv_missing',
  'kv_exists',
  'kv_unsorted',
  'kv_row_too_large',
  'out_of_range',
  'internal',
];

function errorOf(what: string, [number, message]: readonly [number, string]): MillraceError {
  const code = CODES[number] ?? 'internal';
  const text = `cannot ${what}: ${message}`;
  return code === 'internal' || code === 'out_of_range' ? coreError(code, text) : kvError(code, text);
}

function rowsArguments(rows: Rows): RowsArguments {
  demandRows(rows);
  switch (rows.shape) {
    case 'spans':
      return [rows.bytes, rows.ends, null, null, rows.count, 0, 0, 0, 1];
    case 'fixed':
      return [rows.bytes, null, null, null, rows.count, rows.keyBytes, rows.valueBytes, 0, 1];
    case 'records':
      return [
        rows.bytes,
        null,
        rows.prefix,
        null,
        rows.count,
        0,
        rows.recordBytes,
        rows.wordAt,
        rows.perValue ?? 1,
      ];
    case 'keyed':
      return [
        rows.bytes,
        rows.ends,
        rows.prefix,
        rows.keys,
        rows.count,
        0,
        rows.recordBytes,
        rows.zeroBytes,
        1,
      ];
  }
}

/** Calls of one store in flight. `end` refuses new calls and waits for these. */
class Calls {
  private readonly where: string;
  private readonly inFlight = new Set<Promise<unknown>>();
  private closed = false;

  constructor(where: string) {
    this.where = where;
  }

  demandOpen(): void {
    if (this.closed) throw coreError('closed', `the store in ${this.where} is closed`);
  }

  async run<T>(what: string, start: () => Promise<StateAnswer<T>>): Promise<T> {
    this.demandOpen();
    const call = callAddon(start);
    this.inFlight.add(call);
    try {
      const [error, payload] = await call;
      if (error !== null) throw errorOf(`${what} in ${this.where}`, error);
      return payload;
    } finally {
      this.inFlight.delete(call);
    }
  }

  async end(): Promise<void> {
    this.closed = true;
    await Promise.allSettled(this.inFlight);
  }
}

class RocksScan implements KvScan {
  private readonly addon: StateAddon;
  private readonly calls: Calls;
  private readonly handle: ScanHandle;
  private readonly spans: boolean;
  private readonly onClose: (scan: RocksScan) => void;
  private closed = false;

  constructor(
    addon: StateAddon,
    calls: Calls,
    handle: ScanHandle,
    spans: boolean,
    onClose: (scan: RocksScan) => void,
  ) {
    this.addon = addon;
    this.calls = calls;
    this.handle = handle;
    this.spans = spans;
    this.onClose = onClose;
  }

  async next(page: KvPage): Promise<number> {
    if (this.closed) throw coreError('closed', 'the scan is closed');
    const ends = this.spans ? page.ends : undefined;
    if (this.spans && ends === undefined) throw coreError('out_of_range', 'ends: a page of spans needs them');
    return this.calls.run('scan', () => this.addon.stateScanNext(this.handle, page.bytes, ends ?? null));
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.addon.stateScanClose(this.handle);
    this.onClose(this);
  }
}

class RocksRun implements KvRun {
  private readonly addon: StateAddon;
  private readonly calls: Calls;
  private readonly handle: RunHandle;
  private readonly onClose: (run: RocksRun) => void;
  private closed = false;

  constructor(addon: StateAddon, calls: Calls, handle: RunHandle, onClose: (run: RocksRun) => void) {
    this.addon = addon;
    this.calls = calls;
    this.handle = handle;
    this.onClose = onClose;
  }

  append(rows: Rows): Promise<void> {
    return this.write(rows, true);
  }

  appendUnsorted(rows: SortableRows): Promise<void> {
    return this.write(rows, false);
  }

  private async write(rows: Rows, isSorted: boolean): Promise<void> {
    if (this.closed) throw coreError('closed', 'the run is closed');
    const given = rowsArguments(rows);
    await this.calls.run('write a run', () => this.addon.stateRunAppend(this.handle, isSorted, ...given));
  }

  async finish(): Promise<KvRunReport> {
    if (this.closed) throw coreError('closed', 'the run is closed');
    try {
      const [rows, bytes, files] = await this.calls.run('ingest a run', () =>
        this.addon.stateRunFinish(this.handle),
      );
      return { rows, bytes, files };
    } finally {
      this.close();
    }
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.addon.stateRunClose(this.handle);
    this.onClose(this);
  }
}

class RocksStore implements KvStore {
  readonly folder: string;
  private readonly addon: StateAddon;
  private readonly handle: StoreHandle;
  private readonly families: readonly string[];
  private readonly calls: Calls;
  private readonly open = new Set<RocksScan | RocksRun>();
  private readonly onClose = (resource: RocksScan | RocksRun): void => void this.open.delete(resource);
  private closing: Promise<void> | undefined;

  constructor(addon: StateAddon, handle: StoreHandle, folder: string, families: readonly string[]) {
    this.addon = addon;
    this.handle = handle;
    this.folder = folder;
    this.families = families;
    this.calls = new Calls(folder);
  }

  start(): Promise<null> {
    return this.calls.run('open the store', () => this.addon.stateStart(this.handle));
  }

  private family(name: string): number {
    this.calls.demandOpen();
    const index = this.families.indexOf(name);
    if (index < 0) throw coreError('out_of_range', `the store in ${this.folder} has no family ${name}`);
    return index;
  }

  async put(family: string, rows: Rows, log: KvLog): Promise<void> {
    const index = this.family(family);
    const given = rowsArguments(rows);
    await this.calls.run('put', () => this.addon.statePut(this.handle, index, LOGS[log], ...given));
  }

  async get(family: string, keys: Keys): Promise<KvValues> {
    const index = this.family(family);
    demandKeys(keys);
    const [bytes, start, length] = await this.calls.run('get', () =>
      this.addon.stateGet(this.handle, index, keys.bytes, keys.ends ?? null, keys.count, keys.keyBytes ?? 0),
    );
    return { bytes, start, length };
  }

  openRun(family: string): KvRun {
    const index = this.family(family);
    const handle = callAddon(() => this.addon.stateRunOpen(this.handle, index));
    const run = new RocksRun(this.addon, this.calls, handle, this.onClose);
    this.open.add(run);
    return run;
  }

  async scan(
    family: string,
    range: KvRange,
    shape: KvScanShape,
    options: { readonly keepBlocks?: boolean } = {},
  ): Promise<KvScan> {
    const index = this.family(family);
    demandRange(range);
    const keyBytes = shape.shape === 'fixed' ? shape.keyBytes : 0;
    const valueBytes =
      shape.shape === 'fixed' ? shape.valueBytes : shape.shape === 'records' ? shape.recordBytes : 0;
    const handle = callAddon(() =>
      this.addon.stateScanOpen(
        this.handle,
        index,
        range.from,
        range.to,
        SHAPES[shape.shape],
        keyBytes,
        valueBytes,
        options.keepBlocks ?? false,
      ),
    );
    const scan = new RocksScan(this.addon, this.calls, handle, shape.shape === 'spans', this.onClose);
    this.open.add(scan);
    try {
      await this.calls.run('scan', () => this.addon.stateScanStart(handle));
      return scan;
    } catch (thrown) {
      scan.close();
      throw thrown;
    }
  }

  async deleteRange(family: string, range: KvRange, log: KvLog): Promise<void> {
    const index = this.family(family);
    demandRange(range);
    await this.calls.run('delete', () =>
      this.addon.stateDeleteRange(this.handle, index, range.from, range.to, LOGS[log]),
    );
  }

  async flush(): Promise<void> {
    await this.calls.run('flush', () => this.addon.stateFlush(this.handle));
  }

  async checkpoint(folder: string): Promise<readonly KvFile[]> {
    const to = resolve(folder);
    await this.calls.run(`make a checkpoint ${to}`, () => this.addon.stateCheckpoint(this.handle, to));
    return sealCheckpoint(to, NAME);
  }

  async stats(): Promise<KvStats> {
    const numbers = await this.calls.run('measure', () => this.addon.stateStats(this.handle));
    const [cache = 0, pinned = 0, memtables = 0, readers = 0, disk = 0, pending = 0, files = 0] = numbers;
    return {
      cacheBytes: cache,
      pinnedBytes: pinned,
      memtableBytes: memtables,
      tableReaderBytes: readers,
      diskBytes: disk,
      pendingCompactionBytes: pending,
      fileCount: files,
    };
  }

  close(): Promise<void> {
    this.closing ??= this.shutDown();
    return this.closing;
  }

  private async shutDown(): Promise<void> {
    await this.calls.end();
    for (const resource of this.open) resource.close();
    try {
      const [error] = await callAddon(() => this.addon.stateLeave(this.handle));
      if (error !== null) throw errorOf(`close the store in ${this.folder}`, error);
    } finally {
      this.addon.stateClose(this.handle);
    }
  }

  /** Frees the store after a failed start. */
  drop(): void {
    this.addon.stateClose(this.handle);
  }
}

export const rocksdbDriver: KvDriver = {
  name: NAME,
  async open(folder: string, options: KvOptions): Promise<KvStore> {
    demandOptions(options);
    const addon = loadStateAddon();
    const at = resolve(folder);
    const state = await prepareFolder(at, NAME, options.missing);
    const names = Object.keys(options.families);
    const uses = Uint8Array.from(Object.values(options.families), (use) => USES[use]);
    const handle = callAddon(() => addon.stateOpen(at, options.budgetBytes, names, uses, state === 'fresh'));
    const store = new RocksStore(addon, handle, at, names);
    try {
      await store.start();
      await clearIncoming(at);
      return store;
    } catch (thrown) {
      store.drop();
      throw thrown;
    }
  },
};
