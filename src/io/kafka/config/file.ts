/** Text of a file with client properties, in the form of librdkafka or of the Java client. */

/** One property of a file. */
export interface FileProperty {
  readonly name: string;
  readonly value: string;
  /** Number of its first line, from 1. */
  readonly line: number;
}

/** Names that only the Java client has. In a file with one of them, a backslash is an escape. */
const JAVA_ONLY =
  /^\s*(sasl\.jaas\.config|sasl\.(login|client)\..*|ssl\.(truststore|keystore\.(type|key|certificate))[\w.]*|(key|value)\.(de)?serializer)\s*[=: ]/m;

const ESCAPES: Readonly<Record<string, string>> = { t: '\t', n: '\n', r: '\r', f: '\f' };

const unescaped = (text: string): string =>
  text.replace(/\\(?:u([0-9a-fA-F]{4})|(.))/gs, (_all, hex: string | undefined, one: string | undefined) =>
    hex === undefined ? (ESCAPES[one as string] ?? (one as string)) : String.fromCharCode(parseInt(hex, 16)),
  );

/** Ends with an odd number of backslashes: the next line continues this one. */
const continues = (line: string): boolean => ((/\\+$/.exec(line)?.[0] ?? '').length & 1) === 1;

function javaEntries(lines: readonly string[]): FileProperty[] {
  const entries: FileProperty[] = [];
  for (let at = 0; at < lines.length; at++) {
    const line = at + 1;
    let text = (lines[at] as string).trimStart();
    if (text === '' || /^[#!]/.test(text)) continue;
    while (continues(text) && at + 1 < lines.length)
      text = text.slice(0, -1) + (lines[++at] as string).trimStart();
    const [, name = '', value = ''] =
      /^((?:\\.|[^\\=:\s])*)(?:\s*[=:]\s*|\s+|$)(.*)$/s.exec(continues(text) ? text.slice(0, -1) : text) ??
      [];
    entries.push({ name: unescaped(name), value: unescaped(value), line });
  }
  return entries;
}

function plainEntries(lines: readonly string[]): FileProperty[] {
  const entries: FileProperty[] = [];
  for (const [at, text] of lines.entries()) {
    if (text.trim() === '' || /^\s*[#!]/.test(text)) continue;
    const equals = text.indexOf('=');
    const name = (equals < 0 ? text : text.slice(0, equals)).trim();
    entries.push({ name, value: equals < 0 ? '' : text.slice(equals + 1).trim(), line: at + 1 });
  }
  return entries;
}

/** Parses a file of client properties: `name=value` lines and comments. A file that has a property
 *  of the Java client alone is read as Java reads it: with continued lines, `name: value`, and a
 *  backslash as an escape. In any other file a backslash stands for itself.
 *  @example
 *  parseClientFile('security.protocol=SASL_SSL\nsasl.username=app');
 */
export function parseClientFile(text: string): readonly FileProperty[] {
  const plain = text.replace(/^\uFEFF/, '');
  const lines = plain.split(/\r\n|\n|\r/);
  return JAVA_ONLY.test(plain) ? javaEntries(lines) : plainEntries(lines);
}
