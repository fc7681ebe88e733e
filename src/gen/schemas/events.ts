/** Schemas of the generator's events: the fields of the fixed layout, and a text as filler. */

export const EVENT_AVRO = `{
  "type": "record",
  "name": "Event",
  "namespace": "millrace.gen",
  "fields": [
    { "name": "account_id", "type": "long" },
    { "name": "value", "type": "long" },
    { "name": "event_ts", "type": { "type": "long", "logicalType": "timestamp-millis" } },
    { "name": "seq", "type": "long" },
    { "name": "pad", "type": "string" }
  ]
}
`;

export const EVENT_PROTO = `syntax = "proto3";
package millrace.gen;

import "google/protobuf/timestamp.proto";

message Event {
  uint64 account_id = 1;
  sint64 value = 2;
  google.protobuf.Timestamp event_ts = 3;
  uint64 seq = 4;
  string pad = 5;
}
`;

/** The schemas with a text as account_id. */
export const TEXT_EVENT_AVRO = EVENT_AVRO.replace(
  '"name": "account_id", "type": "long"',
  '"name": "account_id", "type": "string"',
);
export const TEXT_EVENT_PROTO = EVENT_PROTO.replace('uint64 account_id', 'string account_id');
