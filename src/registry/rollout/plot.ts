/** Plot of a rollout as SVG: rate, lag and errors over time, with a numbered line at each entry of
 *  the timeline. Colors follow the light or dark scheme of the reader; a renderer without style
 *  sheets shows the light one. */
import type { FleetSample, TimelineEntry } from './model.ts';

const WIDTH = 960;
const PANEL = 120;
const LEFT = 90;
const RIGHT = 20;
const GAP = 40;
const TOP = 78;
/** Least distance of two numbers in a row; where both rows are full, a line has no number. */
const NUMBER_WIDTH = 18;
const NUMBER_ROWS = 2;
const NUMBER_ROW = 13;
const LEGEND_ROW = 17;
const LEGEND_COLUMNS = 2;
/** Entries in the legend at most; further ones are only marked. */
const LEGEND_MAX = 60;
const LEGEND_CHARS_MAX = 62;
/** Labels of the time axis at most. */
const TICKS_MAX = 10;

type Shade = readonly [light: string, dark: string];
const KINDS: Readonly<Record<TimelineEntry['kind'], Shade>> = {
  step: ['#2b6cb0', '#63b3ed'],
  alarm: ['#c53030', '#fc8181'],
  rollback: ['#975a16', '#f6ad55'],
  phase: ['#718096', '#a0aec0'],
};

interface Panel {
  readonly title: string;
  readonly name: string;
  readonly shade: Shade;
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
const TEXT: Shade = ['#1a202c', '#e2e8f0'];
const GROUND: Shade = ['#ffffff', '#171923'];
const AXIS: Shade = ['#718096', '#a0aec0'];
const GRID: Shade = ['#e2e8f0', '#2d3748'];

const escaped = (text: string): string => text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
const fixed = (value: number): string => String(Math.round(value * 10) / 10);
const figure = (value: number): string =>
  value < 10 ? fixed(value) : Math.round(value).toLocaleString('en-US');
const seconds = (atMs: number): string => `${(atMs / 1000).toFixed(1)} s`;

/** Style sheet: each class has its light color, and the dark one where the reader prefers it. */
function styles(): string {
  const rules = (pick: (shade: Shade) => string): string =>
    [
      `text{fill:${pick(TEXT)}}`,
      `.ground{fill:${pick(GROUND)}}`,
      `.axis{stroke:${pick(AXIS)}}`,
      `.grid{stroke:${pick(GRID)}}`,
      ...Object.entries(KINDS).map(([kind, shade]) => `.${kind}{stroke:${pick(shade)}}`),
      ...Object.entries(KINDS).map(([kind, shade]) => `text.${kind}{stroke:none;fill:${pick(shade)}}`),
      ...PANELS.map(({ name, shade }) => `.${name}{stroke:${pick(shade)}}`),
    ].join('');
  return `<style>${rules(([light]) => light)}@media (prefers-color-scheme: dark){${rules(([, dark]) => dark)}}</style>`;
}

/** Draws a rollout. @param title heading of the plot */
export function rolloutPlot(
  title: string,
  samples: readonly FleetSample[],
  timeline: readonly TimelineEntry[],
): string {
  const endMs = Math.max(1, ...samples.map(({ atMs }) => atMs), ...timeline.map(({ atMs }) => atMs));
  const x = (atMs: number): number => LEFT + (atMs / endMs) * (WIDTH - LEFT - RIGHT);
  const bottom = TOP + PANELS.length * (PANEL + GAP) - GAP;
  const shown = timeline.slice(0, LEGEND_MAX);
  const legendTop = bottom + 56;
  const height = legendTop + Math.ceil(shown.length / LEGEND_COLUMNS) * LEGEND_ROW + 20;
  const heading = escaped(title);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="12" role="img" aria-label="${heading}">`,
    styles(),
    `<rect class="ground" width="${WIDTH}" height="${height}" fill="${GROUND[0]}"/>`,
    `<text x="${LEFT}" y="22" font-size="15">${heading}</text>`,
    ...marksOf(timeline, x, bottom),
    ...PANELS.map((panel, index) => panelOf(panel, TOP + index * (PANEL + GAP), samples, x)),
    ...timeAxis(endMs, x, bottom),
    ...legendOf(shown, timeline.length, legendTop),
    '</svg>',
    '',
  ].join('\n');
}

/** Vertical lines with numbers at the top. */
function marksOf(
  timeline: readonly TimelineEntry[],
  x: (atMs: number) => number,
  bottom: number,
): readonly string[] {
  const free = Array.from({ length: NUMBER_ROWS }, () => 0);
  return timeline.map(({ atMs, kind, text }, index) => {
    const at = x(atMs);
    const [light] = KINDS[kind];
    const line = `<line class="${kind}" x1="${fixed(at)}" x2="${fixed(at)}" y1="${TOP - 18}" y2="${bottom}" stroke="${light}" stroke-dasharray="3 3"><title>${escaped(`${index + 1}. ${seconds(atMs)}: ${text}`)}</title></line>`;
    const row = free.findIndex((from) => at >= from);
    if (row < 0) return line;
    free[row] = at + NUMBER_WIDTH;
    return `${line}<text class="${kind}" x="${fixed(at)}" y="${TOP - 22 - row * NUMBER_ROW}" text-anchor="middle" font-size="11" fill="${light}">${index + 1}</text>`;
  });
}

function panelOf(
  { title, name, shade, of }: Panel,
  top: number,
  samples: readonly FleetSample[],
  x: (atMs: number) => number,
): string {
  const most = Math.max(1, ...samples.map(of));
  const y = (value: number): number => top + PANEL - (value / most) * PANEL;
  const points = samples.map((sample) => `${fixed(x(sample.atMs))},${fixed(y(of(sample)))}`).join(' ');
  const rule = (at: number, kind: 'axis' | 'grid', stroke: string): string =>
    `<line class="${kind}" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${fixed(at)}" y2="${fixed(at)}" stroke="${stroke}"/>`;
  const label = (value: number): string =>
    `<text x="${LEFT - 6}" y="${fixed(y(value) + 4)}" text-anchor="end" font-size="11">${figure(value)}</text>`;
  return [
    rule(top, 'grid', GRID[0]),
    rule(top + PANEL / 2, 'grid', GRID[0]),
    rule(top + PANEL, 'axis', AXIS[0]),
    label(most),
    label(0),
    `<polyline class="${name}" fill="none" stroke="${shade[0]}" stroke-width="1.8" stroke-linejoin="round" points="${points}"/>`,
    // Over its own ground: a line of the timeline may cross the title.
    `<rect class="ground" x="${LEFT + 2}" y="${top + 3}" width="${title.length * 6.6}" height="16" fill="${GROUND[0]}" fill-opacity="0.8"/>`,
    `<text x="${LEFT + 4}" y="${top + 15}">${title}</text>`,
  ].join('\n');
}

/** Distance of two labels of the time axis: 1, 2 or 5 times a power of ten. */
function tickMs(endMs: number): number {
  for (let unit = 100; ; unit *= 10)
    for (const step of [unit, 2 * unit, 5 * unit]) if (endMs / step <= TICKS_MAX) return step;
}

function timeAxis(endMs: number, x: (atMs: number) => number, bottom: number): readonly string[] {
  const step = tickMs(endMs);
  const labels: string[] = [];
  for (let atMs = 0; atMs <= endMs; atMs += step) {
    const at = fixed(x(atMs));
    labels.push(
      `<line class="axis" x1="${at}" x2="${at}" y1="${bottom}" y2="${bottom + 5}" stroke="${AXIS[0]}"/>`,
      `<text x="${at}" y="${bottom + 18}" text-anchor="middle" font-size="11">${atMs / 1000}</text>`,
    );
  }
  labels.push(
    `<text x="${WIDTH - RIGHT}" y="${bottom + 34}" text-anchor="end">seconds since the start</text>`,
  );
  return labels;
}

/** Texts of the numbers, column by column. */
function legendOf(shown: readonly TimelineEntry[], total: number, top: number): readonly string[] {
  const rows = Math.ceil(shown.length / LEGEND_COLUMNS);
  const lines = shown.map(({ atMs, kind, text }, index) => {
    const left = 20 + Math.floor(index / Math.max(1, rows)) * ((WIDTH - 20) / LEGEND_COLUMNS);
    const cut = text.length > LEGEND_CHARS_MAX ? `${text.slice(0, LEGEND_CHARS_MAX)}…` : text;
    const y = top + (index % Math.max(1, rows)) * LEGEND_ROW;
    return `<text class="${kind}" x="${fixed(left)}" y="${y}" font-size="11" fill="${KINDS[kind][0]}">${index + 1}. ${seconds(atMs)}: ${escaped(cut)}</text>`;
  });
  if (total > shown.length)
    lines.push(
      `<text x="20" y="${top + rows * LEGEND_ROW}" font-size="11">and ${total - shown.length} more</text>`,
    );
  return lines;
}
