/** Reads events from framed Avro records: one zero byte, the schema id in four bytes, and the Avro
 *  binary of a record. Key, time and value are top-level fields of type int or long; all other
 *  fields are skipped.
 *
 *  It shares no code with the codecs, the registry client or the engine. Sources: the Avro
 *  specification (binary encoding) and the HTTP interface of schema registries. */

const FRAME_BYTES = 5;

export interface EventFields {
  readonly key: string;
  /** Milliseconds since the epoch. */
  readonly time: string;
  readonly value: string;
}

export interface FramedEvent {
  readonly schemaId: number;
  readonly key: bigint;
  readonly timeMs: bigint;
  readonly value: bigint;
}

/** Position in the bytes of a record; a read beyond the end throws. */
class Cursor {
  private readonly bytes: Uint8Array;
  private at: number;

  constructor(bytes: Uint8Array, at: number) {
    this.bytes = bytes;
    this.at = at;
  }

  get isAtEnd(): boolean {
    return this.at === this.bytes.length;
  }

  skip(count: number): void {
    this.at += count;
    if (count < 0 || this.at > this.bytes.length) throw new Error('the record ends inside a value');
  }

  skipVarint(): void {
    while (this.byte() >= 0x80);
  }

  /** Reads a zigzag varint of 64 bits. */
  long(): bigint {
    let bits = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.byte();
      bits |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asIntN(64, (bits >> 1n) ^ -(bits & 1n));
    }
  }

  count(): number {
    return Number(this.long());
  }

  private byte(): number {
    const byte = this.bytes[this.at++];
    if (byte === undefined) throw new Error('the record ends inside a value');
    return byte;
  }
}

type Skip = (cursor: Cursor) => void;

interface NamedSchema {
  readonly type: string;
  readonly name?: string;
  readonly namespace?: string;
  readonly fields?: readonly { readonly name: string; readonly type: Schema }[];
  readonly items?: Schema;
  readonly values?: Schema;
  readonly size?: number;
}
type Schema = string | readonly Schema[] | NamedSchema;

const PRIMITIVES: Readonly<Record<string, Skip>> = {
  null: () => {},
  boolean: (cursor) => cursor.skip(1),
  int: (cursor) => cursor.skipVarint(),
  long: (cursor) => cursor.skipVarint(),
  float: (cursor) => cursor.skip(4),
  double: (cursor) => cursor.skip(8),
  bytes: (cursor) => cursor.skip(cursor.count()),
  string: (cursor) => cursor.skip(cursor.count()),
};

/** Blocks of items up to an empty one; a negative count is followed by the bytes of the block. */
function skipBlocks(cursor: Cursor, item: Skip): void {
  for (let count = cursor.count(); count !== 0; count = cursor.count()) {
    if (count < 0) cursor.skip(cursor.count());
    else for (let i = 0; i < count; i++) item(cursor);
  }
}

/** Compiles the skipping of a schema. @param names named types that were defined before, by full
 *  name */
function skipOf(schema: Schema, names: Map<string, Skip>, namespace: string): Skip {
  if (typeof schema === 'string') {
    const known = PRIMITIVES[schema] ?? names.get(fullName(schema, namespace));
    if (known === undefined) throw new Error(`the schema has an unknown type ${schema}`);
    return known;
  }
  if ('length' in schema) {
    const branches = schema.map((branch) => skipOf(branch, names, namespace));
    return (cursor) => {
      const branch = branches[cursor.count()];
      if (branch === undefined) throw new Error('a union has no such branch');
      branch(cursor);
    };
  }
  return namedOf(schema, names, namespace);
}

const fullName = (name: string, namespace: string): string =>
  name.includes('.') || namespace === '' ? name : `${namespace}.${name}`;

function namedOf(schema: NamedSchema, names: Map<string, Skip>, outer: string): Skip {
  const {
    type,
    name = '',
    namespace = outer,
    items = 'null',
    values = 'null',
    size = 0,
    fields = [],
  } = schema;
  const define = (skip: Skip): Skip => {
    names.set(fullName(name, namespace), skip);
    return skip;
  };
  switch (type) {
    case 'record': {
      const parts: Skip[] = [];
      const skip = define((cursor) => {
        for (const part of parts) part(cursor);
      });
      for (const field of fields) parts.push(skipOf(field.type, names, namespace));
      return skip;
    }
    case 'enum':
      return define((cursor) => cursor.skipVarint());
    case 'fixed':
      return define((cursor) => cursor.skip(size));
    case 'array': {
      const item = skipOf(items, names, namespace);
      return (cursor) => skipBlocks(cursor, item);
    }
    case 'map': {
      const value = skipOf(values, names, namespace);
      return (cursor) =>
        skipBlocks(cursor, (at) => {
          at.skip(at.count());
          value(at);
        });
    }
    default:
      return skipOf(type, names, namespace);
  }
}

/** True for int and long, with or without a logical type. */
const isInteger = (type: Schema): boolean =>
  type === 'int' || type === 'long' || (typeof type === 'object' && 'type' in type && isInteger(type.type));

/** Compiles the reading of the fields of one writer schema. @throws Error for a field that the
 *  schema lacks or whose type is another one */
function readerOf(text: string, schemaId: number, fields: EventFields): (cursor: Cursor) => FramedEvent {
  const schema = JSON.parse(text) as NamedSchema;
  const names = new Map<string, Skip>();
  const wanted = Object.entries(fields) as [keyof EventFields, string][];
  const places = (schema.fields ?? []).map(({ name, type }) => {
    const roles = wanted.flatMap(([role, field]) => (field === name ? [role] : []));
    if (roles.length > 0 && !isInteger(type)) throw new Error(`${name} of schema ${schemaId} is no integer`);
    return { roles, skip: skipOf(type, names, schema.namespace ?? '') };
  });
  if (places.flatMap(({ roles }) => roles).length < wanted.length)
    throw new Error(`schema ${schemaId} lacks one of ${Object.values(fields).join(', ')}`);
  return (cursor) => {
    const found = { key: 0n, time: 0n, value: 0n };
    for (const { roles, skip } of places) {
      if (roles.length === 0) {
        skip(cursor);
        continue;
      }
      const number = cursor.long();
      for (const role of roles) found[role] = number;
    }
    if (!cursor.isAtEnd) throw new Error('bytes follow the record');
    return { schemaId, key: found.key, timeMs: found.time, value: found.value };
  };
}

async function get(url: string): Promise<unknown> {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url} answers ${answer.status}`);
  return answer.json();
}

/** Loads the versions of a subject and returns the reader of its framed events. The reader returns
 *  undefined for a value that is no event: no frame, another schema, or other bytes. */
export async function framedEvents(
  registry: string,
  subject: string,
  fields: EventFields,
): Promise<(value: Uint8Array | null) => FramedEvent | undefined> {
  const path = `${registry}/subjects/${encodeURIComponent(subject)}/versions`;
  const readers = new Map<number, (cursor: Cursor) => FramedEvent>();
  for (const version of (await get(path)) as readonly number[]) {
    const { id, schema } = (await get(`${path}/${version}`)) as {
      readonly id: number;
      readonly schema: string;
    };
    readers.set(id, readerOf(schema, id, fields));
  }
  return (value) => {
    if (value === null || value.length < FRAME_BYTES || value[0] !== 0) return undefined;
    const id = new DataView(value.buffer, value.byteOffset, value.length).getUint32(1);
    try {
      return readers.get(id)?.(new Cursor(value, FRAME_BYTES));
    } catch {
      return undefined;
    }
  };
}
