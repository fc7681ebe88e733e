/** What may be shown: secrets never, URLs without their password, and no byte that a terminal would
 *  act on. */
import { HIDDEN, Secrets } from '../../core/secrets.ts';
import type { Properties, Setting, SettingTable } from '../../core/settings.ts';

/** Replaces the password of every URL in a text, and the value of key=value pairs that name a
 *  secret. */
export function redactText(text: string): string {
  return text
    .replace(/\b([a-z][a-z0-9+.-]*:\/\/[^\s:@/?#]*):[^\s/?#]*@/gi, `$1:${HIDDEN}@`)
    .replace(/\b((?:[\w.]*(?:password|secret|token))\s*=\s*)[^\s&,;]+/gi, `$1${HIDDEN}`);
}

/** Where URLs of one text begin: one that is a setting may have anything in its password, commas
 *  and blanks included. */
const URLS = /(?=\b[a-z][a-z0-9+.-]*:\/\/)/i;
const CREDENTIALS = /^([a-z][a-z0-9+.-]*:\/\/[^:@]*):(.*)@/is;
const NAMED_SECRET = /\b([\w.]*(?:password|passwd|secret|token|apikey|api_key)\s*=\s*)(.+)$/is;

/** Replaces credentials in the whole text of one setting; rather too much than too little. */
const redactWhole = (text: string): string =>
  text
    .split(URLS)
    .map((one) => one.replace(CREDENTIALS, `$1:${HIDDEN}@`))
    .join('')
    .replace(NAMED_SECRET, `$1${HIDDEN}`);

export function redactSetting(setting: Setting, value: unknown): unknown {
  if (value === undefined) return undefined;
  if (setting.secret === true) return HIDDEN;
  if (setting.type === 'properties') {
    const entries = Object.entries(value as Properties);
    return Object.fromEntries(
      entries.map(([name, text]) => [name, setting.shown?.has(name) ? redactWhole(text) : HIDDEN]),
    );
  }
  if (typeof value === 'string') return redactWhole(value);
  // One text: a comma of a password has cut it into several.
  if (Array.isArray(value)) return redactWhole(value.join(','));
  return value;
}

/** Shorter secrets, and words, are hidden where they are known to stand alone: in any text they
 *  would hide parts of our own. */
const NET_CHARS_MIN = 8;
const WORD = /^[a-z]{1,15}$/;

/** Every secret that the settings hold, for hiding it in whatever the process writes. */
export function secretsOf(table: SettingTable, values: Readonly<Record<string, unknown>>): Secrets {
  const found: string[] = [];
  for (const [name, setting] of Object.entries(table)) {
    const value = values[name];
    if (value === undefined) continue;
    if (setting.type === 'properties') {
      const hidden = Object.entries(value as Properties).filter(([one]) => setting.shown?.has(one) !== true);
      found.push(...hidden.map(([, text]) => text));
      continue;
    }
    const text = Array.isArray(value) ? value.join(',') : String(value);
    // Host and database of an address belong into messages.
    if (setting.secret === true && !text.includes('://')) found.push(text);
    for (const url of text.split(URLS)) {
      const password = CREDENTIALS.exec(url)?.[2];
      if (password !== undefined) found.push(password);
      const named = NAMED_SECRET.exec(url)?.[2];
      if (named !== undefined) found.push(named.split('&', 1)[0] as string);
    }
  }
  return new Secrets(found.filter((one) => one.length >= NET_CHARS_MIN && !WORD.test(one)));
}

/** One line of a text that may come from anywhere: line ends become blanks, other control
 *  characters are spelled out. */
export function visibleLine(text: string): string {
  return text
    .replace(/\s*[\r\n]+\s*/g, ' ')
    .replace(/\p{Cc}/gu, (one) => `\\x${(one.codePointAt(0) as number).toString(16).padStart(2, '0')}`)
    .trim();
}
