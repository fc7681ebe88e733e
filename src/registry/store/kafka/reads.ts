/** Reads while the broker is silent. Most of them can be answered from the state known here, and a
 *  registry without answers stops every client that starts.
 *
 *  Invariants:
 *  1. A read waits for the log until the log is known to be silent; later reads of that silence do
 *     not wait.
 *  2. The silence ends when every record that was committed before is applied here.
 *  3. A log that cannot be applied is an error, never a stale answer.
 */
import { afterAwake } from '../../../core/awake.ts';
import { type Cancel, sleep, type Timers } from '../../../core/clock.ts';
import { findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';

/** Time without an answer about the end of the log after which the broker counts as silent. */
const SILENT_MS = 1000;
const PROBE_PAUSE_MS = 100;

export interface KafkaReadsOptions {
  readonly clock: Timers;
  readonly log: Logger;
  /** Reads the log to its end. @throws store_timeout, and errors that waiting cannot resolve */
  catchUp(): Promise<void>;
  /** Called for each read that is answered from state that may be stale. */
  readonly staleRead?: () => void;
  readonly silentMs?: number;
}

const isLate = (thrown: unknown): boolean => findMillraceError(thrown)?.code === 'store_timeout';

export class KafkaReads {
  private readonly options: KafkaReadsOptions;
  private probing = false;
  private closed = false;
  private silentSince: number | undefined;

  constructor(options: KafkaReadsOptions) {
    this.options = options;
  }

  /** True when the state known here may be stale. */
  get stale(): boolean {
    return this.silentSince !== undefined;
  }

  /** Settles when a read sees every record that was committed before; while the broker is silent,
   *  settles without waiting.
   */
  async ready(): Promise<void> {
    if (!this.stale && (await this.caughtUp())) return;
    if (this.silentSince === undefined) {
      this.silentSince = this.options.clock.monotonicMs();
      this.options.log.warn(
        {},
        'the broker does not report the end of the log; reads are answered from the state known here',
      );
    }
    this.options.staleRead?.();
    void this.probe();
  }

  private async caughtUp(): Promise<boolean> {
    let answered: Cancel = () => {};
    const silent = new Promise<boolean>((resolve) => {
      answered = afterAwake(this.options.clock, this.options.silentMs ?? SILENT_MS, () => resolve(false));
    });
    const caught = this.options.catchUp().then(
      () => true,
      (thrown: unknown) => {
        if (isLate(thrown)) return false;
        throw thrown;
      },
    );
    try {
      return await Promise.race([caught, silent]);
    } finally {
      answered();
    }
  }

  /** Probes the broker until the silence ends, so that a read hours later need not detect the end.
   */
  private async probe(): Promise<void> {
    if (this.probing) return;
    this.probing = true;
    while (this.stale && !this.closed) {
      try {
        await this.options.catchUp();
        this.end('reads see every write again');
      } catch (thrown) {
        // Other errors are reported by the next read.
        if (!isLate(thrown)) this.end('the log cannot be followed');
        else await sleep(this.options.clock, PROBE_PAUSE_MS, undefined, 'background');
      }
    }
    this.probing = false;
  }

  /** Stops probing. */
  close(): void {
    this.closed = true;
  }

  private end(how: string): void {
    if (this.silentSince === undefined) return;
    const ms = Math.round(this.options.clock.monotonicMs() - this.silentSince);
    this.silentSince = undefined;
    this.options.log.info({ ms }, how);
  }
}
