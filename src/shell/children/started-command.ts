/** A command of this package that runs as a child process. */
export interface StartedCommand {
  readonly pid: number;
  /** Settles when the process has ended: its exit code, or the signal that ended it. */
  readonly ended: Promise<{ readonly code: number | null; readonly signal: string | null }>;
  /** Resolves with `host:port` once the process has printed its listen address. Rejects with its
   *  stderr if it ends before. */
  address(): Promise<string>;
  kill(signal: 'SIGKILL' | 'SIGTERM' | 'SIGSTOP' | 'SIGCONT'): void;
  /** All of stdout so far. */
  stdout(): string;
  /** Path of the file that holds its stderr. */
  readonly logPath: string;
}
