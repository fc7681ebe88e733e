/** Files of a chaos run, and the command that repeats its plan. */
import { closeSync, openSync, writeFileSync } from 'node:fs';
import { extname } from 'node:path';
import { type ChaosReport, chaosPage, chaosPlot, type TargetReport } from '../../chaos/report.ts';
import { faultText, type PlannedFault } from '../../chaos/schedule.ts';
import { type ReplaySettings, replayCommand } from '../../chaos/verdict.ts';
import { coreError } from '../../core/errors.ts';
import type { ChaosContext as Context } from './settings.ts';

const REPORTS = ['.json', '.html', '.svg'];

/** Checks the files before anything is started.
 *  @throws bad_value for a report of another form, not_writable */
export function checkReports({ settings }: Context): void {
  const wrong = (settings.report ?? []).find((path) => !REPORTS.includes(extname(path)));
  if (wrong !== undefined)
    throw coreError('bad_value', `-report=${wrong} has no known ending`, {
      next: `give a file that ends in ${REPORTS.join(', ')}`,
    });
  for (const path of settings.report ?? []) {
    try {
      // Opened for appending: a report that exists keeps its content until the run has ended.
      closeSync(openSync(path, 'a'));
    } catch (cause) {
      throw coreError('not_writable', `cannot write the report ${path}: ${(cause as Error).message}`, {
        next: 'give a path in a folder that exists and can be written',
        cause,
      });
    }
  }
}

export function writeReports(context: Context, title: string, report: ChaosReport | TargetReport): void {
  for (const path of context.settings.report ?? []) {
    const text: Readonly<Record<string, () => string>> = {
      '.json': () => `${JSON.stringify(report, undefined, 2)}\n`,
      '.svg': () => chaosPlot(title, report),
      '.html': () => chaosPage(title, report),
    };
    writeFileSync(path, text[extname(path)]?.() ?? '');
  }
}

/** Settings without addresses, which are secret; JSON leaves undefined values out. */
export const shownSettings = ({ settings }: Context): Readonly<Record<string, unknown>> => ({
  ...settings,
  postgres: undefined,
  'broker-property': undefined,
});

/** Command that repeats the plan. An address of the user is left to the environment: it is
 *  secret. */
export function replayOf({ settings }: Context, plan: readonly PlannedFault[]): string {
  const kinds = [...new Set(plan.map(({ kind }) => kind))];
  const ms = (value: number | undefined): string | undefined =>
    value === undefined ? undefined : `${value}ms`;
  const ofPipeline: ReplaySettings =
    settings.target !== undefined
      ? []
      : [
          ['dup-rate', String(settings['dup-rate'])],
          ['relay', settings.relay],
          ['dedup-ttl', ms(settings['dedup-ttl'])],
          ['unsafe-ttl', settings['unsafe-ttl'] ? 'true' : undefined],
        ];
  return replayCommand([
    ['target', settings.target],
    ['seed', String(settings.seed)],
    ['duration', ms(settings.duration)],
    ['rate', String(settings.rate)],
    ['retry-rate', String(settings['retry-rate'])],
    ...ofPipeline,
    ['faults', kinds.join(',')],
    ['crash-point', kinds.includes('crash') ? settings['crash-point'].join(',') : undefined],
    ['fault-every', ms(settings['fault-every'])],
    ['partitions', settings.target === undefined ? String(settings.partitions) : undefined],
    ['brokers', settings.brokers],
    ['broker-count', settings.brokers === undefined ? String(settings['broker-count']) : undefined],
    ['broker-config', settings['broker-config']],
  ]);
}

/** Prints a plan, a line for each fault, and the command that repeats it. */
export function printPlan(context: Context, plan: readonly PlannedFault[]): void {
  const line = (fault: PlannedFault): string =>
    `${String(fault.id).padStart(4)}  ${(fault.atMs / 1000).toFixed(1).padStart(7)} s  ${faultText(fault)}`;
  context.print(plan.map(line).join('\n'), { plan, replay: replayOf(context, plan) });
}
