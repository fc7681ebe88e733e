/** What the engine's line of progress says behind its counts: `watermark lag 12s, 1.20M keys open,
 *  3 late, limited by: …` */

import type { WatermarkReport } from '../../engine/api/routes.ts';
import { limitedBy, limitedText, type Stages, type StageTimes } from '../../engine/stages.ts';
import { shortDuration, shortNumber } from '../../shell/terminal/progress.ts';

/** What limits is told of the last so many ms at least. */
const WINDOW_MS = 5_000;

export interface Glance {
  /** undefined: it has not restored yet. */
  watermark(): WatermarkReport | undefined;
  openKeys(): number;
  readonly stages: Stages;
}

export function progressNote({ watermark, openKeys, stages }: Glance): (over: 'last' | 'whole') => string {
  let marks: readonly StageTimes[] = [];
  const limited = (over: 'last' | 'whole'): string => {
    const times = stages.times();
    // The newest mark that is old enough, or the oldest there is.
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
