/** Output of results: no result leaves before the changelog up to it is durable, and the changelog
 *  records results as sent exactly after the sinks have them. */
import { describe, expect, it } from 'vitest';
import { coreError } from '../../../src/core/errors.ts';
import { silentLogger } from '../../../src/core/log.ts';
import { Outlet } from '../../../src/engine/output/outlet.ts';
import type { WindowSink } from '../../../src/engine/output/sink/port.ts';
import { Stages } from '../../../src/engine/stages.ts';
import type { StateFiring } from '../../../src/engine/state/port.ts';
import { manyRows, TestFiring, windowBounds } from '../../contract/fired-kit.ts';
import { tickingClock } from '../../property/engine-kit.ts';

/** Promise that the test settles with `open` or `fail`. */
class Deferred {
  open: () => void = () => {};
  fail: (thrown: unknown) => void = () => {};
  readonly passed: Promise<void>;
  constructor() {
    this.passed = new Promise((resolve, reject) => {
      this.open = resolve;
      this.fail = reject;
    });
  }
}

class FoundFiring extends TestFiring implements StateFiring {
  get isClosed(): boolean {
    return this.closed > 0;
  }
  async find(): Promise<readonly never[]> {
    return [];
  }
}

const firing = (end: number): FoundFiring =>
  new FoundFiring({ bounds: windowBounds(end - 10, end), rows: manyRows(3, end), rowCount: 3 });

/** Waits until all work that can run has run. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function outletOf() {
  const gates: { readonly durable: Deferred[]; readonly written: Deferred[] } = { durable: [], written: [] };
  const events: string[] = [];
  const gated = (of: Deferred[]): Promise<void> => {
    const gate = new Deferred();
    of.push(gate);
    return gate.passed;
  };
  const sink: WindowSink = {
    name: 'gated',
    writeRowsMax: 100,
    migrate: async () => {},
    check: async () => {},
    write: async (pages) => {
      const ends = pages.map(({ bounds }) => (bounds.kind === 'window' ? bounds.end : 0));
      events.push(`write ${ends}`);
      await gated(gates.written);
      events.push(`written ${ends}`);
    },
    read: async function* () {},
  };
  const outlet = new Outlet({
    sinks: [sink],
    checkpointer: {
      durable: () => gated(gates.durable),
      fired: (frontier) => void events.push(`fired ${frontier}`),
    },
    clock: tickingClock(),
    log: silentLogger,
    sleep: async () => {},
    stages: new Stages(tickingClock()),
    onWritten: () => {},
  });
  return { outlet, gates, events };
}

describe('result outlet', () => {
  it('results leave once their changelog is durable, and are recorded as sent once the sink has them', async () => {
    const { outlet, gates, events } = outletOf();
    outlet.take([firing(10)], 12);
    await settled();
    expect(events).toEqual([]);
    expect(outlet.waitingRows).toBe(3);
    gates.durable[0]?.open();
    await settled();
    expect(events).toEqual(['write 10']);
    gates.written[0]?.open();
    await outlet.flushed();
    expect(events).toEqual(['write 10', 'written 10', 'fired 12']);
    expect(outlet.waitingRows).toBe(0);
  });

  it('results leave in firing order, each after its own part of the changelog', async () => {
    const { outlet, gates, events } = outletOf();
    outlet.take([firing(10)], 10);
    outlet.take([firing(20)], 20);
    await settled();
    gates.durable[1]?.open();
    await settled();
    expect(events).toEqual([]);
    gates.durable[0]?.open();
    await settled();
    gates.durable[1]?.open();
    await settled();
    gates.written[0]?.open();
    await settled();
    gates.written[1]?.open();
    await outlet.flushed();
    expect(events).toEqual(['write 10', 'written 10', 'fired 10', 'write 20', 'written 20', 'fired 20']);
  });

  it('results that were taken without a watermark leave without a record in the changelog', async () => {
    const { outlet, gates, events } = outletOf();
    outlet.take([firing(10)], undefined);
    await settled();
    gates.durable[0]?.open();
    await settled();
    gates.written[0]?.open();
    await outlet.flushed();
    expect(events).toEqual(['write 10', 'written 10']);
  });

  it('results never leave if the changelog cannot be written, and the run ends with that error', async () => {
    const { outlet, gates, events } = outletOf();
    const one = firing(10);
    outlet.take([one], 10);
    await settled();
    gates.durable[0]?.fail(coreError('internal', 'the disk is gone'));
    await expect(outlet.flushed()).rejects.toThrow('the disk is gone');
    await expect(outlet.room(new AbortController().signal)).rejects.toThrow('the disk is gone');
    outlet.take([firing(20)], 20);
    await settled();
    expect(events).toEqual([]);
    expect(one.isClosed).toBe(true);
    expect(outlet.waitingRows).toBe(0);
  });

  it('results of an aborted run are not recorded as sent', async () => {
    const { outlet, gates, events } = outletOf();
    outlet.take([firing(10)], 10);
    await settled();
    gates.durable[0]?.open();
    await settled();
    outlet.stop();
    gates.written[0]?.open();
    await settled();
    await settled();
    expect(events).toEqual(['write 10', 'written 10']);
  });
});
