/** What may be shown: secrets never, URLs without their password, and no byte that a terminal would act on. */
import type { Setting } from '../../core/settings.ts';

const HIDDEN = '***';

/** Replaces the password of every URL in a text, and the value of key=value pairs that name a secret. */
export function redactText(text: string): string {
  return text
    .replace(/\b([a-z][a-z0-9+.-]*:\/\/[^\s:@/?#]*):[^\s/?#]*@/gi, `$1:${HIDDEN}@`)
    .replace(/\b((?:[\w.]*(?:password|secret|token))\s*=\s*)[^\s&,;]+/gi, `$1${HIDDEN}`);
}

export function redactSetting(setting: Setting, value: unknown): unknown {
  if (value === undefined) return undefined;
  if (setting.secret === true) return HIDDEN;
  if (typeof value === 'string') return redactText(value);
  if (Array.isArray(value)) return value.map((one) => (typeof one === 'string' ? redactText(one) : one));
  return value;
}

/** One line of a text that may come from anywhere: line ends become blanks, other control characters are spelled out. */
export function visibleLine(text: string): string {
  return text
    .replace(/\s*[\r\n]+\s*/g, ' ')
    .replace(/\p{Cc}/gu, (one) => `\\x${(one.codePointAt(0) as number).toString(16).padStart(2, '0')}`)
    .trim();
}
