/** Reading of a quarantine: records that retention deletes meanwhile, records that are too large,
 *  and a broker that sends nothing. */
import { describe, expect, it } from 'vitest';
import type { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import type { BatchConsumer, BrokerDriver, ConsumeResult } from '../../../../src/io/kafka/port.ts';
import { Scan } from '../../../../src/registry/quarantine/scan.ts';
import { VirtualClock } from '../../../../src/sim/clock.ts';

const TOPIC = 'orders.quarantine';

/** Broker that answers each consume with the next step. */
class ScriptedBroker {
  readonly clock = new VirtualClock();
  low = 0n;
  private readonly steps: Array<
    Partial<ConsumeResult> & { readonly offsets?: readonly number[]; readonly low?: bigint }
  >;
  private readonly high: bigint;

  constructor(high: bigint, steps: ScriptedBroker['steps']) {
    this.high = high;
    this.steps = steps;
  }

  open(): Promise<Scan> {
    const consumer: Partial<BatchConsumer> = {
      assign: async () => {},
      close: async () => {},
      watermarkOffsets: async () => ({ low: this.low, high: this.high }),
      consume: async (into, waitMs) => this.consume(into, waitMs),
    };
    const driver: Partial<BrokerDriver> = { consumer: async () => consumer as BatchConsumer };
    return Scan.open(
      {
        driver: driver as BrokerDriver,
        broker: { brokers: 'scripted:1', clientId: 'test' },
        clock: this.clock,
        log: silentLogger,
        batchRows: 16,
        batchBytes: 4096,
      },
      TOPIC,
      [0],
    );
  }

  private async consume(into: RecordBatch, waitMs: number): Promise<ConsumeResult> {
    into.clear();
    await new Promise<void>((resolve) => this.clock.after(waitMs, resolve));
    const { offsets = [], low = this.low, ...result } = this.steps.shift() ?? {};
    this.low = low;
    for (const offset of offsets)
      into.append({ partition: 0, offset: BigInt(offset), value: Buffer.from('x') });
    return { rowCount: into.rowCount, ends: [], events: [], ...result };
  }

  async read(): Promise<{ readonly seen: readonly number[]; readonly scan: Scan }> {
    const scan = await this.open();
    const seen: number[] = [];
    await this.clock.run(
      scan.run(async (records, isInRange) => {
        for (let row = 0; row < records.rowCount; row++)
          if (isInRange(row)) seen.push(Number(records.columns.offset[row]));
        return true;
      }),
    );
    return { seen, scan };
  }
}

describe('reading to the end', () => {
  it('records that arrive after the start are not read', async () => {
    const { seen, scan } = await new ScriptedBroker(3n, [{ offsets: [0, 1] }, { offsets: [2, 3, 4] }]).read();
    expect(seen).toEqual([0, 1, 2]);
    expect(scan.total).toBe(3);
    expect(scan.deleted).toBe(0);
  });

  it('records that retention deleted before they were read are counted, and gaps of transactions are not', async () => {
    const steps = [{ offsets: [0, 1, 4] }, { offsets: [9], low: 8n }];
    const { seen, scan } = await new ScriptedBroker(10n, steps).read();
    expect(seen).toEqual([0, 1, 4, 9]);
    expect(scan.deleted).toBe(3);
  });

  it('records that retention deleted up to the end are counted', async () => {
    const end = { topic: TOPIC, partition: 0, offset: 12n };
    const { seen, scan } = await new ScriptedBroker(10n, [
      { offsets: [0] },
      { ends: [end], low: 12n },
    ]).read();
    expect(seen).toEqual([0]);
    expect(scan.deleted).toBe(9);
  });

  it('a range whose last offsets have no record ends at the end that the broker reports', async () => {
    const end = { topic: TOPIC, partition: 0, offset: 5n };
    const { seen } = await new ScriptedBroker(5n, [{ offsets: [0] }, { ends: [end] }]).read();
    expect(seen).toEqual([0]);
  });
});

describe('failures', () => {
  it('a record that is larger than a batch is an error that names the flag', async () => {
    const event = {
      code: -10_000,
      name: 'MILLRACE_OVERSIZE',
      message: 'the record at offset 0 is larger than the arena',
      retriable: false,
      fatal: false,
    };
    await expect(new ScriptedBroker(1n, [{ events: [event] }]).read()).rejects.toMatchObject({
      code: 'bad_value',
      next: 'raise -batch-bytes',
    });
  });

  it('a topic that sends nothing before its end is an error after a minute, not a wait for ever', async () => {
    const broker = new ScriptedBroker(1n, []);
    await expect(broker.read()).rejects.toMatchObject({ code: 'timeout' });
    expect(broker.clock.monotonicMs()).toBeGreaterThanOrEqual(60_000);
    expect(broker.clock.monotonicMs()).toBeLessThan(61_000);
  });
});
