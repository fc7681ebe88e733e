/** Driver over the npm package `rocksdb`, for machines that cannot build the state addon. The
 *  package supports rows only: families are prefixes of keys, a run is one batch in memory, a
 *  checkpoint copies every row. The package logs every change, so `off` is as durable as `on`. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { buildCommand } from '../../addon/load.ts';
import { coreError, type MillraceError } from '../../core/errors.ts';
import {
  compareKeys,
  demandKeys,
  demandRows,
  eachKey,
  eachRow,
  firstUnsorted,
  type Keys,
  type Rows,
  type SortableRows,
  sortedRows,
} from '../../core/rows.ts';
import { prepareFolder, sealCheckpoint } from './folder.ts';
import {
  demandOptions,
  demandRange,
  type KvDriver,
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

const NAME = 'rocksdb-npm';
/** Most bytes of the rows of one run, which are held in memory. */
const RUN_BYTES_MAX = 256 * 1024 * 1024;
/** Newest major of Node.js on which the package runs. */
const NODE_MAX = 20;
const COPY_BYTES = 1024 * 1024;
const READ_AHEAD_BYTES = 256 * 1024;
/** Prefix of the driver's own keys; no family begins with it. */
const OWN = '\0';

type Done<T = void> = (error: Error | null | undefined, value?: T) => void;
type Operation = { readonly type: 'put'; readonly key: Buffer; readonly value: Buffer };

interface Iterator {
  next(done: (error: Error | null | undefined, key?: Buffer, value?: Buffer) => void): void;
  end(done: Done): void;
}

/** The part of the package that is used. */
interface Rocks {
  open(options: object, done: Done): void;
  close(done: Done): void;
  put(key: Buffer, value: Buffer, options: { readonly sync: boolean }, done: Done): void;
  get(key: Buffer, done: Done<Buffer>): void;
  getMany(keys: readonly Buffer[], options: object, done: Done<Array<Buffer | undefined>>): void;
  batch(operations: readonly Operation[], options: { readonly sync: boolean }, done: Done): void;
  clear(options: object, done: Done): void;
  iterator(options: object): Iterator;
  getProperty(name: string): string;
}

/** Reason that the package cannot run on this Node.js, or undefined. Its binary of 2022 was linked
 *  against an older C++ library, whose symbols the executables of Node.js 22 and 24 replace: it
 *  aborts the process while it loads (std::bad_alloc in std::regex). */
export function npmObstacle(version: string = process.versions.node): string | undefined {
  const major = Number(version.split('.')[0]);
  return major > NODE_MAX ? `it aborts the process on Node.js ${version}` : undefined;
}

function loadPackage(): (folder: string) => Rocks {
  const obstacle = npmObstacle();
  if (obstacle !== undefined)
    throw coreError('addon_missing', `the package rocksdb does not load: ${obstacle}`, {
      next: `install librocksdb-dev and run \`${buildCommand()}\` for the driver rocksdb, or use Node.js 20`,
    });
  try {
    return createRequire(import.meta.url)('rocksdb') as (folder: string) => Rocks;
  } catch (cause) {
    const why = (cause as Error).message.split('\n')[0];
    throw coreError('addon_missing', `the package rocksdb does not load: ${why}`, {
      next: 'run `npm install rocksdb@5.2.1`, or use the driver rocksdb',
      cause,
    });
  }
}

function errorOf(what: string, thrown: unknown): MillraceError {
  const { message } = thrown as Error;
  // The package wraps the library's error when a store does not open.
  const reason = `${message} ${((thrown as Error).cause as Error | undefined)?.message ?? ''}`;
  const text = `cannot ${what}: ${reason.trim()}`;
  const options = { cause: thrown };
  if (/No space left|quota exceeded|File too large/.test(reason)) return kvError('kv_full', text, options);
  // Before it locks, the library renames the LOG; concurrent openers then fail on each other's
  // rename.
  if (/lock hold by|While lock file|\/LOG(\.old\.\d+)?: No such file/.test(reason))
    return kvError('kv_locked', text, options);
  if (/Corruption|No such file.*(sst|MANIFEST|CURRENT)/.test(reason))
    return kvError('kv_corrupt', text, options);
  return kvError('kv_io', text, options);
}

/** View of the bytes as a Buffer, which the package requires. */
const buffer = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);

class NpmScan implements KvScan {
  private readonly rows: Iterator;
  private readonly skip: number;
  private readonly shape: KvScanShape;
  private readonly store: NpmStore;
  private held: readonly [Buffer, Buffer] | undefined;
  private ended = false;
  private closed: Promise<void> | undefined;

  constructor(store: NpmStore, rows: Iterator, skip: number, shape: KvScanShape) {
    this.store = store;
    this.rows = rows;
    this.skip = skip;
    this.shape = shape;
  }

  private read(): Promise<readonly [Buffer, Buffer] | undefined> {
    return new Promise((done, fail) => {
      this.rows.next((error, key, value) => {
        if (error) fail(errorOf('scan', error));
        else done(key === undefined ? undefined : [key.subarray(this.skip), value as Buffer]);
      });
    });
  }

  async next(page: KvPage): Promise<number> {
    if (this.closed !== undefined) throw coreError('closed', 'the scan is closed');
    this.store.demandOpen();
    const { shape } = this;
    const spans = shape.shape === 'spans' ? page.ends : undefined;
    if (shape.shape === 'spans' && spans === undefined)
      throw coreError('out_of_range', 'ends: a page of spans needs them');
    let used = 0;
    let count = 0;
    while (!this.ended) {
      this.held ??= await this.read();
      if (this.held === undefined) {
        this.ended = true;
        break;
      }
      const [key, value] = this.held;
      if (shape.shape === 'fixed' && (key.length !== shape.keyBytes || value.length !== shape.valueBytes))
        throw kvError('kv_corrupt', `a row of ${key.length} + ${value.length} bytes among rows of one size`);
      if (shape.shape === 'records' && value.length % shape.recordBytes !== 0)
        throw kvError('kv_corrupt', `a value of ${value.length} bytes is no sequence of records`);
      const keyed = shape.shape !== 'records';
      const bytes = value.length + (keyed ? key.length : 0);
      if (bytes > page.bytes.length - used || (spans !== undefined && spans.length < (count + 1) * 2)) {
        if (count > 0) break;
        throw kvError(
          'kv_row_too_large',
          `a row of ${bytes} bytes does not fit a page of ${page.bytes.length}`,
        );
      }
      if (keyed) page.bytes.set(key, used);
      page.bytes.set(value, used + bytes - value.length);
      used += bytes;
      if (spans !== undefined) {
        spans[count * 2] = used - value.length;
        spans[count * 2 + 1] = used;
      }
      count += shape.shape === 'records' ? value.length / shape.recordBytes : 1;
      this.held = undefined;
    }
    return count;
  }

  close(): void {
    void this.end();
  }

  end(): Promise<void> {
    this.closed ??= new Promise((done) => {
      this.rows.end(() => done());
      this.store.scans.delete(this);
    });
    return this.closed;
  }
}

class NpmRun implements KvRun {
  private readonly store: NpmStore;
  private readonly prefix: Buffer;
  private readonly rows: Operation[] = [];
  private count = 0;
  private bytes = 0;
  private failed: Error | undefined;
  private closed = false;

  constructor(store: NpmStore, prefix: Buffer) {
    this.store = store;
    this.prefix = prefix;
  }

  private demandOpen(): void {
    this.store.demandOpen();
    if (this.closed) throw coreError('closed', 'the run is closed');
    if (this.failed !== undefined) throw this.failed;
  }

  private fail(error: Error): never {
    this.failed = error;
    throw error;
  }

  async append(rows: Rows): Promise<void> {
    this.demandOpen();
    demandRows(rows);
    if (rows.shape === 'records' && firstUnsorted(rows) >= 0)
      this.fail(kvError('kv_unsorted', `row ${firstUnsorted(rows)}: records do not ascend`));
    this.add(eachRow(rows));
    this.count += rows.count;
  }

  async appendUnsorted(rows: SortableRows): Promise<void> {
    this.demandOpen();
    demandRows(rows);
    const sorted = sortedRows(rows);
    this.add(sorted);
    this.count += sorted.length;
  }

  private add(rows: Iterable<readonly [Uint8Array, Uint8Array]>): void {
    for (const [key, value] of rows) {
      const whole = Buffer.concat([this.prefix, key]);
      const last = this.rows.at(-1)?.key;
      if (last !== undefined && compareKeys(last, whole) >= 0)
        this.fail(kvError('kv_unsorted', 'a run needs ascending keys'));
      this.rows.push({ type: 'put', key: whole, value: Buffer.from(value) });
      this.bytes += whole.length + value.length;
      if (this.bytes > RUN_BYTES_MAX)
        this.fail(
          coreError('out_of_range', `a run of more than ${RUN_BYTES_MAX} bytes needs the driver rocksdb`),
        );
    }
  }

  async finish(): Promise<KvRunReport> {
    try {
      this.demandOpen();
      if (this.rows.length > 0) await this.store.write(this.rows, 'sync');
      return { rows: this.count, bytes: this.bytes, files: this.rows.length > 0 ? 1 : 0 };
    } finally {
      this.close();
    }
  }

  close(): void {
    this.closed = true;
  }
}

class NpmStore implements KvStore {
  readonly folder: string;
  readonly scans = new Set<NpmScan>();
  private readonly db: Rocks;
  private readonly open: (folder: string) => Rocks;
  private readonly families: ReadonlySet<string>;
  private readonly inFlight = new Set<Promise<unknown>>();
  private closing: Promise<void> | undefined;

  constructor(db: Rocks, open: (folder: string) => Rocks, folder: string, families: readonly string[]) {
    this.db = db;
    this.open = open;
    this.folder = folder;
    this.families = new Set(families);
  }

  demandOpen(): void {
    if (this.closing !== undefined) throw coreError('closed', `the store in ${this.folder} is closed`);
  }

  private prefix(family: string): Buffer {
    this.demandOpen();
    if (!this.families.has(family))
      throw coreError('out_of_range', `the store in ${this.folder} has no family ${family}`);
    return Buffer.from(`${family}\0`);
  }

  private async call<T>(what: string, start: (done: Done<T>) => void): Promise<T> {
    const call = promisify(start)();
    this.inFlight.add(call);
    try {
      return (await call) as T;
    } catch (thrown) {
      throw errorOf(`${what} in ${this.folder}`, thrown);
    } finally {
      this.inFlight.delete(call);
    }
  }

  write(rows: readonly Operation[], log: KvLog): Promise<void> {
    return this.call('write', (done) => this.db.batch(rows, { sync: log === 'sync' }, done));
  }

  async put(family: string, rows: Rows, log: KvLog): Promise<void> {
    const prefix = this.prefix(family);
    demandRows(rows);
    if (rows.shape === 'records' && firstUnsorted(rows) >= 0)
      throw kvError('kv_unsorted', `row ${firstUnsorted(rows)}: records do not ascend`);
    const operations = Array.from(
      eachRow(rows),
      ([key, value]): Operation => ({ type: 'put', key: Buffer.concat([prefix, key]), value: buffer(value) }),
    );
    if (operations.length > 0) await this.write(operations, log);
  }

  async get(family: string, keys: Keys): Promise<KvValues> {
    const prefix = this.prefix(family);
    demandKeys(keys);
    const whole = Array.from(eachKey(keys), (key) => Buffer.concat([prefix, key]));
    const found =
      whole.length === 0
        ? []
        : await this.call<Array<Buffer | undefined>>('get', (done) =>
            this.db.getMany(whole, { asBuffer: true }, done),
          );
    const start = new Uint32Array(keys.count);
    const length = new Int32Array(keys.count).fill(-1);
    let used = 0;
    found.forEach((value, i) => {
      start[i] = used;
      if (value !== undefined) length[i] = value.length;
      used += value?.length ?? 0;
    });
    const values = found.filter((value) => value !== undefined);
    return { bytes: new Uint8Array(Buffer.concat(values)), start, length };
  }

  openRun(family: string): KvRun {
    return new NpmRun(this, this.prefix(family));
  }

  private range(prefix: Buffer, { from, to }: KvRange): { readonly gte: Buffer; readonly lt: Buffer } {
    const end = Buffer.from(prefix);
    end[end.length - 1] = 1;
    return {
      gte: Buffer.concat([prefix, from ?? new Uint8Array(0)]),
      lt: to === null ? end : Buffer.concat([prefix, to]),
    };
  }

  private iterator(range: object): Iterator {
    return this.db.iterator({
      ...range,
      keyAsBuffer: true,
      valueAsBuffer: true,
      highWaterMark: READ_AHEAD_BYTES,
    });
  }

  async scan(family: string, range: KvRange, shape: KvScanShape): Promise<KvScan> {
    const prefix = this.prefix(family);
    demandRange(range);
    const scan = new NpmScan(this, this.iterator(this.range(prefix, range)), prefix.length, shape);
    this.scans.add(scan);
    return scan;
  }

  async deleteRange(family: string, range: KvRange, log: KvLog): Promise<void> {
    const prefix = this.prefix(family);
    demandRange(range);
    const edges = this.range(prefix, range);
    if (compareKeys(edges.gte, edges.lt) < 0)
      await this.call('delete', (done: Done) => this.db.clear(edges, done));
    if (log === 'sync') await this.flush();
  }

  async flush(): Promise<void> {
    this.demandOpen();
    // A synced write also makes the log before it durable.
    await this.call('flush', (done: Done) =>
      this.db.put(Buffer.from(`${OWN}flushed`), Buffer.from('1'), { sync: true }, done),
    );
  }

  async checkpoint(folder: string): Promise<readonly KvFile[]> {
    this.demandOpen();
    const to = resolve(folder);
    if (existsSync(to)) throw kvError('kv_exists', `${to} exists already`);
    await prepareFolder(to, NAME, 'make');
    const copy = this.open(to);
    await this.call<void>('make a checkpoint', (done) => copy.open({}, done));
    const rows = this.iterator({});
    try {
      for (let ended = false; !ended; ) {
        const page: Operation[] = [];
        for (let bytes = 0; bytes < COPY_BYTES; ) {
          const row = await this.call<readonly [Buffer, Buffer] | undefined>('make a checkpoint', (done) =>
            rows.next((error, key, value) =>
              done(error, key === undefined ? undefined : [key, value as Buffer]),
            ),
          );
          ended = row === undefined;
          if (row === undefined) break;
          page.push({ type: 'put', key: row[0], value: row[1] });
          bytes += row[0].length + row[1].length;
        }
        await this.call<void>('make a checkpoint', (done) => copy.batch(page, { sync: ended }, done));
      }
    } finally {
      await promisify((done: Done) => rows.end(done))();
      await promisify((done: Done) => copy.close(done))();
    }
    return sealCheckpoint(to, NAME);
  }

  async stats(): Promise<KvStats> {
    this.demandOpen();
    const of = (name: string): number => Number(this.db.getProperty(`rocksdb.${name}`)) || 0;
    const levels = [0, 1, 2, 3, 4, 5, 6].map((level) => of(`num-files-at-level${level}`));
    return {
      cacheBytes: of('block-cache-usage'),
      pinnedBytes: of('block-cache-pinned-usage'),
      memtableBytes: of('size-all-mem-tables'),
      tableReaderBytes: of('estimate-table-readers-mem'),
      diskBytes: of('total-sst-files-size'),
      pendingCompactionBytes: of('estimate-pending-compaction-bytes'),
      fileCount: levels.reduce((sum, files) => sum + files, 0),
    };
  }

  /** Checks that this open names all families of earlier opens, and stores the new list. @throws
   *  kv_version */
  async checkFamilies(): Promise<void> {
    const key = Buffer.from(`${OWN}families`);
    const [known] = await this.call<Array<Buffer | undefined>>('open', (done) =>
      this.db.getMany([key], { asBuffer: true }, done),
    );
    const before = known === undefined ? [] : known.toString().split(' ');
    const unknown = before.find((name) => !this.families.has(name));
    if (unknown !== undefined)
      throw kvError('kv_version', `${this.folder} holds the family "${unknown}", which is not known here`);
    const value = Buffer.from([...this.families].join(' '));
    await this.call<void>('open', (done) => this.db.put(key, value, { sync: true }, done));
  }

  close(): Promise<void> {
    this.closing ??= this.shutDown();
    return this.closing;
  }

  private async shutDown(): Promise<void> {
    await Promise.allSettled(this.inFlight);
    await Promise.all([...this.scans].map((scan) => scan.end()));
    await this.call<void>('close', (done) => this.db.close(done));
  }
}

export const rocksdbNpmDriver: KvDriver = {
  name: NAME,
  async open(folder: string, options: KvOptions): Promise<KvStore> {
    demandOptions(options);
    const open = loadPackage();
    const at = resolve(folder);
    const state = await prepareFolder(at, NAME, options.missing);
    const db = open(at);
    const memtables = options.budgetBytes / 4;
    const settings = {
      createIfMissing: state === 'fresh',
      cacheSize: options.budgetBytes - memtables,
      writeBufferSize: memtables / 2,
      maxOpenFiles: 512,
    };
    try {
      await promisify((done: Done) => db.open(settings, done))();
    } catch (thrown) {
      throw errorOf(`open the store in ${join(at)}`, thrown);
    }
    const store = new NpmStore(db, open, at, Object.keys(options.families));
    try {
      await store.checkFamilies();
      return store;
    } catch (thrown) {
      await store.close();
      throw thrown;
    }
  },
};
