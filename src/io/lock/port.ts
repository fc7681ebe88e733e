/** Exclusive ownership of a folder by one process.
 *
 *  Invariant: the kernel holds the lock for the life of the process. It ends with the process, SIGKILL included, so no lock
 *  outlives its owner or a reboot, and the content of a lock file is never judged.
 */

export interface FolderLock {
  /** Frees the folder before the process ends. Calling it again does nothing. */
  release(): void;
}

/** The lock, or a description of the process that holds it, for messages: as far as the lock file names it. */
export type LockOutcome = { readonly lock: FolderLock } | { readonly holder: string };

export interface LockDriver {
  /** Locks a folder that exists, without waiting. Locking it twice in one process fails like in two.
   *  @throws not_writable where the lock file cannot be opened; lock_unavailable where the system gives no locks */
  tryLock(folder: string): Promise<LockOutcome>;
}
