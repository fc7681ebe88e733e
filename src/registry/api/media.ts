/** Content types: negotiates that of an answer, and checks that of a request body. */
import type { HttpRequest } from '../../io/http/port.ts';
import { registryError } from '../errors.ts';

export const REGISTRY_CONTENT_TYPE = 'application/vnd.schemaregistry.v1+json';

/** Types of answers with our preference, which decides between types of equal quality for the
 *  client. */
const ANSWER_TYPES: ReadonlyArray<readonly [type: string, quality: number]> = [
  [REGISTRY_CONTENT_TYPE, 1],
  ['application/vnd.schemaregistry+json', 0.9],
  ['application/json', 0.5],
];

export const JSON_BODY_TYPES: readonly string[] = ANSWER_TYPES.map(([type]) => type);
/** A body of this type, or without a type, is also a JSON document, or the text of a schema where a
 *  schema is expected. */
export const RAW_BODY_TYPE = 'application/octet-stream';

const ACCEPT_CHARS_MAX = 4096;
const NEGOTIATED_MAX = 256;
/** Results by the text of the header, because clients send the same few texts. Undefined: no type
 *  fits. */
const negotiated = new Map<string, string | undefined>();

const mediaType = (text: string): string => (text.split(';', 1)[0] as string).trim().toLowerCase();

function qualityOf(part: string): number {
  const text = /;\s*q\s*=\s*"?([^;"\s]*)/i.exec(part)?.[1];
  const quality = text === undefined || text === '' ? 1 : Number(text);
  return Number.isNaN(quality) ? 1 : Math.min(1, Math.max(0, quality));
}

/** Specificity with which a range matches this type; 0: no match. */
function specificity(range: string, type: string): number {
  if (range === type) return 3;
  if (range === 'application/*') return 2;
  // Like the existing registries, treat a range of any type as one of any subtype.
  return range === '*' || range.startsWith('*/') ? 1 : 0;
}

/** Returns the best type for an Accept header, by the client's quality and then by our preference.
 */
function bestType(accept: string): string | undefined {
  const ranges = accept
    .split(',')
    .map((part) => ({ range: mediaType(part), quality: qualityOf(part) }))
    .filter(({ range }) => range !== '');
  if (ranges.length === 0) return REGISTRY_CONTENT_TYPE;
  let best: string | undefined;
  let bestScore = 0;
  for (const [type, own] of ANSWER_TYPES) {
    let narrowest = 0;
    let quality = 0;
    for (const range of ranges) {
      const fit = specificity(range.range, type);
      if (fit > narrowest || (fit === narrowest && fit > 0 && range.quality > quality)) {
        narrowest = fit;
        quality = range.quality;
      }
    }
    // Our preference changes a score by less than the smallest step of a client's quality, so it
    // decides only between equals.
    const score = quality === 0 ? 0 : quality + own / 10_000;
    if (score > bestScore) {
      best = type;
      bestScore = score;
    }
  }
  return best;
}

/** Returns the content type of the answer. @throws not_acceptable */
export function negotiate(request: HttpRequest): string {
  const lines = request.header('accept');
  if (lines.length === 0) return REGISTRY_CONTENT_TYPE;
  const accept = lines.length === 1 ? (lines[0] as string) : lines.join(',');
  let type = negotiated.get(accept);
  if (type === undefined && !negotiated.has(accept)) {
    if (accept.length > ACCEPT_CHARS_MAX) throw registryError('not_acceptable', 'HTTP 406 Not Acceptable');
    type = bestType(accept);
    if (negotiated.size >= NEGOTIATED_MAX) negotiated.clear();
    negotiated.set(accept, type);
  }
  if (type === undefined) {
    throw registryError('not_acceptable', 'HTTP 406 Not Acceptable', {
      next: `accept one of ${JSON_BODY_TYPES.join(', ')}`,
    });
  }
  return type;
}

/** True if the body may be the text of a schema. @throws unsupported_media_type */
export function bodyMayBeRaw(request: HttpRequest): boolean {
  const lines = request.header('content-type');
  const type = lines.length === 0 ? RAW_BODY_TYPE : mediaType(lines[0] as string);
  // A charset is ignored: like JSON, a body is always UTF-8.
  const known = type === RAW_BODY_TYPE || JSON_BODY_TYPES.includes(type);
  if (lines.length > 1 || !known) {
    throw registryError('unsupported_media_type', 'HTTP 415 Unsupported Media Type', {
      next: `send ${REGISTRY_CONTENT_TYPE}`,
    });
  }
  if (request.header('content-encoding').some((coding) => !/^\s*(identity)?\s*$/i.test(coding))) {
    throw registryError(
      'unsupported_media_type',
      'HTTP 415 Unsupported Media Type: a body with a Content-Encoding is not supported',
      { next: 'send the body without an encoding' },
    );
  }
  return type === RAW_BODY_TYPE;
}
