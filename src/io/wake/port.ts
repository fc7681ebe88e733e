/** Wake-up hints for the relays of an outbox on the same host: rows were committed. A relay that
 *  gets no hint polls at its interval. NOTIFY is not used: it takes a lock of the whole database
 *  through commit. */

/** Sender of hints: a process that commits rows. */
export interface Waker {
  /** Wakes every listening relay, also relays that start later. Costs a few µs, coalesces calls of
   *  one turn of the event loop, never throws and never waits. */
  wake(): void;
  close(): Promise<void>;
}

/** Receiver of hints: a relay. */
export interface WakeListener {
  close(): Promise<void>;
}

/** Identity of an outbox, the same on both sides. */
export interface WakeScope {
  /** system_identifier of the database cluster (SqlPool.systemIdentifier). */
  readonly systemIdentifier: string;
  readonly database: string;
  /** schema.table */
  readonly table: string;
}

export interface WakeDriver {
  readonly name: string;
  /** Opens a sender. Never rejects; without a socket folder it wakes no relay. */
  waker(scope: WakeScope): Promise<Waker>;
  /** Opens a receiver that calls `woken` at most once a turn of the event loop. @throws
   *  not_writable when no socket can be opened */
  listen(scope: WakeScope, woken: () => void): Promise<WakeListener>;
}
