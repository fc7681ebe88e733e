/** Server-sent events of fired windows. Source: WHATWG HTML, 9.2.
 *
 *  A window is an event `window` with an id, sent once its row is durable in every sink; after a
 *  crash some windows fire, and are sent, again. A client that reads too slowly gets an event
 *  `dropped` and its stream ends. A client that resumes (Last-Event-ID) from a place that this
 *  process does not have gets an event `gap`, then the windows that fire from now on. */
import type { Timers } from '../../core/clock.ts';
import type { HttpResponse, HttpStream, HttpStreamSource } from '../../io/http/port.ts';
import type { FeedReader, FiredFeed } from '../output/feed.ts';
import type { WindowResult } from '../window/accumulator.ts';
import { MEDIA_TYPES } from './forms.ts';

/** Rows of one turn of the event loop. */
const SLICE_ROWS = 128;
/** Time between comments that keep the connection open; below the idle limits of HTTP backends and
 *  proxies. */
const KEEP_ALIVE_MS = 5_000;
/** Time after which a browser reconnects. */
const RETRY_MS = 1_000;

export interface WindowStreamParts {
  readonly feed: FiredFeed;
  /** Differs from that of every other process of the job. */
  readonly epoch: string;
  readonly timers: Pick<Timers, 'every'>;
  /** Last-Event-ID of the client, as it sent it. */
  readonly lastEventId: string | undefined;
  /** False for windows that the client did not ask for. */
  readonly isWanted: (result: WindowResult) => boolean;
  readonly toJson: (result: WindowResult) => object;
}

/** Answer that streams. @throws too_many_streams */
export function streamAnswer(parts: WindowStreamParts): HttpResponse {
  parts.feed.demandRoom();
  return {
    status: 200,
    headers: { 'content-type': MEDIA_TYPES.events, 'cache-control': 'no-store', 'x-accel-buffering': 'no' },
    stream: new WindowStream(parts),
  };
}

class WindowStream implements HttpStreamSource {
  private readonly parts: WindowStreamParts;
  private reader: FeedReader | undefined;
  private out: HttpStream | undefined;
  private isPumping = false;
  private isBlocked = false;
  private isOver = false;
  private cancel: () => void = () => {};

  constructor(parts: WindowStreamParts) {
    this.parts = parts;
  }

  start(out: HttpStream): void {
    const { lastEventId, epoch, feed } = this.parts;
    const [, from, place] = /^([0-9a-z]{1,16})-(\d{1,15})$/.exec(lastEventId ?? '') ?? [];
    const resumed = from === epoch && feed.has(Number(place)) ? Number(place) : undefined;
    this.reader = feed.open(resumed, () => this.schedule());
    this.out = out;
    this.cancel = this.parts.timers.every(
      KEEP_ALIVE_MS,
      () => {
        if (!this.isBlocked && !this.isOver) this.write(': keep-alive\n\n');
      },
      'background',
    );
    this.write(`retry: ${RETRY_MS}\n\n`);
    if (lastEventId !== undefined && resumed === undefined) this.reportGap();
    this.schedule();
  }

  writable(): void {
    this.isBlocked = false;
    this.schedule();
  }

  closed(): void {
    this.isOver = true;
    this.cancel();
    this.reader?.close();
  }

  private reportGap(): void {
    this.write(
      'event: gap\ndata: {"reason":"windows since Last-Event-ID are not in the memory of this process: read them with GET /windows"}\n\n',
    );
  }

  /** Sends rows in a later turn of the event loop. */
  private schedule(): void {
    if (this.isPumping || this.isBlocked || this.isOver || this.out === undefined) return;
    this.isPumping = true;
    setImmediate(() => {
      this.isPumping = false;
      this.pump();
    });
  }

  private pump(): void {
    const { reader } = this;
    if (this.isOver || this.isBlocked || reader === undefined) return;
    const { epoch, isWanted, toJson } = this.parts;
    const from = reader.position;
    const rows = reader.next(SLICE_ROWS);
    if (rows === undefined) {
      this.drop();
      return;
    }
    if (rows.length === 0) return;
    let text = '';
    for (const [at, row] of rows.entries())
      if (isWanted(row))
        text += `id: ${epoch}-${from + at + 1}\nevent: window\ndata: ${JSON.stringify(toJson(row))}\n\n`;
    if (text !== '') this.write(text);
    this.schedule();
  }

  private drop(): void {
    this.write(
      'event: dropped\ndata: {"code":"slow_client","reason":"this client reads more slowly than windows fire: windows were dropped. Reconnect, and read the missing windows with GET /windows"}\n\n',
    );
    this.out?.end();
  }

  private write(text: string): void {
    if (this.out?.write(text) === false) this.isBlocked = true;
  }
}
