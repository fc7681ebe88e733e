/** Reference codec for Avro: avsc writes and reads. It is slower than the compiled codec, lets more
 *  values pass, and resolves schemas by its own rules; it is for comparison. */
import avsc from 'avsc';
import type { Decode, Encode } from '../../decode.ts';
import { formatError } from '../../errors.ts';
import type { AvroSchema, Schema } from '../../schema.ts';
import { shownOf } from '../../shown.ts';
import { branchKey, isWrapped } from '../codec/branch.ts';
import { type AvroNode, type AvroUnionNode, avroTypeName } from '../syntax/tree.ts';
import { avscType } from './avsc-type.ts';

const types = new WeakMap<AvroSchema, avsc.Type>();

/** avsc type of a schema.
 *  @throws invalid_schema for a schema that the specification allows and avsc does not */
function typeOf(schema: AvroSchema): avsc.Type {
  const known = types.get(schema);
  if (known !== undefined) return known;
  try {
    const type = avscType(schema.tree);
    types.set(schema, type);
    return type;
  } catch (cause) {
    throw formatError(
      'invalid_schema',
      `the Avro codec cannot use this schema: ${(cause as Error).message}`,
      { cause },
    );
  }
}

/** Bytes by which the buffer grows when a value does not fit. */
const GROWTH_BYTES = 4096;

/** Makes the encoder of a schema. It throws value_refused with the detail `path`. */
export function avroReferenceWriter(schema: AvroSchema): Encode {
  const type = typeOf(schema);
  return (given, into) => {
    let value = given;
    for (;;) {
      let end: number;
      try {
        end = type.encode(value, into.bytes, into.used);
      } catch (cause) {
        const buffered = value === given ? withBuffers(given, 0) : value;
        if (buffered !== value) {
          value = buffered;
          continue;
        }
        const found = misfit(schema, type, value);
        throw formatError('value_refused', found?.why ?? unexplained(cause), {
          cause,
          ...(found === undefined ? {} : { details: { path: found.path } }),
        });
      }
      if (end >= 0) {
        into.push(end);
        return;
      }
      into.grow(GROWTH_BYTES - end);
    }
  };
}

/** Most levels of a value in which bytes are converted. */
const BUFFERS_DEPTH_MAX = 300;

/** Copy of a value with a Buffer for each Uint8Array, because avsc accepts no other bytes; the
 *  value itself where it has none. */
function withBuffers(value: unknown, depth: number): unknown {
  if (typeof value !== 'object' || value === null || Buffer.isBuffer(value) || depth > BUFFERS_DEPTH_MAX)
    return value;
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  if (Array.isArray(value)) {
    const items = value.map((item) => withBuffers(item, depth + 1));
    return items.some((item, i) => item !== value[i]) ? items : value;
  }
  const members = Object.entries(value).map(([key, one]) => [key, withBuffers(one, depth + 1)] as const);
  const isNew = members.some(([key, one]) => one !== (value as Members)[key]);
  return isNew ? Object.fromEntries(members) : value;
}

const unexplained = (cause: unknown): string =>
  `a value does not fit its Avro schema: ${(cause as Error).message}`;

interface Misfit {
  /** Path such as `Order.items[2].price`. */
  readonly path: string;
  readonly why: string;
}

/** First part of a value that does not fit. Undefined where avsc's check accepts the value, or
 *  fails. */
function misfit(schema: AvroSchema, type: avsc.Type, value: unknown): Misfit | undefined {
  let found: Misfit | undefined;
  const errorHook = (keys: readonly string[], part: unknown, expected: avsc.Type): void => {
    if (found !== undefined) return;
    const path = placeOf(avroTypeName(schema.tree), keys, value);
    found = { path, why: `${path} cannot hold ${shownOf(part)}: it is ${wordOf(expected)}` };
  };
  try {
    type.isValid(value, { errorHook } as Parameters<avsc.Type['isValid']>[1]);
  } catch {
    // The check overflows the stack for a value that contains itself, and avsc cannot compare a
    // bigint with an int. The first error is reported instead.
  }
  return found;
}

const PLAIN_KEY = /^[\w.]+$/;

function placeOf(root: string, path: readonly string[], value: unknown): string {
  let place = root;
  let inside: unknown = value;
  for (const key of path) {
    const isName = !Array.isArray(inside) && PLAIN_KEY.test(key);
    const shown = Array.isArray(inside) ? key : shownOf(key);
    place += isName ? `.${key}` : `[${shown}]`;
    inside = (inside as Readonly<Record<string, unknown>> | null | undefined)?.[key];
  }
  return place;
}

function wordOf(type: avsc.Type): string {
  if (avsc.Type.isType(type, 'union'))
    return `one of ${(type as avsc.types.UnwrappedUnionType).types.map(wordOf).join(', ')}`;
  const kind = type.typeName.replace('abstract:', '');
  return type.name === undefined ? kind : `${kind} ${type.name}`;
}

/** Makes the decoder of a pair of schemas. It throws malformed_payload.
 *  @throws incompatible_schema for a pair that avsc does not resolve */
export function avroReferenceReader(reader: AvroSchema, writer: Schema): Decode {
  if (writer.format !== 'AVRO') throw formatError('incompatible_schema', 'the record is not Avro');
  const same = reader.identity === writer.identity;
  const target = same ? writer : reader;
  const type = typeOf(target);
  const resolver = same ? undefined : resolverOf(type, typeOf(writer));
  return (bytes, start, end) => {
    let value: unknown;
    try {
      value = type.fromBuffer(bytes.subarray(start, end), resolver);
    } catch (cause) {
      throw formatError('malformed_payload', `avsc cannot read the payload: ${(cause as Error).message}`, {
        cause,
      });
    }
    return plainOf(target.tree, value);
  };
}

function resolverOf(reader: avsc.Type, writer: avsc.Type): ReturnType<avsc.Type['createResolver']> {
  try {
    return reader.createResolver(writer);
  } catch (cause) {
    throw formatError('incompatible_schema', `avsc cannot resolve the schemas: ${(cause as Error).message}`, {
      cause,
    });
  }
}

type Members = Readonly<Record<string, unknown>>;

/** Converts a value of avsc to the form of the compiled decoder: records and wrapped values are
 *  plain objects. */
function plainOf(node: AvroNode, value: unknown): unknown {
  switch (node.kind) {
    case 'array':
      return (value as readonly unknown[]).map((item) => plainOf(node.items, item));
    case 'map':
      return Object.fromEntries(
        Object.entries(value as Members).map(([key, one]) => [key, plainOf(node.values, one)]),
      );
    case 'record':
      return Object.fromEntries(
        node.fields.map(({ name, type }) => [name, plainOf(type, (value as Members)[name])]),
      );
    case 'union':
      return plainOfUnion(node, value);
    default:
      return value;
  }
}

function plainOfUnion(union: AvroUnionNode, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Buffer.isBuffer(value)) return value;
  const { branches } = union;
  const [key] = Object.keys(value);
  const named = branches.find((branch) => branchKey(branch) === key);
  if (key !== undefined && named !== undefined && isWrapped(union))
    return { [key]: plainOf(named, (value as Members)[key]) };
  // avsc wraps each value of a union with several number types.
  const isBranch = value.constructor.name === 'Branch$';
  if (key !== undefined && named !== undefined && isBranch) return plainOf(named, (value as Members)[key]);
  const kinds = Array.isArray(value) ? ['array'] : ['record', 'map'];
  const plain = branches.find((branch) => kinds.includes(branch.kind));
  return plain === undefined ? value : plainOf(plain, value);
}
