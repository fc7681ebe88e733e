/** Parses and formats quantities as users write them: durations `250ms 5s 2m`, sizes `512MiB 4GiB
 *  64k`, rates `5000 200k`.
 *  Invariants: (1) parse(format(x)) is x for every x that a parse can return. (2) A result is
 *  always finite and exact. (3) Units are case-insensitive, and a duration always has a unit
 *  (except 0). */

type Units = Readonly<Record<string, number>>;

const DURATION_MS: Units = { us: 1e-3, ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const RATE_UNITS: Units = { '': 1, k: 1e3, m: 1e6, g: 1e9 };
const SIZE_BYTES: Units = {
  '': 1,
  b: 1,
  k: 1e3,
  kb: 1e3,
  m: 1e6,
  mb: 1e6,
  g: 1e9,
  gb: 1e9,
  t: 1e12,
  tb: 1e12,
  ki: 2 ** 10,
  kib: 2 ** 10,
  mi: 2 ** 20,
  mib: 2 ** 20,
  gi: 2 ** 30,
  gib: 2 ** 30,
  ti: 2 ** 40,
  tib: 2 ** 40,
};

function quantity(text: string, units: Units): number | undefined {
  const match = /^(\d+(?:\.\d+)?|\.\d+)(e[+-]?\d{1,3})?\s*([a-z]*)$/i.exec(text.trim());
  if (match === null) return undefined;
  const unitName = (match[3] as string).toLowerCase();
  if (!Object.hasOwn(units, unitName)) return undefined;
  const product = Number(`${match[1]}${match[2] ?? ''}`) * (units[unitName] as number);
  // 1.001 s is 1001 ms: the last bits of a product of decimals are noise.
  const value = Number.isInteger(product) ? product : Number(product.toPrecision(15));
  return value <= Number.MAX_SAFE_INTEGER ? value : undefined;
}

const UNITS = { duration: DURATION_MS, size: SIZE_BYTES, rate: RATE_UNITS } as const;

/** Regular expression without flags, as JSON Schema needs it, of the texts that a parse accepts but
 *  for the greatest value. */
export function quantityPattern(kind: keyof typeof UNITS): string {
  const units = Object.keys(UNITS[kind]).map((name) =>
    name.replace(/[a-z]/g, (letter) => `[${letter}${letter.toUpperCase()}]`),
  );
  const number = '(\\d+(\\.\\d+)?|\\.\\d+)([eE][+-]?\\d{1,3})?';
  const zero = kind === 'duration' ? '|0' : '';
  return `^\\s*(${number}\\s*(${units.join('|')})${zero})\\s*$`;
}

/** Returns milliseconds; undefined: the text is not a duration. */
export function parseDuration(text: string): number | undefined {
  return text.trim() === '0' ? 0 : quantity(text, DURATION_MS);
}

/** Returns whole bytes; undefined: the text is not a size. */
export function parseSize(text: string): number | undefined {
  const bytes = quantity(text, SIZE_BYTES);
  return bytes === undefined ? undefined : Math.floor(bytes);
}

/** Returns a number per second; undefined: the text is not a rate. */
export function parseRate(text: string): number | undefined {
  return quantity(text, RATE_UNITS);
}

/** Formats a value in the first unit that leaves a whole number, else in the last unit. Units
 *  descend. */
function format(value: number, units: ReadonlyArray<readonly [string, number]>): string {
  const [name, scale] =
    units.find(([, unit]) => value !== 0 && value % unit === 0) ??
    (units[units.length - 1] as readonly [string, number]);
  return `${value / scale}${name}`;
}

export function formatDuration(ms: number): string {
  if (ms === 0) return '0';
  return format(ms, [
    ['d', 86_400_000],
    ['h', 3_600_000],
    ['m', 60_000],
    ['s', 1000],
    ['ms', 1],
  ]);
}

export function formatSize(bytes: number): string {
  return format(bytes, [
    ['TiB', 2 ** 40],
    ['GiB', 2 ** 30],
    ['MiB', 2 ** 20],
    ['KiB', 2 ** 10],
    ['', 1],
  ]);
}

export function formatRate(perSecond: number): string {
  return format(perSecond, [
    ['G', 1e9],
    ['M', 1e6],
    ['k', 1e3],
    ['', 1],
  ]);
}
