/** JSON exchanges with the SQL gateway and the REST interface of Flink. */

import type { Timers } from '../../../core/clock.ts';
import { coreError } from '../../../core/errors.ts';
import { HIDDEN } from '../../../core/secrets.ts';
import { engineError } from '../../../engine/errors.ts';

/** Timeout of one exchange. */
const EXCHANGE_MS_MAX = 60_000;
/** Most bytes of an answer that is parsed. */
const ANSWER_BYTES_MAX = 16 << 20;
/** Bytes at the end of a log that are shown. */
const END_BYTES = 16_384;
/** Most characters of a reason in an error. */
const REASON_CHARS_MAX = 1_000;

export type FlinkAnswer = Readonly<Record<string, unknown>>;

export interface FlinkServer {
  /** Setting that names the server, for messages. */
  readonly setting: 'flink' | 'flink-rest';
  readonly url: string;
  /** Texts that no message may show. */
  readonly hidden: readonly string[];
}

/** A server, and the limits of the exchanges with it. */
export interface FlinkLink {
  readonly server: FlinkServer;
  readonly clock: Timers;
  /** Stop of the command, which ends an exchange. */
  readonly signal: AbortSignal;
  /** Timeout of one exchange (default: EXCHANGE_MS_MAX). */
  readonly timeoutMs?: number;
}

/** Checks an address. @throws bad_value */
export function serverOf(
  setting: FlinkServer['setting'],
  text: string,
  hidden: readonly string[] = [],
): FlinkServer {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url !== undefined && /^https?:$/.test(url.protocol) && url.username === '')
    return { setting, url: url.href.replace(/\/+$/, ''), hidden };
  throw engineError('bad_setting', `-${setting} is not an address of a server`, {
    next: `give -${setting}=http://host:port`,
    details: { setting },
  });
}

const unreachable = ({ setting, url }: FlinkServer, why: string, cause?: unknown): Error =>
  engineError('flink_unreachable', `${NAMES[setting]} at ${url} cannot be reached: ${why}`, {
    next: `check -${setting}, and that it runs`,
    cause,
  });

const NAMES = {
  flink: 'the SQL gateway of Flink',
  'flink-rest': 'the REST interface of Flink',
} as const;

interface Answer {
  readonly status: number;
  readonly text: string;
}

type Reader = (response: Response) => Promise<string>;

async function exchange(
  { server, clock, signal, timeoutMs = EXCHANGE_MS_MAX }: FlinkLink,
  [method, path]: readonly [string, string],
  body?: FlinkAnswer,
  read: Reader = wholeText,
): Promise<Answer> {
  const limit = new AbortController();
  const cancel = clock.after(timeoutMs, () => limit.abort(), 'background');
  try {
    const response = await fetch(`${server.url}${path}`, {
      method,
      headers: {
        accept: 'application/json',
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      redirect: 'error',
      signal: AbortSignal.any([limit.signal, signal]),
    });
    return { status: response.status, text: await read(response) };
  } catch (thrown) {
    if (signal.aborted) throw stopped(server, thrown);
    if (limit.signal.aborted)
      throw unreachable(server, `it has not answered within ${timeoutMs / 1000} s`, thrown);
    const { cause, message } = thrown as Error;
    const { code, message: why = message } = (cause ?? {}) as Partial<Error> & { readonly code?: string };
    throw unreachable(server, code ?? why, thrown);
  } finally {
    cancel();
  }
}

const stopped = ({ setting, url }: FlinkServer, cause: unknown): Error =>
  coreError('interrupted', `engine submit was stopped before ${NAMES[setting]} at ${url} had answered`, {
    next: 'see the web interface of Flink for what it has done',
    cause,
  });

/** @throws Error for a longer answer */
async function wholeText(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += (chunk as Uint8Array).length;
    if (bytes > ANSWER_BYTES_MAX) throw new Error(`an answer over ${ANSWER_BYTES_MAX} bytes`);
    chunks.push(chunk as Uint8Array);
  }
  return new TextDecoder().decode(Buffer.concat(chunks));
}

/** The last bytes of a body of any length. */
async function endOfText(response: Response): Promise<string> {
  let end: Uint8Array = new Uint8Array();
  for await (const chunk of response.body ?? [])
    end = Buffer.concat([end, chunk as Uint8Array]).subarray(-END_BYTES);
  return new TextDecoder().decode(end);
}

/** Sends a request, and parses the answer.
 *  @throws flink_unreachable; flink_refused with the reason of the server; flink_job_missing;
 *  interrupted */
export async function ask(
  link: FlinkLink,
  method: string,
  path: string,
  body?: FlinkAnswer,
): Promise<FlinkAnswer> {
  const { server } = link;
  const { status, text } = await exchange(link, [method, path], body);
  const parsed = parsedText(text);
  if (status >= 200 && status < 300 && parsed !== undefined) return parsed;
  if (parsed === undefined && !(status >= 400 && status < 600))
    throw unreachable(server, `its answer to ${path} is no JSON, so it is none of Flink`);
  const reason = hide(server, reasonOf(parsed) ?? `status ${status}`);
  if (status === 404 && path.startsWith('/jobs/'))
    throw engineError('flink_job_missing', `Flink has no such job: ${reason}`, {
      next: 'give -flink-job=ID of a job that the web interface of Flink lists',
    });
  throw engineError(
    'flink_refused',
    `Flink refuses ${method} ${path.replace(/[0-9a-f-]{32,36}/g, 'ID')}: ${reason}`,
    {
      next:
        status === 404
          ? `check that -${server.setting} is the right server`
          : 'see the log of Flink for the whole reason',
    },
  );
}

/** End of a log; undefined: the server keeps none in a file.
 *  @throws flink_unreachable, interrupted */
export async function askEnd(link: FlinkLink, path: string): Promise<string | undefined> {
  const { status, text } = await exchange(link, ['GET', path], undefined, endOfText);
  return status === 200 ? text : undefined;
}

function parsedText(text: string): FlinkAnswer | undefined {
  try {
    const parsed = text === '' ? {} : JSON.parse(text);
    return typeof parsed === 'object' && parsed !== null ? parsed : undefined;
  } catch {
    return undefined;
  }
}

export function hide({ hidden }: Pick<FlinkServer, 'hidden'>, text: string): string {
  let shown = text;
  for (const secret of hidden) if (secret !== '') shown = shown.replaceAll(secret, HIDDEN);
  return shown;
}

/** The innermost cause in the errors of an answer: their texts are stack traces. */
function reasonOf(answer: FlinkAnswer | undefined): string | undefined {
  const errors = answer?.['errors'];
  if (!Array.isArray(errors)) return undefined;
  return causeOf(errors.filter((one): one is string => typeof one === 'string').join('\n'));
}

export function causeOf(trace: string): string {
  const lines = trace.split('\n').map((line) => line.trim());
  const causes = lines.filter((line) => line.startsWith('Caused by: '));
  const last =
    causes.at(-1) ??
    lines.filter((line) => line !== '' && !/^at |^\.\.\. |^<Exception/.test(line)).at(-1) ??
    '';
  return last
    .replace(/^Caused by: /, '')
    .replace(/^(?:[a-z0-9_]+\.)+(?=[A-Z])/, '')
    .slice(0, REASON_CHARS_MAX);
}
