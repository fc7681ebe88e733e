/** Gauges, lines and the live table of a running rollout. */
import type { Rollout } from '../../registry/rollout/run.ts';
import type { CommandContext } from '../../shell/command.ts';
import type { ROLLOUT_SETTINGS } from './settings.ts';
import { fleetTable } from './table.ts';

type RolloutOptions = ConstructorParameters<typeof Rollout>[0];
type Watch = Required<Pick<RolloutOptions, 'onSample' | 'onEntry'>> & { readonly done: () => void };

/** @param title line above the table */
export function watchRollout(context: CommandContext<typeof ROLLOUT_SETTINGS>, title: string): Watch {
  const { metrics } = context;
  const errors = metrics.gauge('rollout_errors', 'Records that the fleet could not read.');
  const lag = metrics.gauge('rollout_lag_records', 'Records that the groups have not read yet.');
  const rate = metrics.gauge('rollout_records_per_second', 'Rate of the fleet.', ['direction']);
  const instances = metrics.gauge('rollout_instances', 'Running instances by version.', ['role', 'version']);
  let note = '';
  let fleet: Parameters<Watch['onSample']>[1] = [];
  let counted = 0;
  const progress = context.progress({
    what: 'rollout',
    unit: 'records',
    note: () => note,
    table: (room) => fleetTable(title, fleet, room),
  });
  return {
    onEntry: ({ atMs, text }) => context.say(`[${(atMs / 1000).toFixed(1).padStart(6)} s] ${text}`),
    onSample: (sample, slots) => {
      fleet = slots;
      errors.set(sample.errors);
      lag.set(sample.lag);
      rate.set(sample.producedPerSecond, rate.series('produced'));
      rate.set(sample.consumedPerSecond, rate.series('consumed'));
      for (const role of ['consumer', 'producer'] as const)
        for (const side of ['old', 'new'] as const) {
          const running = slots.filter(
            (one) => one.slot.role === role && one.side === side && /running|replacing/.test(one.state),
          );
          instances.set(running.length, instances.series(role, side));
        }
      const isNew = slots.filter(({ side }) => side === 'new').length;
      note = `lag ${sample.lag}, ${isNew} of ${slots.length} instances new`;
      progress.set(sample.consumed);
      progress.error(sample.errors - counted);
      counted = sample.errors;
    },
    done: () => progress.done(),
  };
}
