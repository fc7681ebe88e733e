/** Simulated key-value store in memory: folders that live as long as the driver, and crashes that
 *  lose changes that were neither logged nor flushed. */
import { coreError } from '../core/errors.ts';
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
} from '../core/rows.ts';
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
} from '../io/rocksdb/port.ts';
import {
  bytesOf,
  EMPTY,
  lowerBound,
  merged,
  rangeOf,
  type SortedTable,
  tableOf,
  without,
} from './kv-table.ts';

/** Column family: the state that readers see, and the state that survives a crash. */
interface Family {
  live: SortedTable;
  durable: SortedTable;
}

interface Folder {
  readonly families: Map<string, Family>;
  /** Store that has the folder open. */
  holder: SimStore | undefined;
}

type Row = readonly [Uint8Array, Uint8Array];

/** Copies the rows, because the caller reuses their memory. */
const copied = (rows: Rows): Row[] =>
  Array.from(eachRow(rows), ([key, value]) => [key.slice(), value.slice()]);

class SimScan implements KvScan {
  private readonly table: SortedTable;
  private readonly shape: KvScanShape;
  private readonly end: number;
  private at: number;
  private readonly store: SimStore;
  private closed = false;

  constructor(store: SimStore, table: SortedTable, range: KvRange, shape: KvScanShape) {
    this.store = store;
    this.table = table;
    this.shape = shape;
    [this.at, this.end] = rangeOf(table, range.from, range.to);
  }

  async next(page: KvPage): Promise<number> {
    if (this.closed) throw coreError('closed', 'the scan is closed');
    this.store.demandOpen();
    const { shape } = this;
    if (shape.shape === 'spans' && page.ends === undefined)
      throw coreError('out_of_range', 'ends: a page of spans needs them');
    let used = 0;
    let count = 0;
    for (; this.at < this.end; this.at++) {
      const key = this.table.keys[this.at] as Uint8Array;
      const value = this.table.values[this.at] as Uint8Array;
      if (shape.shape === 'fixed' && (key.length !== shape.keyBytes || value.length !== shape.valueBytes))
        throw kvError('kv_corrupt', `a row of ${key.length} + ${value.length} bytes among rows of one size`);
      if (shape.shape === 'records' && value.length % shape.recordBytes !== 0)
        throw kvError('kv_corrupt', `a value of ${value.length} bytes is no sequence of records`);
      const parts = shape.shape === 'records' ? [value] : [key, value];
      const bytes = parts.reduce((sum, part) => sum + part.length, 0);
      const cells = shape.shape === 'spans' ? (page.ends?.length ?? 0) : Number.POSITIVE_INFINITY;
      if (bytes > page.bytes.length - used || cells < (count + 1) * 2) {
        if (count > 0) break;
        throw kvError(
          'kv_row_too_large',
          `a row of ${bytes} bytes does not fit a page of ${page.bytes.length}`,
        );
      }
      parts.forEach((part, i) => {
        page.bytes.set(part, used);
        used += part.length;
        if (shape.shape === 'spans') (page.ends as Uint32Array)[count * 2 + i] = used;
      });
      count += shape.shape === 'records' ? value.length / shape.recordBytes : 1;
    }
    return count;
  }

  close(): void {
    this.closed = true;
  }
}

class SimRun implements KvRun {
  private readonly store: SimStore;
  private readonly family: Family;
  private readonly rows: Row[] = [];
  private count = 0;
  private failed: Error | undefined;
  private closed = false;

  constructor(store: SimStore, family: Family) {
    this.store = store;
    this.family = family;
  }

  private demandOpen(): void {
    this.store.demandOpen();
    if (this.closed) throw coreError('closed', 'the run is closed');
    if (this.failed !== undefined) throw this.failed;
  }

  async append(rows: Rows): Promise<void> {
    this.demandOpen();
    demandRows(rows);
    const unsorted = rows.shape === 'records' ? firstUnsorted(rows) : -1;
    if (unsorted >= 0) this.fail(`row ${unsorted}: records do not ascend`);
    this.add(copied(rows));
    this.count += rows.count;
  }

  async appendUnsorted(rows: SortableRows): Promise<void> {
    this.demandOpen();
    demandRows(rows);
    const sorted = sortedRows(rows);
    this.add(sorted);
    this.count += sorted.length;
  }

  private add(rows: Iterable<Row>): void {
    for (const row of rows) {
      const last = this.rows.at(-1);
      if (last !== undefined && compareKeys(last[0], row[0]) >= 0) this.fail('a run needs ascending keys');
      this.rows.push(row);
    }
  }

  private fail(why: string): never {
    this.failed = kvError('kv_unsorted', why);
    throw this.failed;
  }

  async finish(): Promise<KvRunReport> {
    try {
      this.demandOpen();
      const table = tableOf(this.rows);
      this.family.live = merged(this.family.live, table);
      this.family.durable = merged(this.family.durable, table);
      return { rows: this.count, bytes: bytesOf(table), files: this.rows.length === 0 ? 0 : 1 };
    } finally {
      this.close();
    }
  }

  close(): void {
    this.closed = true;
  }
}

class SimStore implements KvStore {
  readonly folder: string;
  private readonly driver: SimKv;
  private readonly own: Folder;
  private closed = false;

  constructor(driver: SimKv, folder: string, own: Folder) {
    this.driver = driver;
    this.folder = folder;
    this.own = own;
  }

  demandOpen(): void {
    if (this.closed) throw coreError('closed', `the store in ${this.folder} is closed`);
  }

  private family(name: string): Family {
    this.demandOpen();
    const family = this.own.families.get(name);
    if (family === undefined)
      throw coreError('out_of_range', `the store in ${this.folder} has no family ${name}`);
    return family;
  }

  private change(family: Family, log: KvLog, to: (table: SortedTable) => SortedTable): void {
    family.live = to(family.live);
    if (log !== 'off') family.durable = to(family.durable);
  }

  async put(family: string, rows: Rows, log: KvLog): Promise<void> {
    const into = this.family(family);
    demandRows(rows);
    if (rows.shape === 'records' && firstUnsorted(rows) >= 0)
      throw kvError('kv_unsorted', `row ${firstUnsorted(rows)}: records do not ascend`);
    const over = tableOf(copied(rows));
    this.change(into, log, (table) => merged(table, over));
  }

  async get(family: string, keys: Keys): Promise<KvValues> {
    const { live } = this.family(family);
    demandKeys(keys);
    const start = new Uint32Array(keys.count);
    const length = new Int32Array(keys.count).fill(-1);
    const found: Uint8Array[] = [];
    let used = 0;
    let i = 0;
    for (const key of eachKey(keys)) {
      const at = lowerBound(live, key);
      const there = at < live.keys.length && compareKeys(live.keys[at] as Uint8Array, key) === 0;
      start[i] = used;
      if (there) {
        const value = live.values[at] as Uint8Array;
        length[i] = value.length;
        used += value.length;
        found.push(value);
      }
      i++;
    }
    const bytes = new Uint8Array(used);
    let at = 0;
    for (const value of found) {
      bytes.set(value, at);
      at += value.length;
    }
    return { bytes, start, length };
  }

  openRun(family: string): KvRun {
    return new SimRun(this, this.family(family));
  }

  async scan(family: string, range: KvRange, shape: KvScanShape): Promise<KvScan> {
    demandRange(range);
    return new SimScan(this, this.family(family).live, range, shape);
  }

  async deleteRange(family: string, range: KvRange, log: KvLog): Promise<void> {
    const from = this.family(family);
    demandRange(range);
    const edges = { from: range.from?.slice() ?? null, to: range.to?.slice() ?? null };
    this.change(from, log, (table) => without(table, edges.from, edges.to));
  }

  async flush(): Promise<void> {
    this.demandOpen();
    for (const family of this.own.families.values()) family.durable = family.live;
  }

  async checkpoint(folder: string): Promise<readonly KvFile[]> {
    await this.flush();
    if (this.driver.folders.has(folder)) throw kvError('kv_exists', `${folder} already exists`);
    const families = [...this.own.families].map(
      ([name, { live }]) => [name, { live, durable: live }] as const,
    );
    this.driver.folders.set(folder, { families: new Map(families), holder: undefined });
    return families.map(([name, { live }]) => ({ name, bytes: bytesOf(live) }));
  }

  async stats(): Promise<KvStats> {
    this.demandOpen();
    const families = [...this.own.families.values()];
    const total = (table: (family: Family) => SortedTable): number =>
      families.reduce((sum, family) => sum + bytesOf(table(family)), 0);
    return {
      cacheBytes: 0,
      pinnedBytes: 0,
      memtableBytes: Math.max(0, total(({ live }) => live) - total(({ durable }) => durable)),
      tableReaderBytes: 0,
      diskBytes: total(({ durable }) => durable),
      pendingCompactionBytes: 0,
      fileCount: families.length,
    };
  }

  async close(): Promise<void> {
    if (this.closed) return;
    await this.flush();
    this.abandon();
  }

  /** Releases the folder without closing, as the end of a process does. */
  abandon(): void {
    this.closed = true;
    this.own.holder = undefined;
  }
}

/** Simulated driver with its folders. */
export class SimKv implements KvDriver {
  readonly name = 'memory';
  readonly folders = new Map<string, Folder>();

  async open(folder: string, options: KvOptions): Promise<KvStore> {
    demandOptions(options);
    let own = this.folders.get(folder);
    if (own === undefined) {
      if (options.missing === 'refuse') throw kvError('kv_missing', `there is no store in ${folder}`);
      own = { families: new Map(), holder: undefined };
      this.folders.set(folder, own);
    }
    if (own.holder !== undefined) throw kvError('kv_locked', `${folder} is open already`);
    const unknown = [...own.families.keys()].find((name) => options.families[name] === undefined);
    if (unknown !== undefined)
      throw kvError('kv_version', `${folder} holds the family "${unknown}", which is not known here`);
    for (const name of Object.keys(options.families))
      if (!own.families.has(name)) own.families.set(name, { live: EMPTY, durable: EMPTY });
    own.holder = new SimStore(this, folder, own);
    return own.holder;
  }

  /** Crashes the process that has the folder open: data that is not durable is lost. */
  crash(folder: string): void {
    const own = this.folders.get(folder);
    own?.holder?.abandon();
    for (const family of own?.families.values() ?? []) family.live = family.durable;
  }
}
