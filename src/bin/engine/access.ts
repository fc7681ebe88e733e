/** Access control of the engine's HTTP interface. */
import type { RequestGate } from '../../access/request.ts';
import type { CommandContext } from '../../shell/command.ts';
import { type ACCESS_SETTINGS, accessGate, warnOfExposure } from '../../shell/servers/access.ts';

/** Builds the gate; undefined: every client may read every window. Warns if the address is exposed.
 *  @throws usage, bad_value, bad_file */
export function engineGate(context: CommandContext<typeof ACCESS_SETTINGS>): RequestGate | undefined {
  const { metrics, settings } = context;
  warnOfExposure(context, [settings.listen]);
  return accessGate(context, {
    logsAllowed: false,
    counters: () => ({
      decisions: metrics.counter(
        'engine_auth_decisions_total',
        'Requests by authentication scheme and outcome.',
        ['scheme', 'outcome'],
      ),
      reloads: metrics.counter('engine_auth_reloads_total', 'Reloads of credential files after a change.', [
        'file',
        'outcome',
      ]),
    }),
  });
}
