/** Event as a service gives it to `append`, and the checks of its fields. */
import { outboxError } from '../errors.ts';
import { isTraceparent, isTracestate, jsonOf } from '../given-values.ts';
import { canonicalUuid } from '../ids.ts';
import { isJsonText } from '../json-text.ts';
import {
  derivedAggregateId,
  type HeaderValue,
  headersText,
  isJsonContent,
  JSON_TYPE,
  type RecordFields,
} from './record-columns.ts';

/** Value that JSON.stringify writes without loss. */
export type JsonValue =
  | null
  | boolean
  | number
  | string
  | readonly JsonValue[]
  | { readonly [name: string]: JsonValue | undefined };

/** Attributes of a CloudEvent that the relay does not know. */
export interface CloudEventFields {
  /** URI reference of the producer. Default: the relay's `source`. */
  readonly source?: string;
  /** Default: the id of the aggregate. */
  readonly subject?: string;
  /** URI of the schema of the payload. */
  readonly dataSchema?: string;
  /** Extension attributes: names of 1 to 20 lower-case letters and digits. */
  readonly extensions?: Readonly<Record<string, string>>;
}

/** Serializer of values: `registry.serializer(…)` of millrace/registry, or another object with this
 *  interface. */
export interface EventSchema {
  /** Loads the schema. `append` awaits it at each call, so it must cache its result. */
  prefetch?(): Promise<unknown>;
  // biome-ignore lint/suspicious/noExplicitAny: each serializer has its own type of values
  serialize(value: any): Uint8Array;
  /** Headers of every record, such as that of the schema id. */
  readonly headers?: Readonly<Record<string, Uint8Array>>;
  /** AVRO, PROTOBUF or JSON: determines the header content-type. */
  readonly format?: string;
}

interface EventFields {
  /** Id of the aggregate: the key of the record, and the unit of ordering. A UUID in any case, or
   *  another text of 1 to AGGREGATE_ID_BYTES_MAX bytes. */
  readonly aggregateId: string;
  /** Visible ASCII, 1 to 200 characters, such as `parcel.sent.v1`. */
  readonly eventType: string;
  /** W3C trace context of the cause of the event. Default: the active span of OpenTelemetry. */
  readonly traceparent?: string;
  /** W3C tracestate of that `traceparent`. Default: that of the active span. */
  readonly tracestate?: string;
  /** Headers of the record, beside those of the relay. At most HEADERS_MAX with HEADERS_BYTES_MAX;
   *  names of 1 to 100 visible ASCII characters. */
  readonly headers?: Readonly<Record<string, HeaderValue>>;
  /** Topic of the record. Default: the relay's choice by event type. */
  readonly topic?: string;
  /** Key of the record, 1 to AGGREGATE_ID_BYTES_MAX bytes. Default: the aggregate id. The events of
   *  one aggregate keep their order if they have one key. */
  readonly partitionKey?: string;
  /** Publishes the payload alone as the value: a CloudEvent in binary content mode. */
  readonly cloudEvent?: true | CloudEventFields;
}

export interface PayloadEvent extends EventFields {
  /** JSON value, or JSON as UTF-8 bytes; it is copied unchanged into the value of the record. The
   *  type `object` admits types declared as `interface`, which have no index signature. `append`
   *  refuses what JSON cannot hold. */
  readonly payload: Uint8Array | JsonValue | object;
  /** Publishes the payload alone as the value, with this media type: visible ASCII, 1 to 200
   *  characters. A payload of bytes then may have any content, unless the type is
   *  application/json. */
  readonly contentType?: string;
}

export interface SchemaEvent extends EventFields {
  /** Serializer of the value; its bytes alone become the value of the record. */
  readonly schema: EventSchema;
  readonly value: unknown;
}

export type OutboxEvent = PayloadEvent | SchemaEvent;

/** Largest payload. The record with its headers must fit into one megabyte, the default limit of a
 *  broker. */
export const PAYLOAD_BYTES_MAX = 900_000;
/** Largest id of an aggregate, and largest partition key, in bytes of UTF-8. */
export const AGGREGATE_ID_BYTES_MAX = 500;
/** Largest number of headers of an event, attributes of a CloudEvent included. */
export const HEADERS_MAX = 32;
/** Largest sum of the names and values of these headers. */
export const HEADERS_BYTES_MAX = 8192;

const EVENT_TYPE = /^[\x21-\x7e]{1,200}$/;
const HEADER_NAME = /^[\x21-\x7e]{1,100}$/;
/** Names of the headers that the relay, CloudEvents and the registry define. */
const RESERVED =
  /^(?:(?:ce_|relay_|millrace_).*|content-type|traceparent|tracestate|__(?:key|value)_schema_id)$/i;
const TOPIC = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/;
const MEDIA_TYPE = /^[\x21-\x7e](?:[\x20-\x7e]{0,198}[\x21-\x7e])?$/;
const URI_REFERENCE = /^[\x21-\x7e]{1,500}$/;
const EXTENSION = /^[a-z0-9]{1,20}$/;
/** Attributes of CloudEvents that are not extensions, and extensions that the relay sets. */
const ATTRIBUTES = new Set(
  'id source specversion type subject time data datacontenttype dataschema partitionkey sequence'.split(' '),
);
/** Media types of the formats of the registry. The frame before a JSON value is not JSON. */
const CONTENT_TYPES: Readonly<Record<string, string>> = {
  AVRO: 'application/avro',
  PROTOBUF: 'application/protobuf',
};
const FRAMED_TYPE = 'application/octet-stream';

/** True for a name that Kafka accepts as a topic. */
export const isTopicName = (name: string): boolean => TOPIC.test(name);

export function bad(why: string, next = 'correct the event; no row was written') {
  return outboxError('bad_event', why, { next });
}

const shown = (value: unknown): string => JSON.stringify(String(value).slice(0, 60));

/** Text of 1 to AGGREGATE_ID_BYTES_MAX bytes that PostgreSQL and UTF-8 can hold. */
function isKeyText(value: unknown): value is string {
  if (typeof value !== 'string' || value.length === 0 || value.length > AGGREGATE_ID_BYTES_MAX) return false;
  return (
    Buffer.byteLength(value) <= AGGREGATE_ID_BYTES_MAX &&
    !value.includes('\u0000') &&
    !/\p{Surrogate}/u.test(value)
  );
}

/** Returns the id of an aggregate, a UUID in its canonical form. @throws bad_event */
export function aggregateIdOf(value: unknown, index: number): string {
  if (!isKeyText(value))
    throw bad(
      `aggregateId of event ${index} is not a text of 1 to ${AGGREGATE_ID_BYTES_MAX} bytes without a NUL: ${shown(value)}`,
    );
  return canonicalUuid(value) ?? value;
}

function eventTypeOf(value: unknown, index: number): string {
  if (typeof value === 'string' && EVENT_TYPE.test(value)) return value;
  throw bad(
    `eventType of event ${index} is not a text of 1 to 200 visible ASCII characters: ${shown(value)}`,
  );
}

function traceparentOf(value: unknown, index: number): string | null {
  if (value === undefined) return null;
  if (isTraceparent(value)) return value;
  throw bad(`traceparent of event ${index} is not of the form 00-TRACE-SPAN-FLAGS: ${shown(value)}`);
}

function tracestateOf(value: unknown, traceparent: unknown, index: number): string | null {
  if (value === undefined) return null;
  if (traceparent === undefined)
    throw bad(`event ${index} has a tracestate without the traceparent that it belongs to`, 'give both');
  if (isTracestate(value)) return value;
  throw bad(`tracestate of event ${index} is not a list of KEY=VALUE: ${shown(value)}`);
}

function topicOf(value: unknown, index: number): string | null {
  if (value === undefined) return null;
  if (typeof value === 'string' && isTopicName(value)) return value;
  throw bad(
    `topic of event ${index} is not a name of 1 to 249 letters, digits, dots, hyphens and underscores: ${shown(value)}`,
  );
}

function partitionKeyOf(value: unknown, index: number): string | null {
  if (value === undefined) return null;
  if (isKeyText(value)) return value;
  throw bad(
    `partitionKey of event ${index} is not a text of 1 to ${AGGREGATE_ID_BYTES_MAX} bytes without a NUL: ${shown(value)}`,
  );
}

/** Checked fields of one event. */
export interface CheckedEvent extends RecordFields {
  /** UUID of the column aggregate_id. */
  readonly aggregateId: string;
  readonly eventType: string;
  readonly payload: Buffer;
  readonly traceparent: string | null;
  /** Belongs to `traceparent`; null without it. */
  readonly tracestate: string | null;
}

/** Checks an event. @throws bad_event; errors of its serializer */
export function checkedEvent(given: unknown, index: number): CheckedEvent {
  if (typeof given !== 'object' || given === null) throw bad(`event ${index} is not an object`);
  const event = given as PayloadEvent & Partial<SchemaEvent>;
  const id = aggregateIdOf(event.aggregateId, index);
  const aggregateId = canonicalUuid(id) ?? derivedAggregateId(id);
  const { payload, contentType, headers: framing } = contentOf(event, index);
  const headers = [...attributesOf(event.cloudEvent, index), ...framing, ...ownHeaders(event.headers, index)];
  return {
    aggregateId,
    aggregateKey: aggregateId === id ? null : id,
    eventType: eventTypeOf(event.eventType, index),
    payload,
    traceparent: traceparentOf(event.traceparent, index),
    tracestate: tracestateOf(event.tracestate, event.traceparent, index),
    topic: topicOf(event.topic, index),
    partitionKey: partitionKeyOf(event.partitionKey, index),
    headers: headers.length === 0 ? null : headersText(withinLimits(headers, index)),
    contentType,
  };
}

type Header = readonly [name: string, value: HeaderValue];

interface Content {
  readonly payload: Buffer;
  readonly contentType: string | null;
  readonly headers: readonly Header[];
}

function contentOf(event: PayloadEvent & Partial<SchemaEvent>, index: number): Content {
  const { schema, value, contentType: given } = event;
  if (schema === undefined) {
    const contentType = contentTypeOf(given, index) ?? (event.cloudEvent === undefined ? null : JSON_TYPE);
    return { payload: payloadOf(event.payload, contentType, index), contentType, headers: [] };
  }
  if ('payload' in event || given !== undefined)
    throw bad(`event ${index} has a schema, and also a payload or a contentType`, 'give schema and value');
  if (typeof schema?.serialize !== 'function')
    throw bad(`schema of event ${index} has no function serialize`, 'give a serializer of millrace/registry');
  const bytes = schema.serialize(value);
  if (!(bytes instanceof Uint8Array)) throw bad(`the serializer of event ${index} returned no bytes`);
  const headers = Object.entries(schema.headers ?? {});
  // Without a frame, the bytes are what the format says.
  const isBareJson = schema.format === 'JSON' && headers.length > 0;
  return {
    payload: sized(Buffer.from(bytes), index),
    contentType: isBareJson ? JSON_TYPE : (CONTENT_TYPES[schema.format ?? ''] ?? FRAMED_TYPE),
    headers,
  };
}

function contentTypeOf(value: unknown, index: number): string | null {
  if (value === undefined) return null;
  if (typeof value === 'string' && MEDIA_TYPE.test(value)) return value;
  throw bad(`contentType of event ${index} is not a media type of 1 to 200 characters: ${shown(value)}`);
}

/** Copies the payload, so that later changes of the caller's buffer have no effect. */
function payloadOf(value: unknown, contentType: string | null, index: number): Buffer {
  if (value instanceof Uint8Array) {
    const bytes = sized(Buffer.from(value), index);
    if (isJsonContent(contentType) && !isJsonText(bytes))
      throw bad(`payload of event ${index} is not JSON in UTF-8`);
    return bytes;
  }
  let text: string;
  try {
    text = jsonOf(value);
  } catch (thrown) {
    throw bad(`payload of event ${index} is not a JSON value: ${(thrown as Error).message}`);
  }
  return sized(Buffer.from(text, 'utf8'), index);
}

function sized(bytes: Buffer, index: number): Buffer {
  if (bytes.length <= PAYLOAD_BYTES_MAX) return bytes;
  throw bad(
    `payload of event ${index} has ${bytes.length} bytes, at most ${PAYLOAD_BYTES_MAX} fit into a record`,
    'store large contents elsewhere and put their address into the event',
  );
}

/** Attributes that the event sets itself, as headers. */
function attributesOf(given: unknown, index: number): readonly Header[] {
  if (given === undefined || given === true) return [];
  if (typeof given !== 'object' || given === null)
    throw bad(`cloudEvent of event ${index} is neither true nor an object`);
  const { source, subject, dataSchema, extensions = {}, ...unknown } = given as CloudEventFields;
  const [other] = Object.keys(unknown);
  if (other !== undefined)
    throw bad(`cloudEvent of event ${index} has no field ${shown(other)}`, 'put extensions into extensions');
  const headers: Header[] = [];
  for (const [name, value] of [
    ['source', source],
    ['dataschema', dataSchema],
  ] as const) {
    if (value === undefined) continue;
    if (typeof value !== 'string' || !URI_REFERENCE.test(value))
      throw bad(`${name} of the CloudEvent of event ${index} is not a URI reference: ${shown(value)}`);
    headers.push([`ce_${name}`, value]);
  }
  if (subject !== undefined) {
    if (!isKeyText(subject))
      throw bad(`subject of the CloudEvent of event ${index} is not a text: ${shown(subject)}`);
    headers.push(['ce_subject', subject]);
  }
  if (typeof extensions !== 'object' || extensions === null)
    throw bad(`extensions of the CloudEvent of event ${index} are not an object`);
  for (const [name, value] of Object.entries(extensions)) {
    if (!EXTENSION.test(name) || ATTRIBUTES.has(name))
      throw bad(`${shown(name)} of event ${index} is not the name of an extension of CloudEvents`);
    if (!isKeyText(value)) throw bad(`the extension ${name} of event ${index} is not a text`);
    headers.push([`ce_${name}`, value]);
  }
  return headers;
}

function ownHeaders(given: unknown, index: number): readonly Header[] {
  if (given === undefined) return [];
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw bad(`headers of event ${index} are not an object of names and values`);
  const headers = Object.entries(given);
  for (const [name, value] of headers) {
    if (!HEADER_NAME.test(name))
      throw bad(
        `headers of event ${index} have a name that is not 1 to 100 visible ASCII characters: ${shown(name)}`,
      );
    if (RESERVED.test(name))
      throw bad(`the header ${name} of event ${index} is reserved`, 'use another name; no row was written');
    const isText = typeof value === 'string' && !/\p{Surrogate}/u.test(value);
    if (!isText && !(value instanceof Uint8Array))
      throw bad(`the header ${name} of event ${index} is neither a text nor bytes`);
  }
  return headers;
}

function withinLimits(headers: readonly Header[], index: number): readonly Header[] {
  let bytes = 0;
  for (const [name, value] of headers)
    bytes += Buffer.byteLength(name) + (typeof value === 'string' ? Buffer.byteLength(value) : value.length);
  if (headers.length <= HEADERS_MAX && bytes <= HEADERS_BYTES_MAX) return headers;
  throw bad(
    `event ${index} has ${headers.length} headers with ${bytes} bytes, at most ${HEADERS_MAX} with ${HEADERS_BYTES_MAX} are stored`,
    'put large contents into the payload',
  );
}
