/** Worker thread of `millrace consumer -replay`. */
import type { Piece } from '../../registry/replay/pieces.ts';
import { RegistryClient } from '../../serde/client.ts';
import type { ThreadRequests } from '../../serde/shared-client.ts';
import { runThread } from '../../shell/threads/worker.ts';
import { UNKNOWN_ID_MS } from '../registry-clients/shared.ts';
import { replayPlan } from './plan.ts';
import { exportReader, loadPinned, type PinnedVersion } from './reader-schema.ts';
import { openReplay, type PieceCells } from './replay-part.ts';
import type { ConsumerContext } from './settings.ts';

export interface ReplayJob {
  readonly pieces: readonly Piece[];
  readonly next: PieceCells;
  readonly reader: PinnedVersion;
  readonly threads: number;
}

await runThread<ConsumerContext['settings'], ReplayJob>(async (context) => {
  const { job, clock, metrics, number } = context;
  const client = new RegistryClient({
    requests: context.registry as ThreadRequests,
    clock,
    metrics,
    unknownForMs: UNKNOWN_ID_MS,
    sharers: job.threads,
  });
  const reader = await loadPinned(client, job.reader);
  exportReader(context, reader);
  const { pieces, next } = job;
  const part = await openReplay({
    context,
    plan: replayPlan(context.settings),
    client,
    reader,
    pieces,
    next,
    number,
  });
  context.onReport(part.progress);
  context.setReady();
  return part.run();
});
