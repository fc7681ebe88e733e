/** -verify-from and -verify-to: the range of windows that is compared. */
import { coreError } from '../../../core/errors.ts';
import { isoTime } from '../../../engine/verify/values.ts';

interface Settings {
  readonly 'verify-from': string | undefined;
  readonly 'verify-to': string | undefined;
}

/** Times in ms; undefined: no bound. */
export interface Range {
  readonly fromMs: bigint | undefined;
  readonly toMs: bigint | undefined;
}

/** @throws bad_value */
export const rangeOf = (settings: Settings): Range => ({
  fromMs: timeOf('verify-from', settings),
  toMs: timeOf('verify-to', settings),
});

function timeOf(name: 'verify-from' | 'verify-to', settings: Settings): bigint | undefined {
  const text = settings[name];
  if (text === undefined) return undefined;
  const ms = /^-?\d{1,16}$/.test(text) ? BigInt(text) : isoTime(text);
  if (ms !== undefined) return ms;
  throw coreError('bad_value', `-${name}=${text.slice(0, 64)} is not a time`, {
    next: 'give milliseconds since the epoch, or ISO 8601 with a zone, such as 2026-01-31T12:00:00Z',
    details: { setting: name },
  });
}
