/** Headers of a record in the shapes of the Kafka clients for Node.js. */

type HeaderValue = Uint8Array | string | null | undefined;

/** Headers of a record as a Kafka client returns them: an object (kafkajs,
 *  @confluentinc/kafka-javascript), a Map (@platformatic/kafka), or a list of objects with one
 *  header each (node-rdkafka). */
export type RecordHeaders =
  | Readonly<Record<string, HeaderValue | readonly HeaderValue[]>>
  | ReadonlyMap<Uint8Array | string, HeaderValue>
  | readonly Readonly<Record<string, HeaderValue>>[];

type Found = HeaderValue | readonly HeaderValue[];

/** Bytes of the header `name`: the first one where a record has several; undefined without one. */
export function headerOf(headers: RecordHeaders | undefined, name: string): Uint8Array | undefined {
  if (headers === undefined) return undefined;
  const found = valueIn(headers, name);
  const first = Array.isArray(found) ? (found as readonly HeaderValue[])[0] : (found as HeaderValue);
  return typeof first === 'string' ? Buffer.from(first, 'latin1') : (first ?? undefined);
}

function valueIn(headers: RecordHeaders, name: string): Found {
  if (headers instanceof Map) {
    // @platformatic/kafka returns the names as bytes unless a deserializer turns them into text.
    for (const [key, value] of headers as ReadonlyMap<Uint8Array | string, HeaderValue>)
      if (isNamed(key, name)) return value;
    return undefined;
  }
  if (Array.isArray(headers))
    return (headers as readonly Readonly<Record<string, HeaderValue>>[]).find((one) =>
      Object.hasOwn(one, name),
    )?.[name];
  return (headers as Readonly<Record<string, Found>>)[name];
}

const isNamed = (key: Uint8Array | string, name: string): boolean =>
  typeof key === 'string' ? key === name : key.length === name.length && Buffer.from(key).equals(Buffer.from(name));
