/** Decoder of pgoutput messages, protocol versions 1 and 2, with text and binary cells. Pure: bytes
 *  in, values out.
 *
 *  Invariants: (1) no byte beyond `end` is read, whatever the message contains; (2) a message has
 *  no bytes left over; (3) an insert and its tuple are borrowed until the next call, because a busy
 *  stream has tens of thousands of them per second.
 *  Source: PostgreSQL 18 documentation, 54.9 "Logical Replication Message Formats".
 */
import { outboxError } from '../../errors.ts';

export interface RelationColumn {
  readonly name: string;
  readonly typeOid: number;
  readonly isKey: boolean;
}

export interface Relation {
  readonly oid: number;
  readonly schema: string;
  readonly name: string;
  readonly columns: readonly RelationColumn[];
}

export const CELL = { null: 0x6e, unchanged: 0x75, text: 0x74, binary: 0x62 } as const;

/** Cells of one row as offsets into `bytes`; `kind` is one of CELL. The arrays grow and never
 *  shrink: only the first `count` elements are valid. */
export class Tuple {
  bytes: Buffer = Buffer.alloc(0);
  count = 0;
  kind = new Uint8Array(16);
  start = new Int32Array(16);
  end = new Int32Array(16);

  reserve(count: number): void {
    if (count <= this.kind.length) return;
    this.kind = new Uint8Array(count);
    this.start = new Int32Array(count);
    this.end = new Int32Array(count);
  }
}

/** Transaction of a message; defined only inside of a streamed block. */
interface InStream {
  readonly xid: number | undefined;
}

export type PgOutputMessage =
  | { readonly kind: 'begin'; readonly finalLsn: bigint; readonly committedUs: bigint; readonly xid: number }
  | {
      readonly kind: 'commit';
      readonly commitLsn: bigint;
      readonly endLsn: bigint;
      readonly committedUs: bigint;
    }
  | { readonly kind: 'origin'; readonly name: string }
  | ({ readonly kind: 'relation'; readonly relation: Relation } & InStream)
  | ({ readonly kind: 'type'; readonly oid: number; readonly name: string } & InStream)
  | ({ readonly kind: 'insert'; readonly relation: Relation; readonly tuple: Tuple } & InStream)
  | ({ readonly kind: 'update' | 'delete'; readonly relation: Relation } & InStream)
  | ({ readonly kind: 'truncate'; readonly relations: readonly number[] } & InStream)
  | ({
      readonly kind: 'message';
      readonly transactional: boolean;
      readonly lsn: bigint;
      readonly prefix: string;
    } & InStream)
  | { readonly kind: 'stream_start'; readonly xid: number; readonly first: boolean }
  | { readonly kind: 'stream_stop' }
  | {
      readonly kind: 'stream_commit';
      readonly xid: number;
      readonly commitLsn: bigint;
      readonly endLsn: bigint;
    }
  | { readonly kind: 'stream_abort'; readonly xid: number; readonly subXid: number };

/** Insert message: one object, reused for all inserts like its tuple. */
interface Inserted {
  readonly kind: 'insert';
  xid: number | undefined;
  relation: Relation;
  readonly tuple: Tuple;
}

const NO_RELATION: Relation = { oid: 0, schema: '', name: '', columns: [] };
const COLUMNS_MAX = 1664;
const RELATIONS_MAX = 65_536;
/** Bytes of an undecodable message that its error shows. */
const SHOWN_BYTES = 24;

export class PgOutputDecoder {
  private readonly relations = new Map<number, Relation>();
  private readonly tuple = new Tuple();
  private readonly inserted: Inserted = {
    kind: 'insert',
    xid: undefined,
    relation: NO_RELATION,
    tuple: this.tuple,
  };
  private bytes: Buffer = Buffer.alloc(0);
  private first = 0;
  private at = 0;
  private end = 0;
  private streaming = false;

  /** Decodes `bytes[start, end)`. @throws wal_undecodable */
  decode(bytes: Buffer, start: number, end: number): PgOutputMessage {
    this.bytes = bytes;
    this.first = start;
    this.at = start;
    this.end = end;
    const message = this.message(this.u8());
    if (this.at !== end) throw this.undecodable(`${end - this.at} bytes are left over`);
    return message;
  }

  private message(type: number): PgOutputMessage {
    switch (type) {
      case 0x49: // I
        return this.insert();
      case 0x42: // B
        return { kind: 'begin', finalLsn: this.u64(), committedUs: this.i64(), xid: this.u32() };
      case 0x43: // C
        this.u8();
        return { kind: 'commit', commitLsn: this.u64(), endLsn: this.u64(), committedUs: this.i64() };
      case 0x52: // R
        return this.relation();
      case 0x4d: // M
        return this.logicalMessage();
      case 0x4f: // O
        this.u64();
        return { kind: 'origin', name: this.text() };
      case 0x59: {
        // Y
        const xid = this.xid();
        const oid = this.u32();
        this.text();
        return { kind: 'type', xid, oid, name: this.text() };
      }
      case 0x55: // U
      case 0x44: // D
        return this.change(type === 0x55 ? 'update' : 'delete');
      case 0x54: // T
        return this.truncate();
      case 0x53: // S
        if (this.streaming) throw this.undecodable('a streamed block begins inside of another');
        this.streaming = true;
        return { kind: 'stream_start', xid: this.u32(), first: this.u8() === 1 };
      case 0x45: // E
        this.streaming = false;
        return { kind: 'stream_stop' };
      case 0x63: {
        // c
        const xid = this.u32();
        this.u8();
        const commitLsn = this.u64();
        const endLsn = this.u64();
        this.u64();
        return { kind: 'stream_commit', xid, commitLsn, endLsn };
      }
      case 0x41: // A
        return { kind: 'stream_abort', xid: this.u32(), subXid: this.u32() };
      default:
        throw this.undecodable('its type is unknown');
    }
  }

  private xid(): number | undefined {
    return this.streaming ? this.u32() : undefined;
  }

  private relation(): PgOutputMessage {
    const xid = this.xid();
    const oid = this.u32();
    const schema = this.text();
    const name = this.text();
    this.u8();
    const count = this.u16();
    if (count > COLUMNS_MAX) throw this.undecodable(`a table of ${count} columns`);
    const columns: RelationColumn[] = [];
    for (let i = 0; i < count; i++) {
      const isKey = (this.u8() & 1) === 1;
      const column = this.text();
      columns.push({ name: column, typeOid: this.u32(), isKey });
      this.u32();
    }
    // Schemas change, and backends describe each relation again. The limit protects the memory from
    // a hostile server.
    if (!this.relations.has(oid) && this.relations.size >= RELATIONS_MAX) this.relations.clear();
    const relation = { oid, schema: schema === '' ? 'pg_catalog' : schema, name, columns };
    this.relations.set(oid, relation);
    return { kind: 'relation', xid, relation };
  }

  private known(): Relation {
    const oid = this.u32();
    const relation = this.relations.get(oid);
    if (relation === undefined) throw this.undecodable(`relation ${oid} was never described`);
    return relation;
  }

  private insert(): PgOutputMessage {
    const xid = this.xid();
    const relation = this.known();
    const part = this.u8();
    if (part !== 0x4e) throw this.undecodable('an insert without its row');
    this.cells(relation);
    const message = this.inserted;
    message.xid = xid;
    message.relation = relation;
    return message;
  }

  private change(kind: 'update' | 'delete'): PgOutputMessage {
    const xid = this.xid();
    const relation = this.known();
    let part = this.u8();
    if (part === 0x4b || part === 0x4f) {
      this.cells(relation);
      part = kind === 'update' ? this.u8() : 0x4e;
    } else if (kind === 'delete') throw this.undecodable('a delete without the old row');
    if (part !== 0x4e) throw this.undecodable('an update without its row');
    if (kind === 'update') this.cells(relation);
    return { kind, xid, relation };
  }

  private cells(relation: Relation): void {
    const { tuple, bytes } = this;
    const count = this.u16();
    if (count !== relation.columns.length)
      throw this.undecodable(`${count} cells for the ${relation.columns.length} columns of ${relation.name}`);
    tuple.reserve(count);
    tuple.bytes = bytes;
    tuple.count = count;
    for (let i = 0; i < count; i++) {
      const kind = this.u8();
      tuple.kind[i] = kind;
      if (kind === CELL.binary || kind === CELL.text) {
        const length = this.u32();
        if (length > this.end - this.at) throw this.undecodable(`a cell of ${length} bytes`);
        tuple.start[i] = this.at;
        this.at += length;
        tuple.end[i] = this.at;
      } else if (kind !== CELL.null && kind !== CELL.unchanged)
        throw this.undecodable(`a cell of kind 0x${kind.toString(16)}`);
    }
  }

  private truncate(): PgOutputMessage {
    const xid = this.xid();
    const count = this.u32();
    this.u8();
    if (count * 4 > this.end - this.at) throw this.undecodable(`a truncation of ${count} tables`);
    return { kind: 'truncate', xid, relations: Array.from({ length: count }, () => this.u32()) };
  }

  private logicalMessage(): PgOutputMessage {
    const xid = this.xid();
    const transactional = (this.u8() & 1) === 1;
    const lsn = this.u64();
    const prefix = this.text();
    const length = this.u32();
    if (length > this.end - this.at) throw this.undecodable(`a text of ${length} bytes`);
    this.at += length;
    return { kind: 'message', xid, transactional, lsn, prefix };
  }

  private advance(count: number): number {
    const at = this.at;
    if (count > this.end - at) throw this.undecodable('it ends too early');
    this.at = at + count;
    return at;
  }

  private u8(): number {
    return this.bytes[this.advance(1)] as number;
  }

  private u16(): number {
    return this.bytes.readUInt16BE(this.advance(2));
  }

  private u32(): number {
    return this.bytes.readUInt32BE(this.advance(4));
  }

  private u64(): bigint {
    return this.bytes.readBigUInt64BE(this.advance(8));
  }

  private i64(): bigint {
    return this.bytes.readBigInt64BE(this.advance(8));
  }

  private text(): string {
    const zero = this.bytes.indexOf(0, this.at);
    if (zero < 0 || zero >= this.end) throw this.undecodable('a text without its end');
    const text = this.bytes.toString('utf8', this.at, zero);
    this.at = zero + 1;
    return text;
  }

  private undecodable(why: string): Error {
    const shown = this.bytes.toString('hex', this.first, Math.min(this.end, this.first + SHOWN_BYTES));
    return outboxError(
      'wal_undecodable',
      `a pgoutput message of ${this.end - this.first} bytes cannot be read: ${why}`,
      {
        next: `report it with its first bytes, ${shown === '' ? 'none' : shown}; its rows stay pending and are published from the table`,
      },
    );
  }
}
