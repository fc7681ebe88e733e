/** `millrace reconcile` of configured pairs: one complete comparison. */
import { EXIT } from '../../core/errors.ts';
import type { PairConfig } from '../../outbox/reconcile/pairs/pair.ts';
import { comparePairs } from '../../outbox/reconcile/pairs/run.ts';
import { pairsText } from '../../outbox/reconcile/report.ts';
import { connectDatabases, throwIfDrained, waitSettled } from './parts.ts';
import type { Context } from './settings.ts';

export async function reconcilePairs(
  context: Context,
  pairs: readonly PairConfig[],
  paymentsSchema: string,
  range: { readonly from: Date | undefined; readonly to: Date | undefined },
): Promise<number> {
  const { settings, metrics } = context;
  const pools = await connectDatabases(context, { paymentsSchema });
  context.setReady();
  const deltas = metrics.gauge(
    'reconcile_pair_deltas',
    'Number of ids in each class of delta of the pairs compared so far.',
    ['pair', 'class'],
  );
  const results = await comparePairs({
    pools,
    pairs,
    idsMax: settings.ids,
    fromMs: range.from?.getTime(),
    toMs: range.to?.getTime(),
    lateAfterMs: settings['late-after'] === 0 ? undefined : settings['late-after'],
    settleMs: settings.settle,
    wait: (ms) => waitSettled(context, ms),
    onCompared: (pair, name, count) => {
      throwIfDrained(context);
      deltas.set(count, deltas.series(pair, name));
    },
  });
  const holds = results.every((one) => one.holds);
  context.print(pairsText(results), { holds, pairs: results });
  return holds ? EXIT.done : EXIT.no;
}
