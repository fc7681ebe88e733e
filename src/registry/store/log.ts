/** Log of the registry's records: an ordered sequence of keys and values, the same in every store.
 *
 *  A record has the exact bytes that the existing registries write to the `_schemas` topic. A later
 *  value of a key replaces the earlier value; null removes the key. So any store can be copied into
 *  any other.
 *
 *  Invariants:
 *  1. `append` settles after its records survive a crash: all of them or none.
 *  2. `apply` receives, in log order, the records of the log at `open`, and later those of other
 *     processes. A shared log gives it the records of this process too, each at its place among
 *     them and as soon as any process can read it, which may be before `append` settles.
 *  3. A log that is not the leader appends nothing.
 */

export interface LogRecord {
  readonly key: Uint8Array;
  /** Null removes the key. */
  readonly value: Uint8Array | null;
  /** Write time, ms since 1970, where the log records it. */
  readonly ts?: number;
}

export interface LogSink {
  /** Applies records of the log, in log order. Synchronous; the log keeps no reference to the bytes
   *  afterwards.
   */
  apply(records: readonly LogRecord[]): void;
  /** Records for the facts that only removed records prove, so that the log may drop those records:
   *  the highest ids, and the origin of the verdict policy. Absent: the log drops nothing.
   */
  summary?(): readonly LogRecord[];
}

export interface OpenReport {
  readonly records: number;
  /** Bytes of an incomplete last write, which were cut off. */
  readonly tornBytes: number;
}

export type LogRole =
  | { readonly leader: true }
  /** `url`: HTTP address of the leader, where known; `instance`: name with which the leader signs
   *  its answers.
   */
  | { readonly leader: false; readonly url: string | undefined; readonly instance?: string };

export interface RegistryLog {
  readonly name: string;
  /** True: other registries may write to this log, so a record may come from any of them, and
   *  `apply` receives the appended records. Otherwise the caller of `append` applies them.
   */
  readonly shared?: true;
  /** Maximum bytes of a record, key and value, once the log is open. A larger record fails its
   *  whole `append`. Absent: records of any size.
   */
  readonly recordBytesMax?: number;
  /** Gives all existing records to `sink`, and later each new one. Call it once, before all other
   *  methods.
   *  @throws store_corrupt, store_locked, not_writable, unreachable
   */
  open(sink: LogSink): Promise<OpenReport>;
  /** Appends records. One call at a time; many records in a call make a group commit.
   *  @throws not_leader and store_failed: nothing was kept. store_unknown: the outcome is unknown;
   *    `apply` receives the records if they were kept
   */
  append(records: readonly LogRecord[]): Promise<void>;
  /** Writes `records` into an empty log: all or none, whatever their size. Absent where the store
   *  cannot do that. @throws store_failed
   */
  fill?(records: readonly LogRecord[]): Promise<void>;
  /** Settles when `apply` has received every record that was committed, by any process, before this
   *  call. @throws store_timeout
   */
  catchUp(): Promise<void>;
  /** Variant of `catchUp` for a read: may settle with the records known here when the log does not
   *  answer. Absent: use `catchUp`. @throws store_timeout
   */
  catchUpToRead?(): Promise<void>;
  /** Role of this process. The only process of a log is always its leader. */
  role(): LogRole;
  close(): Promise<void>;
}

/** Log that keeps nothing: the registry's memory is the only copy and ends with the process. */
export class MemoryLog implements RegistryLog {
  readonly name = 'memory';

  async open(): Promise<OpenReport> {
    return { records: 0, tornBytes: 0 };
  }
  async append(): Promise<void> {}
  async catchUp(): Promise<void> {}
  role(): LogRole {
    return { leader: true };
  }
  async close(): Promise<void> {}
}
