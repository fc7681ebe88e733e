/** Content types: what an answer may be sent as, and what a request body may be. */
import type { HttpRequest } from '../../io/http/port.ts';
import { registryError } from '../errors.ts';

export const REGISTRY_CONTENT_TYPE = 'application/vnd.schemaregistry.v1+json';

/** What we answer in, with how much we like it: decides between types that the client likes
 *  equally. */
const ANSWER_TYPES: ReadonlyArray<readonly [type: string, quality: number]> = [
  [REGISTRY_CONTENT_TYPE, 1],
  ['application/vnd.schemaregistry+json', 0.9],
  ['application/json', 0.5],
];

export const JSON_BODY_TYPES: readonly string[] = ANSWER_TYPES.map(([type]) => type);
/** A body of this type, or of none, is a JSON document too, or a schema's own text where one is
 *  expected. */
export const RAW_BODY_TYPE = 'application/octet-stream';

const ACCEPT_CHARS_MAX = 4096;
const NEGOTIATED_MAX = 256;
/** Answers by the text of the header: clients send the same few texts for ever. Undefined: nothing
 *  fits. */
const negotiated = new Map<string, string | undefined>();

const mediaType = (text: string): string => (text.split(';', 1)[0] as string).trim().toLowerCase();

function qualityOf(part: string): number {
  const text = /;\s*q\s*=\s*"?([^;"\s]*)/i.exec(part)?.[1];
  const quality = text === undefined || text === '' ? 1 : Number(text);
  return Number.isNaN(quality) ? 1 : Math.min(1, Math.max(0, quality));
}

/** How narrowly a range names this type; 0: not at all. */
function specificity(range: string, type: string): number {
  if (range === type) return 3;
  if (range === 'application/*') return 2;
  // A range of any type is one of any subtype, whatever it says of it: the existing registries read
  // it so.
  return range === '*' || range.startsWith('*/') ? 1 : 0;
}

/** The best type for an Accept header, by the client's quality and then by ours. */
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
    for (const one of ranges) {
      const fit = specificity(one.range, type);
      if (fit > narrowest || (fit === narrowest && fit > 0 && one.quality > quality)) {
        narrowest = fit;
        quality = one.quality;
      }
    }
    // Ours decides only between equals: it moves a score by less than the least step of a client's
    // quality.
    const score = quality === 0 ? 0 : quality + own / 10_000;
    if (score > bestScore) {
      best = type;
      bestScore = score;
    }
  }
  return best;
}

/** The type to answer in. @throws not_acceptable */
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

/** Whether a body may be a schema's own text. @throws unsupported_media_type */
export function bodyMayBeRaw(request: HttpRequest): boolean {
  const lines = request.header('content-type');
  const type = lines.length === 0 ? RAW_BODY_TYPE : mediaType(lines[0] as string);
  // A body is UTF-8 whatever a charset says of it, as JSON is.
  const known = type === RAW_BODY_TYPE || JSON_BODY_TYPES.includes(type);
  if (lines.length > 1 || !known) {
    throw registryError('unsupported_media_type', 'HTTP 415 Unsupported Media Type', {
      next: `send ${REGISTRY_CONTENT_TYPE}`,
    });
  }
  if (request.header('content-encoding').some((coding) => !/^\s*(identity)?\s*$/i.test(coding))) {
    throw registryError(
      'unsupported_media_type',
      'HTTP 415 Unsupported Media Type: a body with a Content-Encoding is not read',
      { next: 'send it as it is' },
    );
  }
  return type === RAW_BODY_TYPE;
}
