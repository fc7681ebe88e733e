/** Limits frames that cost the server work and the client nothing: resets of calls in flight,
 *  SETTINGS, PINGs beyond one a call, empty frames, malformed requests. An honest client sends some
 *  of them in bursts; a client that continues loses its connection. */

const BURST = 2000;
const PER_SECOND = 500;

export class AbuseLimiter {
  private level = 0;
  private atMs = 0;

  /** Counts one frame. Returns false above the limit. */
  add(): boolean {
    const nowMs = performance.now();
    this.level = Math.max(0, this.level - ((nowMs - this.atMs) / 1000) * PER_SECOND) + 1;
    this.atMs = nowMs;
    return this.level <= BURST;
  }
}

const CLOSED_MAX = 128;

/** Streams that were closed most recently, and the side that closed each: after a reset by the
 *  server, the client may still send frames. */
export class ClosedStreams {
  private readonly ids: number[] = [];
  private next = 0;

  record(id: number, byServer: boolean): void {
    this.ids[this.next] = byServer ? -id : id;
    this.next = (this.next + 1) % CLOSED_MAX;
  }

  wasReset(id: number): boolean {
    return this.ids.includes(-id);
  }

  isKnown(id: number): boolean {
    return this.ids.includes(id) || this.ids.includes(-id);
  }
}
