/** Limits frames that cost the server work and the client nothing: resets of calls in flight, SETTINGS,
 *  PINGs beyond one a call, empty frames, malformed requests. An honest client sends some of them in
 *  bursts; a client that continues loses its connection. */

const BURST = 2000;
const A_SECOND = 500;

export class AbuseLimiter {
  private level = 0;
  private atMs = 0;

  /** Counts one frame. Returns false above the limit. */
  add(): boolean {
    const nowMs = performance.now();
    this.level = Math.max(0, this.level - ((nowMs - this.atMs) / 1000) * A_SECOND) + 1;
    this.atMs = nowMs;
    return this.level <= BURST;
  }
}

const REMEMBERED = 128;

/** Streams that were closed last, and which of them this side closed: their client may not know yet. */
export class ClosedStreams {
  private readonly ids: number[] = [];
  private next = 0;

  note(id: number, byUs: boolean): void {
    this.ids[this.next] = byUs ? -id : id;
    this.next = (this.next + 1) % REMEMBERED;
  }

  wasReset(id: number): boolean {
    return this.ids.includes(-id);
  }

  isKnown(id: number): boolean {
    return this.ids.includes(id) || this.ids.includes(-id);
  }
}
