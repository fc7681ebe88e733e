/** Time as a port: a deterministic step never reads it, a driver hands it in. */

export interface Clock {
  /** Wall time in ms since the epoch. */
  wallNowMs(): number;
  /** Monotonic time in ms with a fraction; only differences mean something. */
  monotonicMs(): number;
}
