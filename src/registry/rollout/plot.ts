/** Plot of a rollout: rate, lag and errors over time, with a mark at each entry of the timeline. */
import { type PlotPanel, type Shade, timelinePlot } from '../../core/plot/timeline.ts';
import type { FleetSample, TimelineEntry } from './model.ts';

const KINDS: Readonly<Record<TimelineEntry['kind'], Shade>> = {
  step: ['#2b6cb0', '#63b3ed'],
  alarm: ['#c53030', '#fc8181'],
  rollback: ['#975a16', '#f6ad55'],
  phase: ['#718096', '#a0aec0'],
};

interface Panel extends Omit<PlotPanel, 'points'> {
  readonly of: (sample: FleetSample) => number;
}

const PANELS: readonly Panel[] = [
  {
    title: 'produced, records/s',
    name: 'produced',
    shade: ['#2f855a', '#68d391'],
    of: (sample) => sample.producedPerSecond,
  },
  {
    title: 'consumed by all groups, records/s',
    name: 'consumed',
    shade: ['#276749', '#9ae6b4'],
    of: (sample) => sample.consumedPerSecond,
  },
  { title: 'lag, records', name: 'lag', shade: ['#6b46c1', '#b794f4'], of: (sample) => sample.lag },
  {
    title: 'unreadable records since the start',
    name: 'errors',
    shade: ['#c53030', '#fc8181'],
    of: (sample) => sample.errors,
  },
];

/** Draws a rollout. @param title heading of the plot */
export function rolloutPlot(
  title: string,
  samples: readonly FleetSample[],
  timeline: readonly TimelineEntry[],
): string {
  const panels = PANELS.map(({ of, ...panel }) => ({
    ...panel,
    points: samples.map((sample) => ({ atMs: sample.atMs, value: of(sample) })),
  }));
  return timelinePlot({ title, panels, kinds: KINDS, marks: timeline });
}
