/** Plot of a rollout as SVG: rate, lag and errors over time, with a line at each upgrade step. */
import type { FleetSample, TimelineEntry } from './model.ts';

const WIDTH = 960;
const PANEL = 130;
const LEFT = 90;
const RIGHT = 20;
const GAP = 34;
const TOP = 40;
const COLORS = { step: '#2b6cb0', alarm: '#c53030', rollback: '#b7791f', phase: '#a0aec0' } as const;

interface Panel {
  readonly title: string;
  readonly color: string;
  readonly of: (sample: FleetSample) => number;
}

const PANELS: readonly Panel[] = [
  { title: 'produced, records/s', color: '#2f855a', of: (sample) => sample.producedPerSecond },
  { title: 'consumed, records/s', color: '#276749', of: (sample) => sample.consumedPerSecond },
  { title: 'lag, records', color: '#6b46c1', of: (sample) => sample.lag },
  { title: 'unreadable records', color: '#c53030', of: (sample) => sample.errors },
];

const escaped = (text: string): string => text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
const fixed = (value: number): string => String(Math.round(value * 10) / 10);

/** Draws a rollout. @param title heading of the plot */
export function rolloutPlot(
  title: string,
  samples: readonly FleetSample[],
  timeline: readonly TimelineEntry[],
): string {
  const endMs = Math.max(1, ...samples.map(({ atMs }) => atMs), ...timeline.map(({ atMs }) => atMs));
  const x = (atMs: number): number => LEFT + (atMs / endMs) * (WIDTH - LEFT - RIGHT);
  const height = TOP + PANELS.length * (PANEL + GAP) + GAP;
  const marks = timeline.map(({ atMs, kind, text }) => {
    const at = fixed(x(atMs));
    return `<line x1="${at}" x2="${at}" y1="${TOP}" y2="${height - GAP}" stroke="${COLORS[kind]}" stroke-dasharray="3 3"><title>${escaped(text)}</title></line>`;
  });
  const panels = PANELS.map((panel, index) => panelOf(panel, TOP + index * (PANEL + GAP), samples, x));
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" font-family="sans-serif" font-size="12">`,
    `<rect width="${WIDTH}" height="${height}" fill="#fff"/>`,
    `<text x="${LEFT}" y="22" font-size="15">${escaped(title)}</text>`,
    ...marks,
    ...panels,
    `<text x="${WIDTH - RIGHT}" y="${height - 8}" text-anchor="end">${fixed(endMs / 1000)} s</text>`,
    `<text x="${LEFT}" y="${height - 8}">blue: step, red: alarm, ochre: rollback</text>`,
    '</svg>',
    '',
  ].join('\n');
}

function panelOf(
  { title, color, of }: Panel,
  top: number,
  samples: readonly FleetSample[],
  x: (atMs: number) => number,
): string {
  const most = Math.max(1, ...samples.map(of));
  const y = (value: number): number => top + PANEL - (value / most) * PANEL;
  const points = samples.map((sample) => `${fixed(x(sample.atMs))},${fixed(y(of(sample)))}`).join(' ');
  return [
    `<text x="${LEFT}" y="${top - 6}">${title}</text>`,
    `<text x="${LEFT - 6}" y="${top + 10}" text-anchor="end">${fixed(most)}</text>`,
    `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${top + PANEL}" y2="${top + PANEL}" stroke="#718096"/>`,
    `<polyline fill="none" stroke="${color}" stroke-width="1.5" points="${points}"/>`,
  ].join('\n');
}
