/** Floats in the notation of a descriptor: the lower of two numbers of digits that reads back as
 *  the same value. */

/** Formats as C's %g with that many digits. */
function general(value: number, digits: number): string {
  const exponent = Number(value.toExponential(digits - 1).split('e')[1]);
  const trim = (text: string): string => (text.includes('.') ? text.replace(/\.?0+$/, '') : text);
  if (exponent >= -4 && exponent < digits) return trim(value.toFixed(Math.max(0, digits - 1 - exponent)));
  const [mantissa = '', power = ''] = value.toExponential(digits - 1).split('e');
  const size = String(Math.abs(Number(power))).padStart(2, '0');
  return `${trim(mantissa)}e${Number(power) < 0 ? '-' : '+'}${size}`;
}

export function floatText(value: number, type: 'float' | 'double'): string {
  if (Number.isNaN(value)) return 'nan';
  const number = type === 'float' ? Math.fround(value) : value;
  if (!Number.isFinite(number)) return number > 0 ? 'inf' : '-inf';
  if (number === 0) return Object.is(number, -0) ? '-0' : '0';
  const [fewer, more] = type === 'float' ? [6, 9] : [15, 17];
  const short = general(number, fewer);
  // The reference implementation does not read subnormal floats back from few digits.
  if (type === 'float' && Math.abs(number) < 2 ** -126) return general(number, more);
  const back = type === 'float' ? Math.fround(Number(short)) : Number(short);
  return back === number ? short : general(number, more);
}
