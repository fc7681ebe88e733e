/** Settings of an event topic that this product creates: timestamps are append times (the age of a
 *  record is computed from them), and the retention.
 *
 *  Kafka deletes whole segments, each once its youngest record is past the retention. It rolls a
 *  segment when the segment is full (1 GB) or old (`segment.ms`, seven days). With little traffic,
 *  records would stay for the retention plus seven days, which would lengthen the redelivery
 *  horizon (inbox/retention/live-horizon.ts).
 */

/** Number of segments in one retention period: a record stays up to 1/24 longer than the retention.
 */
const SEGMENTS = 24;
/** Smallest `segment.ms`: each segment costs the broker three files and some work. */
const SEGMENT_MS_LEAST = 60_000;

export function eventTopicConfig(retentionMs: number): Readonly<Record<string, string>> {
  const retention = { 'message.timestamp.type': 'LogAppendTime', 'retention.ms': String(retentionMs) };
  // Kafka's -1 means forever: nothing is deleted.
  if (retentionMs <= 0) return retention;
  const segmentMs = Math.max(Math.floor(retentionMs / SEGMENTS), Math.min(retentionMs, SEGMENT_MS_LEAST));
  return { ...retention, 'segment.ms': String(segmentMs) };
}
