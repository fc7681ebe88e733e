/** Requests with one key, across repeats and processes: one executes, the others wait and get its
 *  answer.
 *
 *  In one process, requests join the first one in memory (single flight), so they take no
 *  connection. Across processes, the first request of each process asks the table again with
 *  growing pauses and holds no connection meanwhile.
 */
import { type Random, sleep, type Timers, within } from '../../core/clock.ts';
import { outboxError } from '../errors.ts';
import type { EndpointAnswer } from './answer.ts';
import { type KeyedRequest, requireSame } from './record.ts';

/** Result of one attempt to execute a request. */
export type Attempt =
  /** The request was executed. `stored`: its answer is the answer of the key from now on. */
  | { readonly kind: 'executed'; readonly answer: EndpointAnswer; readonly stored: boolean }
  /** The key had this answer. */
  | { readonly kind: 'stored'; readonly answer: EndpointAnswer }
  | { readonly kind: 'in_flight' };

export interface KeyOutcome {
  readonly answer: EndpointAnswer;
  readonly replayed: boolean;
}

export interface FlightLimits {
  readonly waitMs: number;
  readonly waitingMax: number;
  readonly clock: Timers;
  readonly random: Random;
}

/** Pauses between two attempts at a key that another process executes, ms. */
const FIRST_PAUSE_MS = 10;
const PAUSE_MS_MAX = 250;

interface Flight {
  readonly fingerprint: string;
  /** Resolves with the stored answer, or undefined if the request stored none. Never rejects. */
  readonly ended: Promise<EndpointAnswer | undefined>;
}

export class Flights {
  private readonly limits: FlightLimits;
  private readonly flights = new Map<string, Flight>();
  private waiting = 0;

  constructor(limits: FlightLimits) {
    this.limits = limits;
  }

  /** Number of requests that wait for another one. */
  waiters(): number {
    return this.waiting;
  }

  /** Executes the request, or returns the answer of its key.
   *  @param attempt executes the request if its key is free; called until it answers
   *  @throws in_flight, idempotency_key_reused; errors of the attempt */
  async run(request: KeyedRequest, attempt: () => Promise<Attempt>): Promise<KeyOutcome> {
    const id = `${request.scope.length} ${request.scope}${request.key}`;
    const dueMs = this.limits.clock.monotonicMs() + this.limits.waitMs;
    for (;;) {
      const flight = this.flights.get(id);
      if (flight === undefined) return this.lead(id, request, attempt, dueMs);
      requireSame(flight.fingerprint, request);
      const answer = await this.waitFor(flight, dueMs);
      if (answer !== undefined) return { answer, replayed: true };
    }
  }

  private async lead(
    id: string,
    request: KeyedRequest,
    attempt: () => Promise<Attempt>,
    dueMs: number,
  ): Promise<KeyOutcome> {
    let end: (answer: EndpointAnswer | undefined) => void = () => {};
    const ended = new Promise<EndpointAnswer | undefined>((resolve) => {
      end = resolve;
    });
    this.flights.set(id, { fingerprint: request.fingerprint.toString('hex'), ended });
    let stored: EndpointAnswer | undefined;
    try {
      const result = await this.attempts(attempt, dueMs);
      if (result.kind === 'stored' || result.stored) stored = result.answer;
      return { answer: result.answer, replayed: result.kind === 'stored' };
    } finally {
      this.flights.delete(id);
      end(stored);
    }
  }

  private async attempts(
    attempt: () => Promise<Attempt>,
    dueMs: number,
  ): Promise<Exclude<Attempt, { kind: 'in_flight' }>> {
    const { clock, random } = this.limits;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(PAUSE_MS_MAX, pauseMs * 1.5)) {
      const result = await attempt();
      if (result.kind !== 'in_flight') return result;
      const leftMs = this.leftMs(dueMs);
      await this.counted(sleep(clock, Math.min(leftMs, pauseMs * (0.5 + random.fraction()))));
    }
  }

  private async waitFor(flight: Flight, dueMs: number): Promise<EndpointAnswer | undefined> {
    const leftMs = this.leftMs(dueMs);
    const inTime = await this.counted(within(this.limits.clock, leftMs, flight.ended));
    if (inTime) return flight.ended;
    this.leftMs(dueMs);
    return undefined;
  }

  /** Returns the rest of the wait, ms. @throws in_flight when it is over, or no request may wait */
  private leftMs(dueMs: number): number {
    const { waitMs, waitingMax, clock } = this.limits;
    const leftMs = dueMs - clock.monotonicMs();
    if (waitMs > 0 && leftMs > 0 && this.waiting < waitingMax) return leftMs;
    const why = leftMs > 0 ? '' : `, also after ${waitMs} ms`;
    throw outboxError('in_flight', `another request with this key is in flight${waitMs === 0 ? '' : why}`, {
      next: 'send the same request with the same key again',
      details: { waits: waitMs > 0 },
    });
  }

  private async counted<T>(wait: Promise<T>): Promise<T> {
    this.waiting++;
    try {
      return await wait;
    } finally {
      this.waiting--;
    }
  }
}
