/** Pace of the flights that are not full: their starts are at least three usual flights apart.
 *
 *  A flight costs relay, database, brokers and consumers nearly the same for one row as for many.
 *  Quick answers make the pace shorter than the time between two reads, and it changes nothing.
 *  Slow ones, because copies on other brokers must answer or the machine is busy, make rows share
 *  flights, and a row waits at most about three times as long as its flight takes. */

/** Weight of the newest flight in the mean. */
const MEAN_SHARE = 1 / 8;
const FLIGHTS_APART = 3;
/** Longest pace: a flight that lasted as long as an outage must not delay the flights after it. */
const PACE_MS_MAX = 50;

export class FlightPace {
  private meanMs = 0;

  /** Notes the time from the start of a flight to the acknowledgement of its last row. */
  landed(ms: number): void {
    this.meanMs += (Math.min(ms, PACE_MS_MAX) - this.meanMs) * MEAN_SHARE;
  }

  /** Shortest time between the starts of two flights that are not full, ms. */
  paceMs(): number {
    return Math.min(PACE_MS_MAX, FLIGHTS_APART * this.meanMs);
  }
}
