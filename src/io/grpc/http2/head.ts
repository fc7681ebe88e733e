/** Parser of the head of a call from its header list. Source: RFC 9113, section 8.3; the gRPC
 *  documentation, PROTOCOL-HTTP2. */
import type { HeaderList } from './hpack.ts';

/** Reason that a header list begins no call: it is no request (the stream is reset), or a request
 *  that is answered without a call. */
export type HeadRefusal = 'malformed' | 'method' | 'content_type' | 'te' | 'timeout';

export interface CallHead {
  readonly path: string;
  /** Timeout of the call; Infinity: no deadline. */
  readonly timeoutMs: number;
  /** Announced bytes of all DATA; -1: not announced. */
  readonly length: number;
}

/** Roles of the header names that matter. */
const KIND = {
  method: 0,
  scheme: 1,
  path: 2,
  authority: 3,
  forbidden: 4,
  te: 5,
  content_type: 6,
  timeout: 7,
  length: 8,
} as const;
type Kind = (typeof KIND)[keyof typeof KIND];

const KINDS: ReadonlyMap<string, Kind> = new Map<string, Kind>([
  [':method', KIND.method],
  [':scheme', KIND.scheme],
  [':path', KIND.path],
  [':authority', KIND.authority],
  ['connection', KIND.forbidden],
  ['keep-alive', KIND.forbidden],
  ['proxy-connection', KIND.forbidden],
  ['transfer-encoding', KIND.forbidden],
  ['upgrade', KIND.forbidden],
  ['te', KIND.te],
  ['content-type', KIND.content_type],
  ['grpc-timeout', KIND.timeout],
  ['content-length', KIND.length],
]);

const COLON = 58;
const CONTENT_TYPE = 'application/grpc';
const UNIT_MS: Readonly<Record<string, number>> = {
  H: 3_600_000,
  M: 60_000,
  S: 1000,
  m: 1,
  u: 1e-3,
  n: 1e-6,
};
const TIMEOUT = /^\d{1,8}[HMSmun]$/;
const LENGTH = /^\d{1,15}$/;

const isContentType = (value: string): boolean =>
  value === CONTENT_TYPE || value.startsWith(`${CONTENT_TYPE}+`) || value.startsWith(`${CONTENT_TYPE};`);

export function readHead(list: HeaderList): CallHead | HeadRefusal {
  if (!list.sound) return 'malformed';
  const { fields } = list;
  let method: string | undefined;
  let scheme: string | undefined;
  let path: string | undefined;
  let authority: string | undefined;
  let contentType: string | undefined;
  let timeout: string | undefined;
  let length: string | undefined;
  let te = false;
  let regular = false;
  for (let i = 0; i < fields.length; i += 2) {
    const name = fields[i] as string;
    const value = fields[i + 1] as string;
    const pseudo = name.charCodeAt(0) === COLON;
    if (pseudo && regular) return 'malformed';
    regular ||= !pseudo;
    switch (KINDS.get(name)) {
      case KIND.method:
        if (method !== undefined) return 'malformed';
        method = value;
        break;
      case KIND.scheme:
        if (scheme !== undefined) return 'malformed';
        scheme = value;
        break;
      case KIND.path:
        if (path !== undefined || value === '') return 'malformed';
        path = value;
        break;
      case KIND.authority:
        if (authority !== undefined) return 'malformed';
        authority = value;
        break;
      case KIND.forbidden:
        return 'malformed';
      case KIND.te:
        if (value !== 'trailers') return 'malformed';
        te = true;
        break;
      case KIND.content_type:
        // A repeated content-type is invalid.
        contentType = contentType === undefined ? value : '';
        break;
      case KIND.timeout:
        timeout = timeout === undefined ? value : '';
        break;
      case KIND.length:
        if (!LENGTH.test(value) || (length !== undefined && length !== value)) return 'malformed';
        length = value;
        break;
      case undefined:
        if (pseudo) return 'malformed';
        break;
    }
  }
  if (method === undefined || scheme === undefined || path === undefined) return 'malformed';
  if (method !== 'POST') return 'method';
  if (contentType === undefined || !isContentType(contentType)) return 'content_type';
  if (!te) return 'te';
  if (timeout !== undefined && !TIMEOUT.test(timeout)) return 'timeout';
  return {
    path,
    timeoutMs:
      timeout === undefined
        ? Number.POSITIVE_INFINITY
        : Number(timeout.slice(0, -1)) * (UNIT_MS[timeout.at(-1) as string] as number),
    length: length === undefined ? -1 : Number(length),
  };
}

/** True when the list may end a request. */
export function areTrailers(list: HeaderList): boolean {
  const { fields } = list;
  if (!list.sound) return false;
  for (let i = 0; i < fields.length; i += 2) {
    const name = fields[i] as string;
    if (name.charCodeAt(0) === COLON || KINDS.get(name) === KIND.forbidden) return false;
  }
  return true;
}

/** Encoding of compressed messages of this call. */
export function encodingOf(fields: readonly string[]): string {
  const at = fields.findIndex((text, i) => i % 2 === 0 && text === 'grpc-encoding');
  return at < 0 ? 'identity' : (fields[at + 1] as string);
}
