/** Output of firings: when they may leave, when the changelog records them, and the cost of a
 *  burst. */

import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/core/log.ts';
import { Outlet, type OutletParts } from '../../../src/engine/output/outlet.ts';
import type { WindowSink } from '../../../src/engine/output/sink/port.ts';
import { SINK_FIRINGS_WAITING_MAX } from '../../../src/engine/output/sink/writer.ts';
import { Stages } from '../../../src/engine/stages.ts';
import type { StateFiring } from '../../../src/engine/state/port.ts';
import type { FiredPage } from '../../../src/engine/window/firing.ts';
import { manyRows, TestFiring, windowBounds } from '../../contract/fired-kit.ts';
import { drawFrom, tickingClock } from '../../property/engine-kit.ts';
import { turn } from '../../wait.ts';

class OutgoingFiring extends TestFiring implements StateFiring {
  get isClosed(): boolean {
    return this.closed > 0;
  }
  async find(): Promise<readonly never[]> {
    return [];
  }
}

/** Firing of one row whose window ends at `end`. */
const ending = (end: number): OutgoingFiring =>
  new OutgoingFiring({ bounds: windowBounds(end - 10, end), rows: manyRows(1, end + 1), rowCount: 1 });

/** Sink that waits for `turns()` turns of the event loop before each write. */
class SlowSink implements WindowSink {
  readonly name = 'slow';
  readonly writeRowsMax = 50;
  readonly ends: number[] = [];
  failure: unknown;
  private readonly turns: () => number;
  constructor(turns: () => number) {
    this.turns = turns;
  }
  async migrate(): Promise<void> {}
  async check(): Promise<void> {}
  async write(pages: readonly FiredPage[]): Promise<void> {
    for (let left = this.turns(); left > 0; left--) await turn();
    if (this.failure !== undefined) throw this.failure;
    for (const { bounds } of pages) if (bounds.kind === 'window') this.ends.push(bounds.end);
  }
  async *read(): AsyncIterable<never> {}
}

function setUp(sinks: readonly SlowSink[], over: Partial<OutletParts['checkpointer']> = {}) {
  const calls = { durable: 0, fired: [] as number[] };
  const outlet = new Outlet({
    sinks,
    checkpointer: {
      durable: async () => {
        calls.durable++;
        await turn();
      },
      fired: (frontier) => calls.fired.push(frontier),
      ...over,
    },
    clock: tickingClock(),
    log: silentLogger,
    sleep: async () => {},
    stages: new Stages(tickingClock()),
    onWritten: () => {},
  });
  return { outlet, calls };
}

const forever = new AbortController().signal;

describe('burst of firings', () => {
  it('the outlet syncs the changelog a few times per burst and not once per firing', async () => {
    const sink = new SlowSink(() => 1);
    const { outlet, calls } = setUp([sink]);
    const burst = 20_000;
    const firings = Array.from({ length: burst }, (_, i) => ending(i + 1));
    firings.forEach((one, i) => {
      outlet.take([one], i + 1);
    });
    expect(outlet.waitingRows).toBe(burst);
    expect(outlet.leaving.length).toBe(burst);
    await outlet.flushed();
    expect(sink.ends).toEqual(firings.map((_, i) => i + 1));
    expect(firings.every((one) => one.closed === 1)).toBe(true);
    expect(calls.durable).toBeLessThanOrEqual(2);
    expect(calls.fired.length).toBeLessThanOrEqual(2);
    expect(calls.fired.at(-1)).toBe(burst);
    expect(outlet.waitingRows).toBe(0);
    expect(outlet.leaving).toEqual([]);
  });

  it('the outlet sends nothing before its changelog is durable, and records nothing before every sink has written it', async () => {
    const draw = drawFrom(7);
    const sinks = [new SlowSink(() => draw(4)), new SlowSink(() => draw(4))];
    let appended = 0;
    let durable = 0;
    const fired: number[] = [];
    const taken: number[] = [];
    const { outlet } = setUp(sinks, {
      durable: async () => {
        const upTo = appended;
        for (let left = draw(3); left > 0; left--) await turn();
        durable = Math.max(durable, upTo);
      },
      fired: (frontier) => {
        fired.push(frontier);
        for (const { ends } of sinks)
          expect(ends.slice(0, taken.filter((end) => end <= frontier).length)).toEqual(
            taken.filter((end) => end <= frontier),
          );
      },
    });
    const sound = sinks.map((sink) => {
      const write = sink.write.bind(sink);
      sink.write = async (pages) => {
        for (const { bounds } of pages)
          if (bounds.kind === 'window') expect(bounds.end).toBeLessThanOrEqual(durable);
        await write(pages);
      };
      return sink;
    });
    for (let end = 1; end <= 200; end++) {
      appended = end;
      taken.push(end);
      outlet.take([ending(end)], end);
      if (draw(3) === 0) await turn();
      await outlet.room(forever);
    }
    await outlet.flushed();
    for (const { ends } of sound) expect(ends).toEqual(taken);
    expect(fired).toEqual([...fired].sort((a, b) => a - b));
    expect(fired.at(-1)).toBe(200);
    expect(fired.length).toBeGreaterThan(2);
  });

  it('the outlet records the watermark of logged firings, and nothing for later unlogged firings', async () => {
    const { outlet, calls } = setUp([new SlowSink(() => 0)]);
    outlet.take([ending(10)], 10);
    outlet.take([ending(20)], undefined);
    await outlet.flushed();
    expect(calls.fired).toEqual([10]);
    outlet.take([ending(30)], undefined);
    await outlet.flushed();
    expect(calls.fired).toEqual([10]);
  });

  it('the outlet waits for the changelog when it has more firings than its limit', async () => {
    let go = (): void => {};
    const held = new Promise<void>((resolve) => {
      go = resolve;
    });
    const { outlet } = setUp([new SlowSink(() => 0)], { durable: () => held });
    for (let end = 1; end <= SINK_FIRINGS_WAITING_MAX; end++) outlet.take([ending(end)], end);
    await outlet.room(forever);
    outlet.take([ending(SINK_FIRINGS_WAITING_MAX + 1)], SINK_FIRINGS_WAITING_MAX + 1);
    let open = false;
    const room = outlet.room(forever).then(() => {
      open = true;
    });
    await turn();
    await turn();
    expect(open).toBe(false);
    go();
    await room;
    await outlet.flushed();
  });

  it('the outlet releases everything when the changelog or a sink fails, and reports the reason', async () => {
    const broken = setUp([new SlowSink(() => 0)], {
      durable: () => Promise.reject(new Error('the disk is full')),
    });
    const firings = [ending(10), ending(20)];
    for (const one of firings) broken.outlet.take([one], 20);
    await expect(broken.outlet.flushed()).rejects.toThrow('the disk is full');
    const late = ending(30);
    broken.outlet.take([late], 30);
    await expect(broken.outlet.room(forever)).rejects.toThrow('the disk is full');
    expect([...firings, late].map((one) => one.closed)).toEqual([1, 1, 1]);
    expect(broken.calls.fired).toEqual([]);

    const sink = new SlowSink(() => 0);
    sink.failure = new Error('no such table');
    const failed = setUp([sink]);
    failed.outlet.take([ending(10)], 10);
    await expect(failed.outlet.flushed()).rejects.toThrow('no such table');
    expect(failed.calls.fired).toEqual([]);
  });

  it('a stopped outlet discards waiting firings and writes nothing to the changelog', async () => {
    const sink = new SlowSink(() => 5);
    const { outlet, calls } = setUp([sink]);
    const firings = [ending(10), ending(20)];
    for (const one of firings) outlet.take([one], 20);
    outlet.stop();
    await expect(outlet.flushed()).rejects.toMatchObject({ code: 'sink_failed' });
    expect(firings.map((one) => one.closed)).toEqual([1, 1]);
    expect(calls.fired).toEqual([]);
  });
});
