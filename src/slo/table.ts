/** Formats verdicts as a table. */
import type { RuleVerdict } from './judge.ts';
import type { Bound } from './rules.ts';

const SIGNS: Readonly<Record<Bound, string>> = { below: '<', above: '>', atMost: '<=', atLeast: '>=' };
const WORDS: Readonly<Record<RuleVerdict['verdict'], string>> = {
  met: 'met',
  missed: 'MISSED',
  no_data: 'NO DATA',
};

function number(value: number): string {
  if (!Number.isFinite(value)) return value > 0 ? 'over the last bucket' : String(value);
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 1000 ? String(Math.round(value)) : String(Number(value.toPrecision(6)));
}

/** Formats a value; seconds in the unit that suits their magnitude. */
export function quantity(value: number, unit: string): string {
  if (unit !== 's' || !Number.isFinite(value) || value === 0)
    return unit === '' ? number(value) : `${number(value)} ${unit}`;
  const [scale, name] = Math.abs(value) < 1e-3 ? [1e6, 'us'] : Math.abs(value) < 1 ? [1e3, 'ms'] : [1, 's'];
  return `${number(Number((value * scale).toPrecision(9)))} ${name}`;
}

function measured({ rule, value, from }: RuleVerdict): string {
  if (value === undefined) return '-';
  return from === undefined
    ? quantity(value, rule.unit)
    : `${quantity(from, rule.unit)} to ${quantity(value, rule.unit)}`;
}

export function tableOf(verdicts: readonly RuleVerdict[]): string {
  const rows = [
    ['verdict', 'rule', 'measured', 'limit', 'note'],
    ...verdicts.map((one) => [
      WORDS[one.verdict],
      one.rule.id,
      measured(one),
      `${SIGNS[one.rule.bound]} ${quantity(one.rule.limit, one.rule.unit)}`,
      one.note,
    ]),
  ];
  const widths = [0, 1, 2, 3].map((column) => Math.max(...rows.map((row) => (row[column] as string).length)));
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
