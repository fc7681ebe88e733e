/** Plot of a run as SVG: panels of values over time, with a numbered line at each mark and a
 *  band for a mark that lasts. Colors follow the light or dark scheme of the reader; a renderer
 *  without style sheets shows the light one. */

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

/** Color on a light and on a dark ground. */
export type Shade = readonly [light: string, dark: string];

export interface PlotMark {
  readonly atMs: number;
  /** End of what began at `atMs`; absent: a moment. */
  readonly untilMs?: number;
  /** Class of the mark; `kinds` has its color. */
  readonly kind: string;
  readonly text: string;
}

export interface PlotPoint {
  readonly atMs: number;
  readonly value: number;
}

export interface PlotPanel {
  readonly title: string;
  /** Class of the line, unique in the plot. */
  readonly name: string;
  readonly shade: Shade;
  readonly points: readonly PlotPoint[];
}

export interface TimelinePlot {
  readonly title: string;
  readonly panels: readonly PlotPanel[];
  readonly kinds: Readonly<Record<string, Shade>>;
  /** In the order of time. */
  readonly marks: readonly PlotMark[];
}

const TEXT: Shade = ['#1a202c', '#e2e8f0'];
const GROUND: Shade = ['#ffffff', '#171923'];
const AXIS: Shade = ['#718096', '#a0aec0'];
const GRID: Shade = ['#e2e8f0', '#2d3748'];

const escaped = (text: string): string => text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
const shadeOf = (kinds: TimelinePlot['kinds'], kind: string): Shade => kinds[kind] ?? AXIS;
const fixed = (value: number): string => String(Math.round(value * 10) / 10);
const figure = (value: number): string =>
  value < 10 ? fixed(value) : Math.round(value).toLocaleString('en-US');
const seconds = (atMs: number): string => `${(atMs / 1000).toFixed(1)} s`;

/** Style sheet: each class has its light color, and the dark one where the reader prefers it. */
function styles({ panels, kinds }: TimelinePlot): string {
  const rules = (pick: (shade: Shade) => string): string =>
    [
      `text{fill:${pick(TEXT)}}`,
      `.ground{fill:${pick(GROUND)}}`,
      `.axis{stroke:${pick(AXIS)}}`,
      `.grid{stroke:${pick(GRID)}}`,
      ...Object.entries(kinds).map(([kind, shade]) => `.${kind}{stroke:${pick(shade)}}`),
      ...Object.entries(kinds).map(([kind, shade]) => `text.${kind}{stroke:none;fill:${pick(shade)}}`),
      ...panels.map(({ name, shade }) => `.${name}{stroke:${pick(shade)}}`),
      '.band{stroke:none}',
    ].join('');
  return `<style>${rules(([light]) => light)}@media (prefers-color-scheme: dark){${rules(([, dark]) => dark)}}</style>`;
}

/** Draws the plot. */
export function timelinePlot(plot: TimelinePlot): string {
  const { title, panels, marks, kinds } = plot;
  const times = panels.flatMap(({ points }) => points.map(({ atMs }) => atMs));
  const ends = marks.map(({ atMs, untilMs = atMs }) => untilMs);
  const endMs = [...times, ...ends].reduce((most, one) => Math.max(most, one), 1);
  const x = (atMs: number): number => LEFT + (atMs / endMs) * (WIDTH - LEFT - RIGHT);
  const bottom = TOP + panels.length * (PANEL + GAP) - GAP;
  const shown = marks.slice(0, LEGEND_MAX);
  const legendTop = bottom + 56;
  const height = legendTop + Math.ceil(shown.length / LEGEND_COLUMNS) * LEGEND_ROW + 20;
  const heading = escaped(title);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="12" role="img" aria-label="${heading}">`,
    styles(plot),
    `<rect class="ground" width="${WIDTH}" height="${height}" fill="${GROUND[0]}"/>`,
    `<text x="${LEFT}" y="22" font-size="15">${heading}</text>`,
    ...marksOf(plot, x, bottom),
    ...panels.map((panel, index) => panelOf(panel, TOP + index * (PANEL + GAP), x)),
    ...timeAxis(endMs, x, bottom),
    ...legendOf(shown, marks.length, legendTop, kinds),
    '</svg>',
    '',
  ].join('\n');
}

/** Vertical lines with numbers at the top, and bands. */
function marksOf(
  { marks, kinds }: TimelinePlot,
  x: (atMs: number) => number,
  bottom: number,
): readonly string[] {
  const free = Array.from({ length: NUMBER_ROWS }, () => 0);
  return marks.map(({ atMs, untilMs, kind, text }, index) => {
    const at = x(atMs);
    const [light] = shadeOf(kinds, kind);
    const title = `<title>${escaped(`${index + 1}. ${seconds(atMs)}: ${text}`)}</title>`;
    const band =
      untilMs === undefined
        ? ''
        : `<rect class="${kind} band" x="${fixed(at)}" width="${fixed(x(untilMs) - at)}" y="${TOP - 18}" height="${bottom - TOP + 18}" fill="${light}" fill-opacity="0.06" stroke="none">${title}</rect>`;
    const line = `${band}<line class="${kind}" x1="${fixed(at)}" x2="${fixed(at)}" y1="${TOP - 18}" y2="${bottom}" stroke="${light}" stroke-dasharray="3 3">${title}</line>`;
    const row = free.findIndex((from) => at >= from);
    if (row < 0) return line;
    free[row] = at + NUMBER_WIDTH;
    return `${line}<text class="${kind}" x="${fixed(at)}" y="${TOP - 22 - row * NUMBER_ROW}" text-anchor="middle" font-size="11" fill="${light}">${index + 1}</text>`;
  });
}

function panelOf(
  { title, name, shade, points }: PlotPanel,
  top: number,
  x: (atMs: number) => number,
): string {
  const most = points.reduce((highest, { value }) => Math.max(highest, value), 1);
  const y = (value: number): number => top + PANEL - (value / most) * PANEL;
  const line = points.map(({ atMs, value }) => `${fixed(x(atMs))},${fixed(y(value))}`).join(' ');
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
    `<polyline class="${name}" fill="none" stroke="${shade[0]}" stroke-width="1.8" stroke-linejoin="round" points="${line}"/>`,
    // Over its own ground: a mark may cross the title.
    `<rect class="ground" x="${LEFT + 2}" y="${top + 3}" width="${title.length * 6.6}" height="16" fill="${GROUND[0]}" fill-opacity="0.8"/>`,
    `<text x="${LEFT + 4}" y="${top + 15}">${escaped(title)}</text>`,
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
function legendOf(
  shown: readonly PlotMark[],
  total: number,
  top: number,
  kinds: TimelinePlot['kinds'],
): readonly string[] {
  const rows = Math.ceil(shown.length / LEGEND_COLUMNS);
  const lines = shown.map(({ atMs, kind, text }, index) => {
    const left = 20 + Math.floor(index / Math.max(1, rows)) * ((WIDTH - 20) / LEGEND_COLUMNS);
    const cut = text.length > LEGEND_CHARS_MAX ? `${text.slice(0, LEGEND_CHARS_MAX)}…` : text;
    const y = top + (index % Math.max(1, rows)) * LEGEND_ROW;
    return `<text class="${kind}" x="${fixed(left)}" y="${y}" font-size="11" fill="${shadeOf(kinds, kind)[0]}">${index + 1}. ${seconds(atMs)}: ${escaped(cut)}</text>`;
  });
  if (total > shown.length)
    lines.push(
      `<text x="20" y="${top + rows * LEGEND_ROW}" font-size="11">and ${total - shown.length} more</text>`,
    );
  return lines;
}
