import { expect, it } from 'vitest';
import { eventTopicConfig } from '../../../src/outbox/event-topic.ts';

it.each([
  ['a day', 86_400_000, { 'retention.ms': '86400000', 'segment.ms': '3600000' }],
  ['an hour', 3_600_000, { 'retention.ms': '3600000', 'segment.ms': '150000' }],
  ['ten minutes: no segment is shorter than a minute', 600_000, { 'segment.ms': '60000' }],
  ['thirty seconds: no segment is longer than the retention', 30_000, { 'segment.ms': '30000' }],
  ['a part of a millisecond over', 86_400_001, { 'segment.ms': '3600000' }],
])('a topic rolls its segments in time for a retention of %s', (_name, retentionMs, wanted) => {
  expect(eventTopicConfig(retentionMs)).toMatchObject(wanted);
});

it('a topic without a retention limit rolls no segments', () => {
  expect(eventTopicConfig(-1)).toEqual({ 'message.timestamp.type': 'LogAppendTime', 'retention.ms': '-1' });
});
