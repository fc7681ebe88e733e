/** Redacts output: hides secrets and passwords in URLs, and escapes control characters that a
 *  terminal would interpret. */
import { HIDDEN, Secrets } from '../../core/secrets.ts';
import { mayHoldSecret, type Properties, type Setting, type SettingTable } from '../../core/settings.ts';

/** Hides the password of every URL in a text, and the value of key=value pairs whose key names a
 *  secret. */
export function redactText(text: string): string {
  return text
    .replace(/\b([a-z][a-z0-9+.-]*:\/\/[^\s:@/?#]*):[^\s/?#]*@/gi, `$1:${HIDDEN}@`)
    .replace(/\b((?:[\w.]*(?:password|secret|token))\s*=\s*)[^\s&,;]+/gi, `$1${HIDDEN}`);
}

/** Start of a URL. The text of a setting is split here, because a password in it may contain any
 *  character, including commas and blanks. */
const URLS = /(?=\b[a-z][a-z0-9+.-]*:\/\/)/i;
const CREDENTIALS = /^([a-z][a-z0-9+.-]*:\/\/[^:@]*):(.*)@/is;
const NAMED_SECRET = /\b([\w.]*(?:password|passwd|secret|token|apikey|api_key)\s*=\s*)(.+)$/is;

/** Hides credentials in the text of one setting. Prefers to hide too much. */
const redactWhole = (text: string): string =>
  text
    .split(URLS)
    .map((one) => one.replace(CREDENTIALS, `$1:${HIDDEN}@`))
    .join('')
    .replace(NAMED_SECRET, `$1${HIDDEN}`);

export function redactSetting(setting: Setting, value: unknown): unknown {
  if (value === undefined) return undefined;
  if (setting.secret === true && mayHoldSecret(setting, String(value))) return HIDDEN;
  if (setting.type === 'properties') {
    const entries = Object.entries(value as Properties);
    return Object.fromEntries(
      entries.map(([name, text]) => [name, setting.shown?.has(name) ? redactWhole(text) : HIDDEN]),
    );
  }
  if (typeof value === 'string') return redactWhole(value);
  // Joined again: a comma in a password has split it.
  if (Array.isArray(value)) return redactWhole(value.join(','));
  return value;
}

/** Least length of a secret that is hidden anywhere in output. Shorter secrets and plain words are
 *  hidden only in their own setting, because they would match unrelated text. */
const NET_CHARS_MIN = 8;
const WORD = /^[a-z]{1,15}$/;

/** Collects the secrets of the settings, to hide them in all output of the process. */
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
    // A secret address is not hidden whole: its host and database may appear in messages.
    if (setting.secret === true && mayHoldSecret(setting, text) && !text.includes('://')) found.push(text);
    for (const url of text.split(URLS)) {
      const password = CREDENTIALS.exec(url)?.[2];
      if (password !== undefined) found.push(password);
      const named = NAMED_SECRET.exec(url)?.[2];
      if (named !== undefined) found.push(named.split('&', 1)[0] as string);
    }
  }
  return new Secrets(found.filter((one) => one.length >= NET_CHARS_MIN && !WORD.test(one)));
}

/** Makes one printable line of any text: line ends become blanks, other control characters are
 *  escaped. */
export function visibleLine(text: string): string {
  return text
    .replace(/\s*[\r\n]+\s*/g, ' ')
    .replace(/\p{Cc}/gu, (one) => `\\x${(one.codePointAt(0) as number).toString(16).padStart(2, '0')}`)
    .trim();
}
