/** Exclusive ownership of a folder by one process.
 *
 *  Invariant: the kernel holds the lock for the life of the process. The lock ends with the
 *  process, SIGKILL included, so it outlives neither its owner nor a reboot. The content of a lock
 *  file never decides about ownership.
 */

export interface FolderLock {
  /** Releases the lock before the process ends. A second call has no effect. */
  release(): void;
}

/** Result of an attempt: the lock, or a description of its holder for messages, as far as the lock
 *  file names it. */
export type LockOutcome = { readonly lock: FolderLock } | { readonly holder: string };

export interface LockDriver {
  /** Locks an existing folder without waiting. A second lock in the same process fails as in
   *  another process.
   *  @throws not_writable when the lock file cannot be opened; lock_unavailable when the system
   *  supports no locks */
  tryLock(folder: string): Promise<LockOutcome>;
}
