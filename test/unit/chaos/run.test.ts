/** Execution of a plan under virtual time: order within a lane, overlap of lanes, limits and
 *  stops. */
import { describe, expect, it } from 'vitest';
import { type FaultOutcome, outcomeText, runFaults } from '../../../src/chaos/run.ts';
import type { PlannedFault } from '../../../src/chaos/schedule.ts';
import { sleep } from '../../../src/core/clock.ts';
import { VirtualClock } from '../../../src/sim/clock.ts';

const fault = (id: number, lane: string, atMs: number): PlannedFault => ({
  ...{ id, lane, atMs, kind: 'kill', target: lane, durationMs: 100 },
});

interface Played {
  readonly outcomes: readonly FaultOutcome[];
  readonly began: ReadonlyArray<readonly [id: number, atMs: number]>;
}

/** @param lastsMs time that a fault takes; Infinity: until its signal is aborted */
async function play(
  plan: readonly PlannedFault[],
  lastsMs: (id: number) => number,
  stopMs = Number.POSITIVE_INFINITY,
): Promise<Played> {
  const clock = new VirtualClock();
  const began: Array<readonly [number, number]> = [];
  const stop = new AbortController();
  if (Number.isFinite(stopMs)) clock.after(stopMs, () => stop.abort());
  const running = runFaults({
    ...{ plan, clock, signal: stop.signal, faultMsMax: 10_000 },
    apply: async ({ id }, signal) => {
      began.push([id, clock.monotonicMs()]);
      await sleep(clock, Math.min(lastsMs(id), 1e9), signal);
      if (signal.aborted) throw new Error('it met nothing');
      if (lastsMs(id) === 0) throw new Error('its target is missing');
      return `evidence ${id}`;
    },
  });
  await clock.advance(100_000);
  return { outcomes: await running, began };
}

describe('execution of a plan', () => {
  it('faults of a lane follow one another, and faults of other lanes begin at their times', async () => {
    const plan = [fault(1, 'relay', 100), fault(2, 'orders', 150), fault(3, 'relay', 200)];
    const { outcomes, began } = await play(plan, (id) => (id === 1 ? 5000 : 50));
    expect(began).toEqual([
      [1, 100],
      [2, 150],
      // The planned pause is 200 - 100 - 100 ms.
      [3, 5100],
    ]);
    expect(outcomes.map(({ applied, detail }) => [applied, detail])).toEqual([
      [true, 'evidence 1'],
      [true, 'evidence 2'],
      [true, 'evidence 3'],
    ]);
    expect(outcomes[0]).toMatchObject({ startMs: 100, endMs: 5100 });
  });

  it('a fault that is late begins after the planned pause, and after 5 s at most', async () => {
    const plan = [fault(1, 'relay', 0), fault(2, 'relay', 1100), fault(3, 'relay', 21_200)];
    const { began } = await play(plan, () => 9000);
    // Fault 2 was planned 1 s after the end of fault 1, and fault 3 long after the end of fault 2.
    expect(began.map(([, atMs]) => atMs)).toEqual([0, 10_000, 24_000]);
  });

  it('a fault that fails or exceeds its limit is not applied, and the next fault of its lane begins', async () => {
    const plan = [fault(1, 'relay', 0), fault(2, 'relay', 10), fault(3, 'relay', 20)];
    const { outcomes, began } = await play(plan, (id) => [0, Number.POSITIVE_INFINITY, 50][id - 1] as number);
    expect(began.map(([, atMs]) => atMs)).toEqual([0, 10, 10_010]);
    expect(outcomes.map(({ applied }) => applied)).toEqual([false, false, true]);
    expect(outcomes.map(({ detail }) => detail)).toEqual([
      'its target is missing',
      'it met nothing (after 10000 ms)',
      'evidence 3',
    ]);
    expect(outcomeText(outcomes[0] as FaultOutcome)).toBe(
      'kill of relay for 0.1 s: NOT APPLIED, its target is missing',
    );
  });

  it('no fault begins after a stop, and each planned fault still has an outcome', async () => {
    const plan = [fault(1, 'relay', 100), fault(2, 'relay', 200), fault(3, 'orders', 900)];
    const { outcomes, began } = await play(plan, () => 1000, 500);
    expect(began.map(([id]) => id)).toEqual([1]);
    expect(outcomes.map(({ fault: { id }, applied }) => [id, applied])).toEqual([
      [1, false],
      [2, false],
      [3, false],
    ]);
  });
});
