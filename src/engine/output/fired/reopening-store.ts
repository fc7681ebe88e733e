/** Decorator of a store that recovers from a full disk. After a failed write RocksDB refuses every
 *  change until it is reopened, so this store reopens it before the next change. Rows that were
 *  reported durable are in the files; the caller writes all others again. */
import { coreError, findMillraceError } from '../../../core/errors.ts';
import type { Keys, Rows, SortableRows } from '../../../core/rows.ts';
import type {
  KvFile,
  KvLog,
  KvRange,
  KvRun,
  KvRunReport,
  KvScan,
  KvScanShape,
  KvStats,
  KvStore,
  KvValues,
} from '../../../io/rocksdb/port.ts';

const WRITE_FAILURES = new Set(['kv_full', 'kv_io']);

/** Key-value store that is reopened after a write that a full disk refused, because RocksDB
 *  refuses every later write until then. The caller repeats what was not durable.
 */
export class ReopeningStore implements KvStore {
  readonly folder: string;
  private readonly reopen: () => Promise<KvStore>;
  /** Undefined while the store is reopened, and after reopening failed. */
  private store: KvStore | undefined;
  private mustReopen = false;
  private reopening: Promise<KvStore> | undefined;
  private isClosed = false;

  private constructor(store: KvStore, reopen: () => Promise<KvStore>) {
    this.folder = store.folder;
    this.store = store;
    this.reopen = reopen;
  }

  static async open(open: () => Promise<KvStore>): Promise<ReopeningStore> {
    return new ReopeningStore(await open(), open);
  }

  put(family: string, rows: Rows, log: KvLog): Promise<void> {
    return this.change((store) => store.put(family, rows, log));
  }
  deleteRange(family: string, range: KvRange, log: KvLog): Promise<void> {
    return this.change((store) => store.deleteRange(family, range, log));
  }
  flush(): Promise<void> {
    return this.change((store) => store.flush());
  }
  checkpoint(folder: string): Promise<readonly KvFile[]> {
    return this.change((store) => store.checkpoint(folder));
  }
  openRun(family: string): KvRun {
    return new ReopeningRun(family, (work) => this.change(work));
  }

  async get(family: string, keys: Keys): Promise<KvValues> {
    return (await this.readable()).get(family, keys);
  }
  async scan(
    family: string,
    range: KvRange,
    shape: KvScanShape,
    options?: { readonly keepBlocks?: boolean },
  ): Promise<KvScan> {
    return (await this.readable()).scan(family, range, shape, options);
  }
  async stats(): Promise<KvStats> {
    return (await this.readable()).stats();
  }

  async close(): Promise<void> {
    this.isClosed = true;
    await this.reopening?.catch(() => {});
    const { store } = this;
    this.store = undefined;
    await store?.close();
  }

  private async change<T>(work: (store: KvStore) => Promise<T>): Promise<T> {
    const store = this.mustReopen ? await this.reopened() : await this.readable();
    try {
      return await work(store);
    } catch (thrown) {
      if (WRITE_FAILURES.has(findMillraceError(thrown)?.code ?? '')) this.mustReopen = true;
      throw thrown;
    }
  }

  /** A store that refuses changes can still be read. */
  private async readable(): Promise<KvStore> {
    return this.store ?? this.reopened();
  }

  private reopened(): Promise<KvStore> {
    this.reopening ??= this.reopenStore().finally(() => {
      this.reopening = undefined;
    });
    return this.reopening;
  }

  private async reopenStore(): Promise<KvStore> {
    if (this.isClosed) throw coreError('closed', `the store in ${this.folder} is closed`);
    const { store } = this;
    this.store = undefined;
    // Close may fail because buffered rows cannot be written; none of them was reported durable.
    await store?.close().catch(() => {});
    const fresh = await this.reopen();
    this.mustReopen = false;
    this.store = fresh;
    return fresh;
  }
}

type Change = <T>(work: (store: KvStore) => Promise<T>) => Promise<T>;

/** A sorted run in the store that is open at the first append. */
class ReopeningRun implements KvRun {
  private readonly family: string;
  private readonly change: Change;
  private run: KvRun | undefined;

  constructor(family: string, change: Change) {
    this.family = family;
    this.change = change;
  }

  append(rows: Rows): Promise<void> {
    return this.change(async (store) => {
      this.run ??= store.openRun(this.family);
      await this.run.append(rows);
    });
  }
  appendUnsorted(rows: SortableRows): Promise<void> {
    return this.change(async (store) => {
      this.run ??= store.openRun(this.family);
      await this.run.appendUnsorted(rows);
    });
  }
  finish(): Promise<KvRunReport> {
    return this.change(async (store) => {
      this.run ??= store.openRun(this.family);
      return this.run.finish();
    });
  }
  close(): void {
    this.run?.close();
  }
}
