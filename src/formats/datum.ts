/** Explicit values of a schema: they include the branch of a union and the presence of fields.
 *  Witness events consist of them; the values in a consumer's program are a simpler form.
 *
 *  A datum is interpreted along its type, so a number alone does not state whether it is an int or
 *  an enum's index. */

/** Avro value. null; boolean; int, float, double: number; long: bigint; bytes, fixed: Uint8Array;
 *  string, enum symbol: string. */
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
  /** Values in the order of the schema. */
  readonly fields: readonly AvroDatum[];
}

export interface AvroBranchDatum {
  /** Index among the union's branches. */
  readonly branch: number;
  readonly value: AvroDatum;
}

/** Message: the written fields, by field number. An absent field has no entry; a default value with
 *  an entry is written, whatever the field's presence. */
export type ProtoDatum = ReadonlyMap<number, ProtoFieldDatum>;

/** Value of a field. 64-bit integers: bigint; other numbers and enums: number; bool: boolean;
 *  string; bytes: Uint8Array; a message; a list of these for a repeated field; ordered pairs of key
 *  and value for a map. */
export type ProtoFieldDatum =
  | ProtoValueDatum
  | readonly ProtoValueDatum[]
  | ReadonlyArray<readonly [key: ProtoValueDatum, value: ProtoValueDatum]>;

export type ProtoValueDatum = bigint | number | boolean | string | Uint8Array | ProtoDatum;
