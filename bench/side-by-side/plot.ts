/** Plot of the base cell: events per CPU second of each contestant as bars on a logarithmic scale,
 *  in one file for light and one for dark grounds, because a README chooses by the theme of its
 *  reader. */
import type { Shade } from '../../src/core/plot/timeline.ts';
import { cellName } from './cells.ts';
import { BARE, CONTESTANTS, OURS } from './contestant.ts';
import { type PeersReport, Runs, SHOWN } from './report.ts';

const WIDTH = 860;
const LEFT = 250;
const RIGHT = 100;
const TOP = 58;
const ROW = 30;
const BAR = 18;
const BOTTOM = 34;
const GROUNDS = ['light', 'dark'] as const;

const TEXT: Shade = ['#1a202c', '#e2e8f0'];
const QUIET: Shade = ['#4a5568', '#a0aec0'];
const GROUND: Shade = ['#ffffff', '#0d1117'];
const GRID: Shade = ['#e2e8f0', '#2d3748'];
const OWN: Shade = ['#0072b2', '#56b4e9'];
const OTHER: Shade = ['#d55e00', '#e69f00'];
const LIMIT: Shade = ['#a0aec0', '#718096'];

const escaped = (text: string): string => text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
const fixed = (value: number): string => String(Math.round(value * 10) / 10);

interface Bar {
  readonly title: string;
  readonly shade: Shade;
  /** Events per CPU second. */
  readonly value: number;
}

function barsOf(report: Pick<PeersReport, 'runs' | 'contestants'>): readonly Bar[] {
  const runs = new Runs(report);
  return CONTESTANTS.flatMap((name) => {
    const cpu = runs.cpu(SHOWN, name);
    if (cpu === undefined || cpu.median <= 0) return [];
    const shade = OURS.includes(name) ? OWN : BARE.includes(name) ? LIMIT : OTHER;
    return [{ title: runs.title(name), shade, value: 1e6 / cpu.median }];
  }).sort((a, b) => b.value - a.value);
}

function draw(bars: readonly Bar[], report: PeersReport, pick: (shade: Shade) => string): string {
  const values = bars.map(({ value }) => value);
  // The shortest bar is visible.
  const low = Math.floor(Math.log10(Math.min(...values) / 2));
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values))));
  const x = (value: number): number =>
    LEFT + ((Math.log10(value) - low) / (high - low)) * (WIDTH - LEFT - RIGHT);
  const bottom = TOP + bars.length * ROW;
  const height = bottom + BOTTOM;
  const powers = Array.from({ length: high - low + 1 }, (_, at) => low + at);
  const title = 'Events per CPU second';
  const events = report.events.toLocaleString('en-US');
  const below = `${cellName(SHOWN)}; ${events} events from Kafka, all processes of each contestant; more is better, logarithmic`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="13" fill="${pick(TEXT)}" role="img" aria-label="${title}">`,
    `<rect width="${WIDTH}" height="${height}" fill="${pick(GROUND)}"/>`,
    `<text x="16" y="24" font-size="16">${title}</text>`,
    `<text x="16" y="43" font-size="11" fill="${pick(QUIET)}">${escaped(below)}</text>`,
    ...powers.map((power) => {
      const at = fixed(x(10 ** power));
      return `<line x1="${at}" x2="${at}" y1="${TOP}" y2="${bottom}" stroke="${pick(GRID)}"/><text x="${at}" y="${bottom + 18}" text-anchor="middle" font-size="11" fill="${pick(QUIET)}">${(10 ** power).toLocaleString('en-US')}</text>`;
    }),
    ...bars.map(({ title: name, shade, value }, at) => {
      const y = TOP + at * ROW + (ROW - BAR) / 2;
      const text = Math.round(Number(value.toPrecision(3))).toLocaleString('en-US');
      return [
        `<text x="${LEFT - 10}" y="${y + 14}" text-anchor="end">${escaped(name)}</text>`,
        `<rect x="${LEFT}" y="${y}" width="${fixed(Math.max(1, x(value) - LEFT))}" height="${BAR}" rx="2" fill="${pick(shade)}"><title>${escaped(`${name}: ${text}`)}</title></rect>`,
        `<text x="${fixed(Math.max(LEFT + 1, x(value)) + 6)}" y="${y + 14}">${text}</text>`,
      ].join('');
    }),
    '</svg>',
    '',
  ].join('\n');
}

/** Plots by their file names; none while the base cell has no run. */
export function peersPlots(report: PeersReport): Readonly<Record<string, string>> {
  const bars = barsOf(report);
  if (bars.length === 0) return {};
  return Object.fromEntries(
    GROUNDS.map((ground, at) => [
      `engine-peers-${ground}.svg`,
      draw(bars, report, (shade) => shade[at] as string),
    ]),
  );
}
