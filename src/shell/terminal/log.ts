/** pino driver of the logger port: JSON lines on stderr, or readable lines on a TTY. */
import { type Logger as PinoLogger, pino } from 'pino';
import type { LogFields, Logger } from '../../core/log.ts';
import { visibleLine } from './redact.ts';
import type { Screen } from './screen.ts';

/** Converts values that JSON.stringify cannot represent: a bigint to decimal text, an error to its
 *  message. Secrets are removed here, before texts are escaped again. */
function plain(fields: LogFields, hide: Screen['hide']): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === 'bigint') out[name] = value.toString();
    else if (value instanceof Error) out[name] = hide(value.message);
    else out[name] = typeof value === 'string' ? hide(value) : value;
  }
  return out;
}

function wrap(inner: PinoLogger, screen: Screen): Logger {
  const clean = (fields: LogFields): Record<string, unknown> => plain(fields, screen.hide);
  return {
    debug: (fields, message) => inner.debug(clean(fields), message),
    info: (fields, message) => inner.info(clean(fields), message),
    warn: (fields, message) => inner.warn(clean(fields), message),
    error: (fields, message) => inner.error(clean(fields), message),
    child: (fields) => wrap(inner.child(clean(fields)), screen),
  };
}

/** Formats one JSON line as `12:00:01.123 WARN message key=value`; returns a line that is not JSON
 *  unchanged. */
export function humanLine(jsonLine: string): string {
  let parsed: Record<string, unknown>;
  try {
    parsed = JSON.parse(jsonLine) as Record<string, unknown>;
  } catch {
    return jsonLine;
  }
  const { level, time, msg, command: _command, pid: _pid, ...rest } = parsed;
  const clock = typeof time === 'string' ? time.slice(11, 23) : '';
  const pairs = Object.entries(rest).map(
    ([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  return `${visibleLine([clock, String(level).toUpperCase(), String(msg), ...pairs].join(' '))}\n`;
}

export function pinoLogger(level: string, screen: Screen, base: LogFields): Logger {
  const write = screen.isTty
    ? (line: string): void => screen.write(humanLine(line))
    : (line: string): void => screen.write(line);
  const inner = pino(
    {
      level,
      base: plain(base, screen.hide),
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    { write },
  );
  return wrap(inner, screen);
}
