/** Longest time that a reader with an end waits for a registry that does not answer. */
import type { Clock } from '../../core/clock.ts';
import { findMillraceError, MillraceError } from '../../core/errors.ts';
import { formatDuration } from '../../core/quantity.ts';

/** Wait of one reader: each answer of the registry gives it the whole time again. */
export class RegistryWait {
  private readonly clock: Pick<Clock, 'monotonicMs'>;
  private readonly maxMs: number;
  private hasAnswered: boolean;
  private sinceMs = 0;

  /** @param hasAnswered true: the registry has answered this process before */
  constructor(clock: Pick<Clock, 'monotonicMs'>, maxMs: number, hasAnswered: boolean) {
    this.clock = clock;
    this.maxMs = maxMs;
    this.hasAnswered = hasAnswered;
  }

  /** Call it before the first request of a batch. */
  begin(): void {
    this.sinceMs = this.clock.monotonicMs();
  }

  /** Call it when the schemas of a batch are loaded. */
  end(): void {
    this.hasAnswered = true;
  }

  /** Time that is left for the batch, ms; 0: the wait is over. */
  leftMs(): number {
    return Math.max(0, this.maxMs - (this.clock.monotonicMs() - this.sinceMs));
  }

  /** Error of a wait that is over. A registry that never answered is probably not at this address;
   *  one that answered before has an outage, and the run can be repeated.
   *  @param thrown error of the last request; its code stays */
  error(thrown: unknown): unknown {
    const last = findMillraceError(thrown);
    if (last === undefined) return thrown;
    const time = `${formatDuration(this.maxMs)} (-connect-timeout)`;
    const more = this.hasAnswered
      ? {
          what: `it answered before, then not for ${time}`,
          next: 'start the registry and run the command again: a group continues behind the records it has finished; a longer -connect-timeout survives a longer outage',
        }
      : {
          what: `it never answered, for ${time}; no record was read`,
          next: `${last.next ?? 'check -registry'}; without -exit-at-end the consumer waits for it`,
        };
    return new MillraceError(last.code, last.row, `${last.message}: ${more.what}`, {
      next: more.next,
      details: last.details,
      cause: thrown,
    });
  }
}
