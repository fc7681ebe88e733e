/** Note at the end of the engine's progress line: `watermark lag 12s, 1.20M keys open, 3 late,
 *  limited by: …` */

import type { WatermarkReport } from '../../engine/api/routes.ts';
import { limitedBy, limitedText, type Stages, type StageTimes } from '../../engine/stages.ts';
import { shortDuration, shortNumber } from '../../shell/terminal/progress.ts';

/** Shortest period, in ms, over which the limiting stage is determined. */
const WINDOW_MS = 5_000;

export interface ProgressSource {
  /** Undefined until the engine has restored its state. */
  watermark(): WatermarkReport | undefined;
  openKeys(): number;
  readonly stages: Stages;
}

export function progressNote({
  watermark,
  openKeys,
  stages,
}: ProgressSource): (over: 'last' | 'whole') => string {
  let marks: readonly StageTimes[] = [];
  const limited = (over: 'last' | 'whole'): string => {
    const times = stages.times();
    // The newest mark that is old enough, or the oldest existing mark.
    const old = marks.filter(({ wallMs }) => times.wallMs - wallMs >= WINDOW_MS).at(-1) ?? marks[0];
    marks = [...marks.filter((mark) => old === undefined || mark.wallMs >= old.wallMs), times];
    return limitedText(limitedBy(times, over === 'whole' ? undefined : old));
  };
  return (over) => {
    const report = watermark();
    const lag = report?.lag_ms ?? null;
    return [
      `watermark lag ${lag === null ? '-' : shortDuration(lag)}`,
      `${shortNumber(openKeys())} keys open`,
      `${shortNumber(report?.dropped_late ?? 0)} late`,
      limited(over),
    ].join(', ');
  };
}
