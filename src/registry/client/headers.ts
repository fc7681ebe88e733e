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

/** Bytes of the header `name`, of the last one where a record has several (`lastHeader` of the Java
 *  client); undefined without one.
 */
export function headerOf(headers: RecordHeaders | undefined, name: string): Uint8Array | undefined {
  if (headers === undefined) return undefined;
  const found = valueIn(headers, name);
  const last = Array.isArray(found) ? (found as readonly HeaderValue[]).at(-1) : (found as HeaderValue);
  return typeof last === 'string' ? Buffer.from(last, 'latin1') : (last ?? undefined);
}

function valueIn(headers: RecordHeaders, name: string): Found {
  if (headers instanceof Map) {
    let found: HeaderValue;
    // The names are bytes unless a deserializer of the client turns them into text.
    for (const [key, value] of headers as ReadonlyMap<Uint8Array | string, HeaderValue>)
      if (isNamed(key, name)) found = value;
    return found;
  }
  if (Array.isArray(headers))
    return (headers as readonly Readonly<Record<string, HeaderValue>>[]).findLast((one) =>
      Object.hasOwn(one, name),
    )?.[name];
  return (headers as Readonly<Record<string, Found>>)[name];
}

const isNamed = (key: Uint8Array | string, name: string): boolean =>
  typeof key === 'string' ? key === name : key.length === name.length && Buffer.from(key).toString() === name;
