/** An outbox row as a broker record: key order_id, a JSON value, CloudEvents attributes as headers.
 *
 *    value    {"msg_id":"…","event_type":"…","payload":<the row's payload, untouched>}
 *    headers  ce_specversion ce_id ce_source ce_type ce_subject ce_time ce_partitionkey ce_sequence content-type relay_mode
 *
 *  Source: CloudEvents 1.0.2, Kafka protocol binding, binary content mode.
 */
import type { RecordInput } from '../../core/layout/record-batch.ts';
import type { OutboxRow } from './store.ts';

export const ORDER_EVENTS_TOPIC = 'order.events';

const utf8 = new TextEncoder();
const close = utf8.encode('}');
const CONSTANT = {
  specversion: utf8.encode('1.0'),
  source: utf8.encode('/orders'),
  contentType: utf8.encode('application/json'),
};

export type RelayMode = 'poll';

export function toRecord(row: OutboxRow, mode: RelayMode): RecordInput {
  const key = utf8.encode(row.aggregateId);
  const type = utf8.encode(row.eventType);
  const head = utf8.encode(
    `{"msg_id":"${row.msgId}","event_type":${JSON.stringify(row.eventType)},"payload":`,
  );
  const value = new Uint8Array(head.length + row.payload.length + close.length);
  value.set(head, 0);
  value.set(row.payload, head.length);
  value.set(close, head.length + row.payload.length);
  return {
    key,
    value,
    partition: -1,
    headers: [
      ['ce_specversion', CONSTANT.specversion],
      ['ce_id', utf8.encode(row.msgId)],
      ['ce_source', CONSTANT.source],
      ['ce_type', type],
      ['ce_subject', key],
      ['ce_time', utf8.encode(row.createdAt.toISOString())],
      ['ce_partitionkey', key],
      ['ce_sequence', utf8.encode(row.id.toString())],
      ['content-type', CONSTANT.contentType],
      ['relay_mode', utf8.encode(mode)],
    ],
  };
}
