/** Shard of a key, computed alike here and in SQL: byte 3 of the aggregate_id (fast-moving time
 *  bits of a UUIDv7) XOR byte 15 (random), modulo a power of two. */

const SHARDS_MAX = 256;

export function isShardCount(count: number): boolean {
  return Number.isInteger(count) && count >= 1 && count <= SHARDS_MAX && (count & (count - 1)) === 0;
}

const nibble = (text: string, at: number): number => {
  const code = text.charCodeAt(at);
  return code < 0x3a ? code - 0x30 : code - 0x57;
};

/** Shard of a key. @param aggregateId canonical UUID in lower case */
export function shardOf(aggregateId: string, shards: number): number {
  const high = nibble(aggregateId, 6) ^ nibble(aggregateId, 34);
  const low = nibble(aggregateId, 7) ^ nibble(aggregateId, 35);
  return ((high << 4) | low) & (shards - 1);
}

/** SQL expression of the shard over the column aggregate_id. */
export function shardSql(shards: number): string {
  return `((get_byte(uuid_send(aggregate_id), 3) # get_byte(uuid_send(aggregate_id), 15)) & ${shards - 1})`;
}
