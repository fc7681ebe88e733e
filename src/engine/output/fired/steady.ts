/** Store that survives a full disk. After a failed write RocksDB refuses every change until the
 *  store is reopened, so this module reopens it before the next change. Durable rows are in the
 *  files; the caller writes all others again. */
import { coreError, findMillraceError } from '../../../core/errors.ts';
import type { Keys, Rows } from '../../../core/rows.ts';
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

const REFUSES = new Set(['kv_full', 'kv_io']);

/** Key-value store that is reopened after a write that a full disk refused, because RocksDB
 *  refuses every later write until then. The caller repeats what was not durable.
 */
export class SteadyStore implements KvStore {
  readonly folder: string;
  private readonly reopen: () => Promise<KvStore>;
  /** Undefined while the store is reopened, and after a failed attempt. */
  private store: KvStore | undefined;
  private isBroken = false;
  private mending: Promise<KvStore> | undefined;
  private isClosed = false;

  private constructor(store: KvStore, reopen: () => Promise<KvStore>) {
    this.folder = store.folder;
    this.store = store;
    this.reopen = reopen;
  }

  static async open(open: () => Promise<KvStore>): Promise<SteadyStore> {
    return new SteadyStore(await open(), open);
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
    return new SteadyRun(family, (work) => this.change(work));
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
    await this.mending?.catch(() => {});
    const { store } = this;
    this.store = undefined;
    await store?.close();
  }

  private async change<T>(work: (store: KvStore) => Promise<T>): Promise<T> {
    const store = this.isBroken ? await this.mended() : await this.readable();
    try {
      return await work(store);
    } catch (thrown) {
      if (REFUSES.has(findMillraceError(thrown)?.code ?? '')) this.isBroken = true;
      throw thrown;
    }
  }

  /** A store that refuses changes still answers reads. */
  private async readable(): Promise<KvStore> {
    return this.store ?? this.mended();
  }

  private mended(): Promise<KvStore> {
    this.mending ??= this.mend().finally(() => {
      this.mending = undefined;
    });
    return this.mending;
  }

  private async mend(): Promise<KvStore> {
    if (this.isClosed) throw coreError('closed', `the store in ${this.folder} is closed`);
    const { store } = this;
    this.store = undefined;
    // The store cannot write its memory; none of those rows was reported durable.
    await store?.close().catch(() => {});
    const fresh = await this.reopen();
    this.isBroken = false;
    this.store = fresh;
    return fresh;
  }
}

type Change = <T>(work: (store: KvStore) => Promise<T>) => Promise<T>;

/** Run in the store that is open at the first append. */
class SteadyRun implements KvRun {
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
