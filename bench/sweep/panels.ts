/** Panels of lines over named values as SVG, with a logarithmic scale that all panels of a row
 *  share. Colors follow the light or dark scheme of the reader; a renderer without style sheets
 *  shows the light one. */
import type { Shade } from '../../src/core/plot/timeline.ts';

const PANEL_WIDTH = 250;
const PANEL_HEIGHT = 150;
const LEFT = 70;
const GAP_X = 24;
const GAP_Y = 58;
const TOP = 84;
const BOTTOM = 40;
const RIGHT = 20;

const TEXT: Shade = ['#1a202c', '#e2e8f0'];
const GROUND: Shade = ['#ffffff', '#171923'];
const AXIS: Shade = ['#718096', '#a0aec0'];
const GRID: Shade = ['#e2e8f0', '#2d3748'];
/** Colors that readers without red-green vision tell apart. */
const LINES: readonly Shade[] = [
  ['#0072b2', '#56b4e9'],
  ['#d55e00', '#e69f00'],
  ['#009e73', '#2fd3a5'],
  ['#aa4499', '#dd99cc'],
];

export interface Line {
  readonly name: string;
  /** One for each label of the panel; null: no value. */
  readonly values: readonly (number | null)[];
}

export interface Panel {
  readonly title: string;
  readonly labels: readonly string[];
  /** In the order of `lines` of the plot. */
  readonly lines: readonly Line[];
}

export interface PanelsPlot {
  readonly title: string;
  /** Unit of the values. */
  readonly unit: string;
  /** Meaning of the labels. */
  readonly across: string;
  readonly rows: readonly (readonly Panel[])[];
}

const escaped = (text: string): string => text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
const fixed = (value: number): string => String(Math.round(value * 10) / 10);
const power = (exponent: number): string =>
  exponent >= 0
    ? (10 ** exponent).toLocaleString('en-US')
    : String(Number((10 ** exponent).toFixed(-exponent)));

function styles(lines: number): string {
  const rules = (pick: (shade: Shade) => string): string =>
    [
      `text{fill:${pick(TEXT)}}`,
      `.ground{fill:${pick(GROUND)}}`,
      `.axis{stroke:${pick(AXIS)}}`,
      `.grid{stroke:${pick(GRID)}}`,
      ...LINES.slice(0, lines).map(
        (shade, at) => `polyline.l${at},line.l${at}{stroke:${pick(shade)}}circle.l${at}{fill:${pick(shade)}}`,
      ),
    ].join('');
  return `<style>${rules(([light]) => light)}@media (prefers-color-scheme: dark){${rules(([, dark]) => dark)}}</style>`;
}

/** Whole powers of ten around the positive values of a row. */
function scaleOf(row: readonly Panel[]): { readonly low: number; readonly high: number } {
  const values = row
    .flatMap(({ lines }) => lines.flatMap((line) => line.values))
    .flatMap((value) => (value !== null && value > 0 ? [value] : []));
  if (values.length === 0) return { low: 0, high: 1 };
  const low = Math.floor(Math.log10(Math.min(...values)));
  return { low, high: Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values)))) };
}

/** Draws the plot. A value of 0 is on the lower edge. */
export function panelsPlot(plot: PanelsPlot): string {
  const { title, rows } = plot;
  const names = rows[0]?.[0]?.lines.map(({ name }) => name) ?? [];
  const columns = Math.max(1, ...rows.map((row) => row.length));
  const width = LEFT + columns * (PANEL_WIDTH + GAP_X) - GAP_X + RIGHT;
  const height = TOP + rows.length * (PANEL_HEIGHT + GAP_Y) - GAP_Y + BOTTOM;
  const heading = escaped(title);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="sans-serif" font-size="12" role="img" aria-label="${heading}">`,
    styles(names.length),
    `<rect class="ground" width="${width}" height="${height}" fill="${GROUND[0]}"/>`,
    `<text x="${LEFT}" y="22" font-size="15">${heading}</text>`,
    `<text x="${LEFT}" y="40" font-size="11">${escaped(`${plot.unit}, logarithmic, by ${plot.across}`)}</text>`,
    ...legend(names),
    ...rows.flatMap((row, at) => rowOf(row, TOP + at * (PANEL_HEIGHT + GAP_Y))),
    '</svg>',
    '',
  ].join('\n');
}

function legend(names: readonly string[]): readonly string[] {
  let x = LEFT;
  return names.map((name, at) => {
    const from = x;
    x += 34 + name.length * 6.6;
    return `<line class="l${at}" x1="${fixed(from)}" x2="${fixed(from + 16)}" y1="55" y2="55" stroke="${lightOf(at)}" stroke-width="2.5"/><text x="${fixed(from + 21)}" y="59" font-size="11">${escaped(name)}</text>`;
  });
}

const lightOf = (at: number): string => (LINES[at % LINES.length] as Shade)[0];

function rowOf(row: readonly Panel[], top: number): readonly string[] {
  const { low, high } = scaleOf(row);
  const bottom = top + PANEL_HEIGHT;
  const y = (value: number): number =>
    value <= 0 ? bottom : bottom - ((Math.log10(value) - low) / (high - low)) * PANEL_HEIGHT;
  const exponents = Array.from({ length: high - low + 1 }, (_, at) => low + at);
  return row.flatMap((panel, column) => {
    const left = LEFT + column * (PANEL_WIDTH + GAP_X);
    const rules = exponents.map((exponent) => {
      const at = fixed(y(10 ** exponent));
      const kind = exponent === low ? 'axis' : 'grid';
      const label =
        column > 0
          ? ''
          : `<text x="${LEFT - 6}" y="${fixed(y(10 ** exponent) + 4)}" text-anchor="end" font-size="11">${power(exponent)}</text>`;
      return `<line class="${kind}" x1="${left}" x2="${left + PANEL_WIDTH}" y1="${at}" y2="${at}" stroke="${kind === 'axis' ? AXIS[0] : GRID[0]}"/>${label}`;
    });
    return [
      `<text x="${left}" y="${top - 8}">${escaped(panel.title)}</text>`,
      ...rules,
      ...linesOf(panel, left, bottom, y),
    ];
  });
}

function linesOf(
  { labels, lines }: Panel,
  left: number,
  bottom: number,
  y: (value: number) => number,
): readonly string[] {
  const step = PANEL_WIDTH / Math.max(1, labels.length);
  const x = (at: number): number => left + step * (at + 0.5);
  const names = labels.map(
    (label, at) =>
      `<text x="${fixed(x(at))}" y="${bottom + 16}" text-anchor="middle" font-size="11">${escaped(label)}</text>`,
  );
  const drawn = lines.flatMap(({ name, values }, at) => {
    const points = values.flatMap((value, index) =>
      value === null ? [] : [{ x: fixed(x(index)), y: fixed(y(value)), value, label: labels[index] }],
    );
    if (points.length === 0) return [];
    const path = points.map((point) => `${point.x},${point.y}`).join(' ');
    return [
      `<polyline class="l${at}" fill="none" stroke="${lightOf(at)}" stroke-width="1.8" stroke-linejoin="round" points="${path}"/>`,
      ...points.map(
        (point) =>
          `<circle class="l${at}" cx="${point.x}" cy="${point.y}" r="3" fill="${lightOf(at)}"><title>${escaped(`${name}, ${point.label}: ${Number(point.value.toPrecision(3))}`)}</title></circle>`,
      ),
    ];
  });
  return [...names, ...drawn];
}
