/** Reads while the broker does not answer: what is known here is good for most of them, and a registry that answers
 *  nothing stops every client that starts.
 *
 *  Invariants: (1) a read waits for the log until it is known to be silent, later ones of that stretch do not; (2) the
 *  stretch ends when all that was committed before is applied here; (3) a log that cannot be applied is an error, never
 *  an old answer.
 */
import { afterAwake } from '../../../core/awake.ts';
import { type Cancel, sleep, type Timers } from '../../../core/clock.ts';
import { findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';

/** A log that has not told its end for this long is silent. */
const SILENT_MS = 1000;
const PROBE_PAUSE_MS = 100;

export interface KafkaReadsOptions {
  readonly clock: Timers;
  readonly log: Logger;
  /** @throws store_timeout, and what cannot be mended by waiting */
  catchUp(): Promise<void>;
  /** A read is answered from what may be old. */
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

  /** What is known here may be old. */
  get stale(): boolean {
    return this.silentSince !== undefined;
  }

  /** Settles when a read sees all that was committed before, or, in a stretch of silence, what is known here. */
  async ready(): Promise<void> {
    if (!this.stale && (await this.caughtUp())) return;
    if (this.silentSince === undefined) {
      this.silentSince = this.options.clock.monotonicMs();
      this.options.log.warn(
        {},
        'the broker does not tell the end of the log; reads are answered with what is known here',
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

  /** Goes on until the stretch ends: a read hours later must not be the one that finds out. */
  private async probe(): Promise<void> {
    if (this.probing) return;
    this.probing = true;
    while (this.stale && !this.closed) {
      try {
        await this.options.catchUp();
        this.end('reads see every write again');
      } catch (thrown) {
        // What is not a matter of time is told to the next read.
        if (!isLate(thrown)) this.end('the log cannot be followed');
        else await sleep(this.options.clock, PROBE_PAUSE_MS, undefined, 'background');
      }
    }
    this.probing = false;
  }

  /** Looks for the end of the stretch no longer. */
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
