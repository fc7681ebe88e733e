/** Rows that are encoded in one turn of the event loop, about a millisecond: events wait for it. */
export const TURN_ROWS = 2048;

/** Settles in another turn of the event loop. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
