/** OpenAPI 3.1 description of the engine's HTTP interface. */
import { TOP_LIMIT_MAX, TOP_VISITS_MAX } from '../output/fired/range.ts';
import { LATE_LIMIT, LATE_LIMIT_MAX } from './late.ts';
import { OFFSET_MAX } from './savepoints.ts';

type Json = { readonly [name: string]: unknown };

/** Windows in one response; a `Link` header with rel="next" points to the next page. */
export const WINDOWS_LIMIT_MAX = 10_000;
export const WINDOWS_LIMIT = 1_000;

const ref = (name: string): Json => ({ $ref: `#/components/schemas/${name}` });
const body = (schema: Json): Json => ({ 'application/json': { schema } });

const failure = (description: string, codes: readonly string[], headers?: Json): Json => ({
  description,
  ...(headers === undefined ? {} : { headers }),
  content: body({ allOf: [ref('Error'), { properties: { code: { enum: codes } } }] }),
});
const CHALLENGE: Json = {
  'WWW-Authenticate': { description: 'Accepted schemes.', schema: { type: 'string' } },
};
const WAIT: Json = { 'Retry-After': { description: 'Seconds.', schema: { type: 'string' } } };

/** Refusals of the access gate. */
const BY_ACCESS: Json = {
  401: failure('Credentials are missing or not accepted.', ['unauthenticated'], CHALLENGE),
  403: failure('No access rule allows the request.', ['forbidden']),
  429: failure('Over the rate of this client.', ['rate_limited'], WAIT),
};
const SECURITY_SCHEMES: Json = {
  basic: { type: 'http', scheme: 'basic', description: 'With -auth-basic.' },
  bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT', description: 'With -auth-jwks.' },
  certificate: { type: 'mutualTLS', description: 'With -tls-client-ca; a principal with -auth-mtls.' },
};
/** An empty requirement, because access rules may be absent or may allow anonymous requests. */
const SECURITY: readonly Json[] = [{}, ...Object.keys(SECURITY_SCHEMES).map((name) => ({ [name]: [] }))];

const UNAVAILABLE = failure(
  'The engine is restoring its checkpoint, its store cannot be read at the moment, or credentials cannot be checked.',
  ['restoring', 'kv_io', 'kv_full', 'auth_unavailable'],
  WAIT,
);

const query = (name: string, description: string, schema: Json): Json => ({
  name,
  in: 'query',
  required: false,
  description,
  schema,
});
const TIME: Json = {
  type: 'string',
  pattern: '^(-?[0-9]{1,16}|[0-9]{4}-[0-9]{2}-[0-9]{2}T.+(Z|[+-][0-9]{2}:?[0-9]{2}))$',
};
const FLAG: Json = { enum: ['true', 'false'], default: 'false' };
const FROM = query('from', 'Least window_start: ms since the epoch, or ISO 8601 with a zone.', TIME);
const TO = query('to', 'Exclusive upper bound of window_start.', TIME);
const WINDOW_NAME = query(
  'window',
  'Name of the window (-window=NAME=…); required if the engine has several.',
  { type: 'string' },
);
const UNKNOWN_WINDOW = failure('The engine has no window of this name.', ['unknown_window']);
const WINDOWS_LIMIT_PARAMETER = query('limit', 'Most windows in one response.', {
  type: 'integer',
  minimum: 1,
  maximum: WINDOWS_LIMIT_MAX,
  default: WINDOWS_LIMIT,
});
const CURSOR = query('cursor', 'Position after the previous page, from its Link header.', { type: 'string' });

/** Windows in each form that Accept may ask for. */
const WINDOWS_CONTENT: Json = {
  'application/json': { schema: { type: 'array', items: ref('Window') } },
  'text/csv': { schema: { type: 'string', description: 'A header and a line for each window.' } },
  'text/event-stream': {
    schema: {
      type: 'string',
      description:
        'Windows that become durable from now on, without the other parameters: events `window` with a Window as data and an id for Last-Event-ID; `gap` where windows after Last-Event-ID are not in memory any more; `dropped` before the end of a stream whose client reads too slowly.',
    },
  },
};
const LINK: Json = {
  Link: { description: 'rel="next": the next page.', schema: { type: 'string' } },
  Vary: { description: 'accept', schema: { type: 'string' } },
};
const UNAVAILABLE_WINDOWS = failure(
  'The engine is restoring its checkpoint, its store cannot be read at the moment, credentials cannot be checked, or too many clients follow the windows.',
  ['restoring', 'kv_io', 'kv_full', 'auth_unavailable', 'too_many_streams'],
  WAIT,
);

const U64: Json = { type: 'string', pattern: '^(0|[1-9][0-9]{0,19})$' };
const I64: Json = { type: 'string', pattern: '^-?(0|[1-9][0-9]{0,18})$' };
const KEY: Json = { type: 'string', pattern: '^-?(0|[1-9][0-9]{0,19})$' };
/** Integer, or decimal of a job with a decimal value. */
const NUMBER: Json = { type: 'string', pattern: '^-?(0|[1-9][0-9]{0,37})(\\.[0-9]{1,24})?$' };
const MS: Json = { ...I64, description: 'Milliseconds since the epoch.' };
const COUNT: Json = { type: 'integer', minimum: 0 };
/** Number of a file, or of a byte in it. */
const OFFSET: Json = { ...COUNT, maximum: OFFSET_MAX };

const SAVEPOINT_ID: Json = { name: 'id', in: 'path', required: true, schema: { type: 'string' } };
const SAVEPOINT: Json = {
  type: 'object',
  required: ['id', 'files'],
  additionalProperties: false,
  properties: {
    id: { type: 'string' },
    files: {
      type: 'array',
      items: {
        type: 'object',
        required: ['path', 'bytes'],
        additionalProperties: false,
        properties: { path: { type: 'string' }, bytes: COUNT },
      },
    },
  },
};

/** A key is one of two members. */
const KEY_MEMBERS: Json = {
  account_id: { ...KEY, description: 'Key of a job with integer keys.' },
  key: {
    description:
      'Key of another job: its text, or an object with the text of each part. Bytes are hexadecimal.',
    oneOf: [{ type: 'string' }, { type: 'object', additionalProperties: { type: 'string' } }],
  },
};

const WINDOW: Json = {
  type: 'object',
  required: ['window_start', 'window_end', 'last_update_ts', 'overflow'],
  // Aggregates that the job names.
  additionalProperties: {
    description:
      'Aggregate of a job with -aggregate: an integer or a decimal as text, a double, a list of values, or null.',
    type: ['string', 'number', 'array', 'null'],
    items: {
      type: 'object',
      required: ['value', 'count'],
      properties: { value: { type: 'string' }, count: COUNT },
    },
  },
  properties: {
    ...KEY_MEMBERS,
    window_start: MS,
    window_end: { ...MS, description: 'Milliseconds since the epoch; the window ends before it.' },
    count: U64,
    sum: {
      ...NUMBER,
      description: 'Exact sum of decimals; of integers its low 64 bits, two’s complement.',
    },
    min: NUMBER,
    max: NUMBER,
    last_update_ts: { ...MS, description: 'Greatest event_ts folded in.' },
    overflow: { type: 'boolean', description: 'The exact sum does not fit 64 bits.' },
    final: {
      type: 'boolean',
      description: 'With open=true, and in a job with -emit=updates: whether the window has fired.',
    },
  },
};

const LATE_EVENT: Json = {
  type: 'object',
  required: ['event_ts', 'value', 'reason', 'watermark_ms', 'partition', 'offset', 'timestamp_ms'],
  additionalProperties: false,
  properties: {
    ...KEY_MEMBERS,
    event_ts: MS,
    value: NUMBER,
    reason: {
      enum: ['late', 'late_after_idle'],
      description: 'Behind the watermark of its partition, or of the engine.',
    },
    watermark_ms: { ...MS, description: 'The watermark that decided.' },
    partition: COUNT,
    offset: { ...U64, description: 'Place of the record in its partition.' },
    element: { ...COUNT, description: 'Element of the record’s list, in a job whose events are elements.' },
    timestamp_ms: { type: ['string', 'null'], description: 'Timestamp of the record.' },
  },
};

const PARTITION: Json = {
  type: 'object',
  required: [
    'partition',
    'offset',
    'max_seen_ms',
    'consumed',
    'accepted',
    'dropped_late',
    'invalid_events',
    'dropped_after_idle',
    'future_clamped',
    'idle',
  ],
  properties: {
    partition: COUNT,
    offset: { ...U64, description: 'Next offset to read.' },
    max_seen_ms: {
      type: ['integer', 'null'],
      description: 'Greatest event_ts; null before the first event.',
    },
    consumed: COUNT,
    accepted: COUNT,
    dropped_late: COUNT,
    invalid_events: COUNT,
    dropped_after_idle: COUNT,
    future_clamped: COUNT,
    idle: { type: 'boolean' },
  },
};

const WATERMARK: Json = {
  type: 'object',
  required: ['watermark_ms', 'lag_ms', 'dropped_late', 'mode'],
  properties: {
    watermark_ms: {
      type: ['integer', 'null'],
      description: 'Least watermark over the partitions; null before each has had an event.',
    },
    lag_ms: { type: ['number', 'null'], description: 'Wall time minus watermark; may be negative.' },
    dropped_late: COUNT,
    mode: { enum: ['partition', 'global'], description: 'How partitions share event time.' },
    partitions: { type: 'array', items: ref('Partition') },
  },
};

const PATHS: Json = {
  '/windows': {
    get: {
      operationId: 'listWindows',
      summary: 'Fired windows of all keys in a range of time, or those with the greatest values',
      security: SECURITY,
      parameters: [
        WINDOW_NAME,
        FROM,
        TO,
        WINDOWS_LIMIT_PARAMETER,
        CURSOR,
        query(
          'top',
          `Only this many windows of the range, those with the greatest values of \`by\`, the greatest first. Not with limit or cursor. A range of more than ${TOP_VISITS_MAX} windows is refused.`,
          { type: 'integer', minimum: 1, maximum: TOP_LIMIT_MAX },
        ),
        query(
          'by',
          'Column of `top`: window_start, window_end, last_update_ts, or an aggregate of the job that is a number (without -aggregate count, sum, min and max). Default: count, or the first such aggregate of a job without it.',
          { type: 'string' },
        ),
      ],
      responses: {
        200: {
          description:
            'The windows, ascending by window_start, window_end and key; sessions by the interval of their end, then by key. A page with fewer windows than the limit is not necessarily the last: the last page has no Link header.',
          headers: LINK,
          content: WINDOWS_CONTENT,
        },
        400: failure('An invalid value, or parameters that exclude each other.', [
          'bad_range',
          'range_too_wide',
          'window_required',
        ]),
        ...BY_ACCESS,
        404: UNKNOWN_WINDOW,
        503: UNAVAILABLE_WINDOWS,
      },
    },
  },
  '/windows/{key}': {
    get: {
      operationId: 'findWindows',
      summary: 'Windows of a key, ascending by window_start and window_end',
      security: SECURITY,
      parameters: [
        {
          name: 'key',
          in: 'path',
          required: true,
          description:
            'Integer keys: 64 bits, decimal, signed if the keys of the job are signed integers, else unsigned. Other keys: the text, bytes as hexadecimal digits; a key of several parts has their texts with commas between them, where %2C and %25 stand for a comma and a percent sign of a part.',
          schema: { type: 'string' },
        },
        WINDOW_NAME,
        FROM,
        TO,
        WINDOWS_LIMIT_PARAMETER,
        CURSOR,
        query('open', 'true: includes windows that have not fired.', FLAG),
      ],
      responses: {
        200: {
          description:
            'The windows; empty for an account without windows. A page with fewer windows than the limit is not necessarily the last: the last page has no Link header.',
          headers: LINK,
          content: WINDOWS_CONTENT,
        },
        400: failure('An invalid value, or `from` after `to`.', [
          'bad_account',
          'bad_range',
          'window_required',
        ]),
        ...BY_ACCESS,
        404: UNKNOWN_WINDOW,
        503: UNAVAILABLE_WINDOWS,
      },
    },
  },
  '/late': {
    get: {
      operationId: 'findLateEvents',
      summary: 'Late events that the engine keeps, ascending by partition, offset and element',
      security: SECURITY,
      parameters: [
        WINDOW_NAME,
        query('key', 'Only events of this key, as in the path /windows/{key}.', { type: 'string' }),
        query('from', 'Least event_ts: ms since the epoch, or ISO 8601 with a zone.', TIME),
        query('to', 'Exclusive upper bound of event_ts.', TIME),
        query('limit', 'Most events in one response.', {
          type: 'integer',
          minimum: 1,
          maximum: LATE_LIMIT_MAX,
          default: LATE_LIMIT,
        }),
        query('cursor', 'Position after the previous page, from its Link header.', { type: 'string' }),
      ],
      responses: {
        200: {
          description:
            'The events. A page with fewer events than the limit is not necessarily the last: the last page has no Link header.',
          headers: {
            Link: { description: 'rel="next": the next page.', schema: { type: 'string' } },
          },
          content: body({ type: 'array', items: ref('LateEvent') }),
        },
        400: failure('An invalid value, or `from` after `to`.', [
          'bad_account',
          'bad_range',
          'window_required',
        ]),
        ...BY_ACCESS,
        404: failure('The engine keeps no late events, or has no window of this name.', [
          'late_not_kept',
          'unknown_window',
        ]),
        503: UNAVAILABLE,
      },
    },
  },
  '/watermark': {
    get: {
      operationId: 'watermark',
      summary: 'Progress of event time',
      security: SECURITY,
      parameters: [WINDOW_NAME, query('partitions', 'true: includes the counts of every partition.', FLAG)],
      responses: {
        200: { description: 'The current watermark.', content: body(ref('Watermark')) },
        400: failure('An invalid value.', ['bad_range', 'window_required']),
        ...BY_ACCESS,
        404: UNKNOWN_WINDOW,
        503: UNAVAILABLE,
      },
    },
  },
  '/savepoints': {
    post: {
      operationId: 'holdCheckpoint',
      summary: 'Makes a checkpoint and holds its files for a reader, such as engine savepoint',
      security: SECURITY,
      responses: {
        201: {
          description: 'The files, until they are released, or 10 minutes after the last read.',
          content: body(SAVEPOINT),
        },
        ...BY_ACCESS,
        429: failure(
          'The engine holds two checkpoints already, or over the rate of this client.',
          ['savepoint_busy', 'rate_limited'],
          WAIT,
        ),
        503: failure(
          'The engine is restoring its checkpoint, or cannot make one.',
          ['restoring', 'kv_io', 'kv_full', 'auth_unavailable'],
          WAIT,
        ),
      },
    },
  },
  '/savepoints/{id}/{file}': {
    get: {
      operationId: 'readCheckpointFile',
      summary: 'Bytes of a file, at most 4 MiB in one response',
      security: SECURITY,
      parameters: [
        SAVEPOINT_ID,
        {
          name: 'file',
          in: 'path',
          required: true,
          description: 'Place in `files`, from 0.',
          schema: OFFSET,
        },
        query('from', 'First byte.', { ...OFFSET, default: 0 }),
      ],
      responses: {
        200: {
          description: 'The bytes; none at the end of the file.',
          content: { 'application/octet-stream': { schema: { type: 'string', format: 'binary' } } },
        },
        400: failure('An invalid number.', ['bad_range']),
        ...BY_ACCESS,
        404: failure('The checkpoint was released, or has no such file.', ['savepoint_missing']),
        503: UNAVAILABLE,
      },
    },
  },
  '/savepoints/{id}': {
    delete: {
      operationId: 'releaseCheckpoint',
      summary: 'Releases a checkpoint',
      security: SECURITY,
      parameters: [SAVEPOINT_ID],
      responses: {
        204: { description: 'The files are released.' },
        ...BY_ACCESS,
        404: failure('There is no such checkpoint.', ['savepoint_missing']),
        503: UNAVAILABLE,
      },
    },
  },
  '/openapi.json': {
    get: {
      operationId: 'description',
      summary: 'This description',
      responses: { 200: { description: 'OpenAPI 3.1', content: body({ type: 'object' }) } },
    },
  },
};

/** @param version version of the package
 *  @param hasSavepoints false: there are no routes for savepoints */
export function engineDescription(version: string, hasSavepoints: boolean): Json {
  const paths = Object.entries(PATHS).filter(([path]) => hasSavepoints || !path.startsWith('/savepoints'));
  return {
    openapi: '3.1.0',
    info: {
      title: 'Millrace engine',
      version,
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      description:
        'Event-time windows of a topic. 64-bit integers are strings. Other paths: /metrics, /health, /ready, /version.',
    },
    paths: Object.fromEntries(paths),
    components: {
      securitySchemes: SECURITY_SCHEMES,
      schemas: {
        Window: WINDOW,
        LateEvent: LATE_EVENT,
        Watermark: WATERMARK,
        Partition: PARTITION,
        Error: {
          type: 'object',
          required: ['error', 'code'],
          additionalProperties: false,
          properties: {
            error: { type: 'string', description: 'Human-readable text; may change.' },
            code: { type: 'string', description: 'Stable error code.' },
          },
        },
      },
    },
  };
}
