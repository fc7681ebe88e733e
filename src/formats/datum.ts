/** Values of a schema with nothing left out: which branch of a union, which fields are there. Witnesses are made of
 *  them; what a consumer's program sees is a plainer form of the same.
 *
 *  Each is read along its type, so a number alone does not say whether it is an int or an enum's index.
 */

/** null; boolean; int, float, double: number; long: bigint; bytes, fixed: Uint8Array; string, enum symbol: string. */
export type AvroDatum =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | readonly AvroDatum[]
  | ReadonlyMap<string, AvroDatum>
  | AvroRecordDatum
  | AvroBranchDatum;

export interface AvroRecordDatum {
  /** In the order of the schema. */
  readonly fields: readonly AvroDatum[];
}

export interface AvroBranchDatum {
  /** Index among the union's branches. */
  readonly branch: number;
  readonly value: AvroDatum;
}

/** A message: what is written of it, by field number. An absent field has no entry; a default that has one is written,
 *  whatever the field's presence. */
export type ProtoDatum = ReadonlyMap<number, ProtoFieldDatum>;

/** 64-bit integers: bigint; other numbers and enums: number; bool: boolean; string; bytes: Uint8Array; a message; a
 *  list of these for a repeated field; pairs of key and value, in order, for a map. */
export type ProtoFieldDatum =
  | ProtoValueDatum
  | readonly ProtoValueDatum[]
  | ReadonlyArray<readonly [key: ProtoValueDatum, value: ProtoValueDatum]>;

export type ProtoValueDatum = bigint | number | boolean | string | Uint8Array | ProtoDatum;
