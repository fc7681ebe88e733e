/** Telling the relays of an outbox, on the same host, that rows were committed. Only ever a hint: whoever is not reached looks again
 *  after its poll interval. Never NOTIFY, which takes a lock of the whole database through commit. */

/** The side that commits rows. */
export interface Waker {
  /** Wakes every relay that listens, those that start later too. Costs a few µs, coalesces calls of one turn of the event loop,
   *  never throws and never waits. */
  wake(): void;
  close(): Promise<void>;
}

/** The side of a relay. */
export interface WakeListener {
  close(): Promise<void>;
}

/** Which outbox: the same on both sides. */
export interface WakeScope {
  /** system_identifier of the database cluster (SqlPool.systemIdentifier). */
  readonly systemIdentifier: string;
  readonly database: string;
  /** schema.table */
  readonly table: string;
}

export interface WakeDriver {
  readonly name: string;
  /** Never rejects: without a place to look at it wakes nobody. */
  waker(scope: WakeScope): Promise<Waker>;
  /** `woken` is called once a turn of the event loop at most. @throws not_writable when no socket can be opened */
  listen(scope: WakeScope, woken: () => void): Promise<WakeListener>;
}
