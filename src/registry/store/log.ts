/** Where the registry's records are kept: an ordered log of keys and values, the same on every store.
 *
 *  A record is what stands in the `_schemas` topic of the existing registries, byte for byte: a later value of a key
 *  replaces the earlier one, and null removes it. So any two stores can be copied into each other.
 *
 *  Invariants: (1) `append` settles after its records survive a crash, all of them or none; (2) `apply` gets every
 *  record that this process did not append itself, in log order: what stands in the log at `open`, and later what
 *  another process wrote; (3) a log that is not the leader appends nothing.
 */

export interface LogRecord {
  readonly key: Uint8Array;
  /** Null: the key is removed. */
  readonly value: Uint8Array | null;
  /** When it was written, ms since 1970, where the log keeps that. */
  readonly ts?: number;
}

export interface LogSink {
  /** Records that others wrote, in log order. Synchronous; the log keeps no reference to the bytes afterwards. */
  apply(records: readonly LogRecord[]): void;
  /** Records for what only removed records prove, so that the log may forget them: the highest ids, and whose verdicts the
   *  subjects are used to. Absent: the log forgets nothing. */
  summary?(): readonly LogRecord[];
}

export interface OpenReport {
  readonly records: number;
  /** Bytes of a last write that is not whole and was cut off. */
  readonly tornBytes: number;
}

export type LogRole =
  | { readonly leader: true }
  /** `url`: where the leader answers HTTP, as far as it is known; `instance`: by which name it signs its answers. */
  | { readonly leader: false; readonly url: string | undefined; readonly instance?: string };

export interface RegistryLog {
  readonly name: string;
  /** Another registry may write it, or may have: a record in it is not known to be ours. */
  readonly shared?: true;
  /** Gives everything there is to `sink` and then keeps doing so. Call once, before all else.
   *  @throws store_corrupt, store_locked, not_writable, unreachable */
  open(sink: LogSink): Promise<OpenReport>;
  /** One call at a time; many records a call make group commit.
   *  @throws not_leader and store_failed: nothing was kept. store_unknown: the outcome is not known; `apply` will get
   *  the records if they were kept
   *  @returns `applied` where records of another process follow in the log and were given to `apply`: then `apply` has got these
   *  records before them, and the caller must not apply them once more. Anything else: the caller applies them */
  append(records: readonly LogRecord[]): Promise<unknown>;
  /** Writes into an empty log, all of it or none, however much it is. Absent where the store cannot.
   *  @throws store_failed */
  fill?(records: readonly LogRecord[]): Promise<void>;
  /** Settles when `apply` has got all that anybody had committed when this was called. @throws store_timeout */
  catchUp(): Promise<void>;
  /** As catchUp, for a read: may settle with what is known here where the log does not answer. Absent: catchUp.
   *  @throws store_timeout */
  catchUpToRead?(): Promise<void>;
  /** A log of one process is always the leader. */
  role(): LogRole;
  close(): Promise<void>;
}
