/** GET /windows with open=true while results wait: rows that have fired but are not durable in the
 *  sink are still returned. */
import { expect, it } from 'vitest';
import { engineRoutes } from '../../../src/engine/api/routes.ts';
import type { Job } from '../../../src/engine/job.ts';
import type { Engine } from '../../../src/engine/run.ts';
import type { HttpRequest } from '../../../src/io/http/port.ts';
import { SimDisk } from '../../../src/sim/disk.ts';
import { engineIn, MemorySink, MemorySource, type TestEvent } from '../../property/engine-kit.ts';

const JOB: Job = {
  topic: 't',
  window: 'tumbling',
  sizeMs: 10,
  skewMs: 0,
  latenessMs: 0,
  watermark: 'partition',
};
const event = (eventTs: bigint): TestEvent => ({ partition: 0, accountId: 1n, value: 1n, eventTs });

/** Sink whose writes wait until `release`. */
class HeldSink extends MemorySink {
  isWriting = false;
  release: () => void = () => {};
  private readonly held = new Promise<void>((resolve) => {
    this.release = resolve;
  });

  override async write(pages: Parameters<MemorySink['write']>[0]): Promise<void> {
    this.isWriting = true;
    await this.held;
    return super.write(pages);
  }
}

interface Page {
  /** Start, count, and `final` of each window of account 1. */
  readonly rows: readonly (readonly [string, string, boolean | undefined])[];
  /** Query of the next page. */
  readonly next: string | undefined;
}

async function pageOf(engine: Engine, query: string): Promise<Page> {
  const route = engineRoutes(() => engine, '1.2.3').find(({ path }) => path === '/windows/{key}');
  const request = { params: { key: '1' }, query: new URLSearchParams(query), header: () => [] };
  const answer = await route?.handler(request as unknown as HttpRequest);
  const rows = JSON.parse(String(answer?.body)) as { window_start: string; count: string; final?: boolean }[];
  return {
    rows: rows.map((one) => [one.window_start, one.count, one.final]),
    next: /^<[^?]*\?(.*)>; rel="next"$/.exec(answer?.headers?.['link'] ?? '')?.[1],
  };
}

const asked = async (engine: Engine, query: string) => (await pageOf(engine, query)).rows;

it('GET /windows returns rows that have fired and wait for the sink as not final', async () => {
  const sink = new HeldSink();
  const engine = engineIn(
    {
      job: JOB,
      partitions: 1,
      shards: 2,
      disk: new SimDisk(),
      sink,
      source: new MemorySource([event(1n), event(2n), event(12n), event(31n)], 1, 3),
      checkpointIntervalMs: 1,
    },
    { stop: 'end' },
  );
  await engine.restore();
  const ended = engine.run(new AbortController().signal);
  while (!sink.isWriting || engine.firedTo < 31) await new Promise((resolve) => setImmediate(resolve));
  expect(await asked(engine, '')).toEqual([]);
  expect(await asked(engine, 'open=true')).toEqual([
    ['0', '2', false],
    ['10', '1', false],
    ['30', '1', false],
  ]);
  sink.release();
  await ended;
  expect(await asked(engine, 'open=true')).toEqual([
    ['0', '2', true],
    ['10', '1', true],
    ['30', '1', false],
  ]);
});

it('GET /windows returns all open windows of a key page by page, however many there are', async () => {
  const engine = engineIn(
    {
      job: { ...JOB, window: 'sliding', sizeMs: 2500, slideMs: 1 },
      partitions: 1,
      shards: 1,
      disk: new SimDisk(),
      sink: new MemorySink(),
      source: new MemorySource([event(1n), event(2n)], 1, 3),
      checkpointIntervalMs: 1,
    },
    { stop: 'end' },
  );
  await engine.restore();
  await engine.run(new AbortController().signal);
  const starts: number[] = [];
  let open = 0;
  for (let query: string | undefined = 'open=true&limit=10000'; query !== undefined; ) {
    const { rows, next }: Page = await pageOf(engine, query);
    starts.push(...rows.map(([start]) => Number(start)));
    open += rows.filter(([, , isFinal]) => isFinal === false).length;
    query = next;
  }
  // The windows that contain 1 or 2; the window that ends at 2 has fired.
  expect(starts).toEqual(Array.from({ length: 2501 }, (_, i) => i - 2498));
  expect(open).toBe(2500);
});
