/** Worker thread of `millrace consumer`: a share of its instances. */
import { RegistryClient } from '../../serde/client.ts';
import type { ThreadRequests } from '../../serde/shared-client.ts';
import { runThread } from '../../shell/threads/worker.ts';
import { UNKNOWN_ID_MS } from '../registry-clients/shared.ts';
import { consumerPlan } from './plan.ts';
import { exportReader, loadPinned, type PinnedVersion } from './reader-schema.ts';
import { Readers, type SharedRun } from './readers.ts';
import type { ConsumerContext } from './settings.ts';

export interface ConsumerJob {
  readonly shared: SharedRun;
  readonly instances: readonly number[];
  readonly instancesAll: number;
  readonly threads: number;
  /** Reader schema by its id; its text comes from the registry client of the process. */
  readonly reader: PinnedVersion | undefined;
}

/** State in a thread's reports: counts since its start, and the reason of a held partition. */
export interface ConsumerState {
  readonly read: number;
  readonly failed: number;
  readonly selected: number;
  readonly held: string | undefined;
}

export interface ConsumerResult {
  readonly unseenFields: readonly string[];
}

await runThread<ConsumerContext['settings'], ConsumerJob>(async (context) => {
  const { job, clock, metrics } = context;
  const client = new RegistryClient({
    requests: context.registry as ThreadRequests,
    clock,
    metrics,
    unknownForMs: UNKNOWN_ID_MS,
    sharers: job.threads,
  });
  const reader = job.reader === undefined ? undefined : await loadPinned(client, job.reader);
  if (reader !== undefined) exportReader(context, reader);
  const tally = { read: 0, failed: 0, selected: 0 };
  let readers: Readers | undefined;
  context.onReport((): ConsumerState => ({ ...tally, held: readers?.heldReason() }));
  readers = await Readers.open({
    context,
    plan: consumerPlan(context.settings),
    client,
    reader,
    shared: job.shared,
    instances: job.instances,
    instancesAll: job.instancesAll,
    writeText: async (text) => void (await context.ask(text)),
    onRows: (rows, failed, selected) => {
      tally.read += rows;
      tally.failed += failed;
      tally.selected += selected;
    },
  });
  context.setReady();
  await readers.run();
  return { unseenFields: readers.unseenFields } satisfies ConsumerResult;
});
