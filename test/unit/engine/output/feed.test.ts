/** Fired windows for clients that follow them: the bounded log, and the events of a stream. */
import { describe, expect, it } from 'vitest';
import { ACCUMULATOR } from '../../../../src/core/layout/layouts.gen.ts';
import { Aggregates } from '../../../../src/engine/aggregate/definition.ts';
import { streamAnswer } from '../../../../src/engine/api/stream.ts';
import { FEED_BYTES_MAX, FEED_READERS_MAX, FiredFeed } from '../../../../src/engine/output/feed.ts';
import { markEarly, type WindowResult } from '../../../../src/engine/window/accumulator.ts';
import { manyRows, pageOf, windowBounds } from '../../../contract/fired-kit.ts';
import { turns } from '../../../wait.ts';

const page = (start: number, ...ids: readonly bigint[]) =>
  pageOf(
    windowBounds(start, start + 10),
    ids.map((accountId) => ({ accountId })),
  );
const idOf = ({ accountId, windowStart }: WindowResult): string => `${accountId}@${windowStart}`;
/** A page of half of the log. */
const half = () => {
  const rowCount = FEED_BYTES_MAX / 2 / 64;
  return { bounds: windowBounds(0, 10), rows: manyRows(rowCount), rowCount };
};

/** Stream of a client that takes `room` writes before it blocks. */
function client(feed: FiredFeed, over: { lastEventId?: string; room?: number; only?: bigint } = {}) {
  const { stream } = streamAnswer({
    ...{ feed, epoch: 'e1', timers: { every: () => () => {} }, lastEventId: over.lastEventId },
    isWanted: ({ accountId }) => over.only === undefined || accountId === over.only,
    toJson: (result) => ({ at: idOf(result) }),
  });
  const state = { text: '', room: over.room ?? Number.POSITIVE_INFINITY, ended: false };
  stream?.start({
    write: (text) => {
      state.text += text;
      return --state.room > 0;
    },
    end: () => {
      state.ended = true;
      stream.closed();
    },
  });
  return {
    ...{ state, stream },
    windows: () => [...state.text.matchAll(/"at":"([^"]*)"/g)].map(([, at]) => at),
    ids: () => [...state.text.matchAll(/^id: (.*)$/gm)].map(([, id]) => id),
  };
}

describe('feed of fired windows', () => {
  it('rows with cells of aggregates and rows of early results are read as they were published', () => {
    const form = Aggregates.of('count,sum(a)');
    const rows = new Uint8Array(2 * form.bytes);
    const view = new DataView(rows.buffer);
    for (const row of [0, 1]) {
      view.setBigUint64(row * form.bytes + ACCUMULATOR.ACCOUNT_ID, BigInt(row + 7), true);
      view.setBigUint64(row * form.bytes + ACCUMULATOR.COUNT, BigInt(row + 1), true);
    }
    markEarly(rows, form.bytes);
    const feed = new FiredFeed();
    const reader = feed.open(undefined, () => {});
    feed.publish({ bounds: windowBounds(0, 10), form, rows, rowCount: 2 });
    expect(reader.next(10)).toEqual([
      expect.objectContaining({ accountId: 7n, aggregates: [1n, null] }),
      expect.objectContaining({ accountId: 8n, aggregates: [2n, null], isEarly: true }),
    ]);
  });

  it('a reader gets the rows that are published after it was opened, in their order', () => {
    const feed = new FiredFeed();
    feed.publish(page(0, 1n));
    let woken = 0;
    const reader = feed.open(undefined, () => woken++);
    expect(reader.next(10)).toEqual([]);
    feed.publish(page(10, 1n, 2n, 3n));
    feed.publish(page(20, 4n));
    expect(woken).toBe(2);
    expect(reader.next(2)?.map(idOf)).toEqual(['1@10', '2@10']);
    expect(reader.next(10)?.map(idOf)).toEqual(['3@10']);
    expect(reader.next(10)?.map(idOf)).toEqual(['4@20']);
    expect(reader.next(10)).toEqual([]);
  });

  it('rows that leave the bounded log are lost to a slow reader, and to no other', () => {
    const feed = new FiredFeed();
    const slow = feed.open(undefined, () => {});
    const fast = feed.open(undefined, () => {});
    for (let turn = 0; turn < 2; turn++) feed.publish(half());
    while ((fast.next(100_000)?.length ?? 0) > 0);
    expect(slow.next(1)).toHaveLength(1);
    feed.publish(half());
    expect(slow.next(1)).toBeUndefined();
    expect(fast.next(1)).toHaveLength(1);
  });

  it('one reader more than the limit is refused until another one closes', () => {
    const feed = new FiredFeed();
    const readers = Array.from({ length: FEED_READERS_MAX }, () => feed.open(undefined, () => {}));
    expect(() => feed.open(undefined, () => {})).toThrow(/clients follow the fired windows/);
    readers[0]?.close();
    feed.open(undefined, () => {});
  });
});

describe('stream of fired windows', () => {
  it('a client gets an event for each window that it asked for, with ids that it resumes at', async () => {
    const feed = new FiredFeed();
    const first = client(feed, { only: 2n });
    feed.publish(page(0, 1n, 2n));
    feed.publish(page(10, 2n));
    await turns(5);
    expect(first.windows()).toEqual(['2@0', '2@10']);
    expect(first.ids()).toEqual(['e1-2', 'e1-3']);
    expect(first.state.text).toContain('event: window\ndata: {"at":"2@0"}\n\n');
    first.stream?.closed();
    const again = client(feed, { lastEventId: 'e1-2' });
    await turns(5);
    expect(again.windows()).toEqual(['2@10']);
    expect(again.state.text).not.toContain('gap');
  });

  it.each(['e0-2', 'e1-99', 'e1-x', 'nonsense'])(
    'a client that resumes at the unknown place %s is told that windows may be missing',
    async (lastEventId) => {
      const feed = new FiredFeed();
      const one = client(feed, { lastEventId });
      expect(one.state.text).toContain('event: gap\n');
      feed.publish(page(0, 1n));
      await turns(5);
      expect(one.windows()).toEqual(['1@0']);
    },
  );

  it('a client that reads too slowly is dropped with the reason, and its place is free again', async () => {
    const feed = new FiredFeed();
    const slow = client(feed, { room: 2 });
    feed.publish(page(0, 1n));
    await turns(5);
    expect(slow.windows()).toEqual(['1@0']);
    for (let turn = 0; turn < 3; turn++) feed.publish(half());
    await turns(5);
    expect(slow.windows()).toEqual(['1@0']);
    slow.state.room = Number.POSITIVE_INFINITY;
    slow.stream?.writable();
    await turns(5);
    expect(slow.state.text).toMatch(/event: dropped\ndata: \{"code":"slow_client","reason":".+"\}\n\n$/);
    expect(slow.state.ended).toBe(true);
    for (let n = 0; n < FEED_READERS_MAX; n++) feed.open(undefined, () => {});
  });
});
