/** Encoder of pgoutput messages and of the frames around them, written from the PostgreSQL
 *  documentation (54.9 "Logical Replication Message Formats", and 54.4). It is the reference for
 *  the decoder. */

export class Bytes {
  private readonly parts: Buffer[] = [];
  u8(value: number): this {
    this.parts.push(Buffer.from([value]));
    return this;
  }
  u16(value: number): this {
    const part = Buffer.alloc(2);
    part.writeUInt16BE(value);
    this.parts.push(part);
    return this;
  }
  u32(value: number): this {
    const part = Buffer.alloc(4);
    part.writeUInt32BE(value);
    this.parts.push(part);
    return this;
  }
  i64(value: bigint): this {
    const part = Buffer.alloc(8);
    part.writeBigInt64BE(BigInt.asIntN(64, value));
    this.parts.push(part);
    return this;
  }
  text(value: string): this {
    this.parts.push(Buffer.from(`${value}\0`, 'utf8'));
    return this;
  }
  raw(value: Uint8Array): this {
    this.parts.push(Buffer.from(value));
    return this;
  }
  letter(value: string): this {
    return this.u8(value.charCodeAt(0));
  }
  done(): Buffer {
    return Buffer.concat(this.parts);
  }
}

export interface WireColumn {
  readonly name: string;
  readonly typeOid: number;
  readonly isKey: boolean;
}
export type WireCell =
  | { readonly kind: 'n' | 'u' }
  | { readonly kind: 't' | 'b'; readonly bytes: Uint8Array };

const withXid = (bytes: Bytes, xid: number | undefined): Bytes =>
  xid === undefined ? bytes : bytes.u32(xid);

export const begin = (finalLsn: bigint, committedUs: bigint, xid: number): Buffer =>
  new Bytes().letter('B').i64(finalLsn).i64(committedUs).u32(xid).done();

export const commit = (commitLsn: bigint, endLsn: bigint, committedUs: bigint): Buffer =>
  new Bytes().letter('C').u8(0).i64(commitLsn).i64(endLsn).i64(committedUs).done();

export const origin = (lsn: bigint, name: string): Buffer =>
  new Bytes().letter('O').i64(lsn).text(name).done();

export function relation(
  oid: number,
  schema: string,
  name: string,
  columns: readonly WireColumn[],
  xid?: number,
): Buffer {
  const bytes = withXid(new Bytes().letter('R'), xid)
    .u32(oid)
    .text(schema)
    .text(name)
    .letter('d')
    .u16(columns.length);
  for (const column of columns)
    bytes
      .u8(column.isKey ? 1 : 0)
      .text(column.name)
      .u32(column.typeOid)
      .u32(0xffff_ffff);
  return bytes.done();
}

export const type = (oid: number, schema: string, name: string, xid?: number): Buffer =>
  withXid(new Bytes().letter('Y'), xid).u32(oid).text(schema).text(name).done();

function cells(bytes: Bytes, row: readonly WireCell[]): Bytes {
  bytes.u16(row.length);
  for (const cell of row) {
    bytes.letter(cell.kind);
    if (cell.kind === 't' || cell.kind === 'b') bytes.u32(cell.bytes.length).raw(cell.bytes);
  }
  return bytes;
}

export const insert = (oid: number, row: readonly WireCell[], xid?: number): Buffer =>
  cells(withXid(new Bytes().letter('I'), xid).u32(oid).letter('N'), row).done();

export function update(
  oid: number,
  old: { readonly mark: 'K' | 'O'; readonly row: readonly WireCell[] } | undefined,
  row: readonly WireCell[],
  xid?: number,
): Buffer {
  const bytes = withXid(new Bytes().letter('U'), xid).u32(oid);
  if (old !== undefined) cells(bytes.letter(old.mark), old.row);
  return cells(bytes.letter('N'), row).done();
}

export const remove = (oid: number, mark: 'K' | 'O', row: readonly WireCell[], xid?: number): Buffer =>
  cells(withXid(new Bytes().letter('D'), xid).u32(oid).letter(mark), row).done();

export function truncate(oids: readonly number[], xid?: number): Buffer {
  const bytes = withXid(new Bytes().letter('T'), xid).u32(oids.length).u8(1);
  for (const oid of oids) bytes.u32(oid);
  return bytes.done();
}

export const message = (
  transactional: boolean,
  lsn: bigint,
  prefix: string,
  content: Uint8Array,
  xid?: number,
): Buffer =>
  withXid(new Bytes().letter('M'), xid)
    .u8(transactional ? 1 : 0)
    .i64(lsn)
    .text(prefix)
    .u32(content.length)
    .raw(content)
    .done();

export const streamStart = (xid: number, first: boolean): Buffer =>
  new Bytes()
    .letter('S')
    .u32(xid)
    .u8(first ? 1 : 0)
    .done();
export const streamStop = (): Buffer => new Bytes().letter('E').done();
export const streamCommit = (xid: number, commitLsn: bigint, endLsn: bigint, us: bigint): Buffer =>
  new Bytes().letter('c').u32(xid).u8(0).i64(commitLsn).i64(endLsn).i64(us).done();
export const streamAbort = (xid: number, subXid: number): Buffer =>
  new Bytes().letter('A').u32(xid).u32(subXid).done();

/** Message of the server: type, length, body. */
export const frame = (letter: string, body: Uint8Array): Buffer =>
  new Bytes()
    .letter(letter)
    .u32(body.length + 4)
    .raw(body)
    .done();
export const xlogData = (lsn: bigint, payload: Uint8Array): Buffer =>
  frame('d', new Bytes().letter('w').i64(lsn).i64(lsn).i64(0n).raw(payload).done());
export const keepalive = (walEnd: bigint, replyWanted: boolean): Buffer =>
  frame(
    'd',
    new Bytes()
      .letter('k')
      .i64(walEnd)
      .i64(0n)
      .u8(replyWanted ? 1 : 0)
      .done(),
  );

/** Columns of an outbox as its publication includes them. */
export const OUTBOX_COLUMNS: readonly WireColumn[] = [
  { name: 'id', typeOid: 20, isKey: false },
  { name: 'aggregate_id', typeOid: 2950, isKey: false },
  { name: 'msg_id', typeOid: 2950, isKey: false },
  { name: 'event_type', typeOid: 25, isKey: false },
  { name: 'payload', typeOid: 17, isKey: false },
  { name: 'created_at', typeOid: 1184, isKey: false },
];

/** Insert of an outbox row in the binary format, with UUIDs as 16 bytes. */
export function outboxInsert(row: {
  readonly id: bigint;
  readonly aggregateId: Uint8Array;
  readonly msgId: Uint8Array;
  readonly eventType: string;
  readonly payload: Uint8Array;
}): Buffer {
  const cell = (bytes: Uint8Array): WireCell => ({ kind: 'b', bytes });
  return insert(1, [
    cell(new Bytes().i64(row.id).done()),
    cell(row.aggregateId),
    cell(row.msgId),
    cell(Buffer.from(row.eventType)),
    cell(row.payload),
    cell(Buffer.alloc(8)),
  ]);
}
