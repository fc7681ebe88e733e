/** Settings of a topic of events that is created: when its records were appended, which is what
 *  their age is told by, and how long they are kept.
 *
 *  Kafka deletes whole segments, each once its youngest record is past the retention, and rolls a
 *  segment when it is full (1 GB) or old (`segment.ms`, seven days). Where little is published,
 *  records would stay for the retention and those seven days, and the redelivery horizon with them
 *  (inbox/live-horizon.ts).
 */

/** Segments that the retention is divided into: how much longer than it a record may stay. */
const SEGMENTS = 24;
/** A segment is three files and a little work of the broker, so it is not made for less than this.
 */
const SEGMENT_MS_LEAST = 60_000;

export function eventTopicConfig(retentionMs: number): Readonly<Record<string, string>> {
  const retention = { 'message.timestamp.type': 'LogAppendTime', 'retention.ms': String(retentionMs) };
  // Kafka's -1: for ever, and then nothing is deleted.
  if (retentionMs <= 0) return retention;
  const segmentMs = Math.max(Math.floor(retentionMs / SEGMENTS), Math.min(retentionMs, SEGMENT_MS_LEAST));
  return { ...retention, 'segment.ms': String(segmentMs) };
}
