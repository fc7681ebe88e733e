/** Murmur2 hash with which the Java client, and librdkafka's murmur2 partitioner, map a key to a
 *  partition. */
const M = 0x5bd1e995;

function murmur2(bytes: Uint8Array): number {
  let h = 0x9747b28c ^ bytes.length;
  let at = 0;
  for (; at + 4 <= bytes.length; at += 4) {
    const word =
      (bytes[at] as number) |
      ((bytes[at + 1] as number) << 8) |
      ((bytes[at + 2] as number) << 16) |
      ((bytes[at + 3] as number) << 24);
    let k = Math.imul(word, M);
    k = Math.imul(k ^ (k >>> 24), M);
    h = Math.imul(h, M) ^ k;
  }
  const rest = bytes.length - at;
  if (rest === 3) h ^= (bytes[at + 2] as number) << 16;
  if (rest >= 2) h ^= (bytes[at + 1] as number) << 8;
  if (rest >= 1) h = Math.imul(h ^ (bytes[at] as number), M);
  h = Math.imul(h ^ (h >>> 13), M);
  return h ^ (h >>> 15);
}

export const partitionOfKey = (key: Uint8Array, partitions: number): number =>
  (murmur2(key) & 0x7fffffff) % partitions;
