/** Protobuf rules: policy PROVEN (the behavior of Millrace's decoder for each event), and the
 *  history of numbers, which holds in every mode and policy. */
import type { Rule, RuleExample } from './rule.ts';

const UPDATING = 'protobuf.dev, "Updating A Message Type"';
const ENCODING = 'protobuf.dev, "Encoding"';

const file = (fields: string, more = ''): string =>
  `syntax = "proto3";\n${more}message Order {\n  string id = 1;\n${fields}}\n`;
const old = (fields: string, more = ''): string =>
  `syntax = "proto2";\n${more}message Order {\n  optional string id = 1;\n${fields}}\n`;
const reading = (earlier: string, proposed: string): RuleExample => ({
  format: 'PROTOBUF',
  direction: 'BACKWARD',
  earlier: [earlier],
  proposed,
});
const ever = (proposed: string, ...earlier: string[]): RuleExample => ({
  ...reading('', proposed),
  direction: 'HISTORY',
  earlier,
});

const proto = (rule: Omit<Rule, 'policy' | 'format'> & { readonly policy?: Rule['policy'] }): Rule => ({
  policy: 'PROVEN',
  format: 'Protobuf',
  ...rule,
});

const NOTE = 'message Note {\n  string key = 1;\n  int32 value = 2;\n}\n';
const STATUS = 'enum Status {\n  PLACED = 0;\n  PAID = 1;\n}\n';

export const PROTO_RULES: readonly Rule[] = [
  proto({
    id: 'PROTO_NUMBER_REUSED',
    policy: 'any',
    severity: 'fail',
    title: 'A removed number is used again for another field',
    why: 'An event holds only the number of a field. Old events hold the old field under it, and a reader of the proposed schema reads its value as the other field, without an error: a phone number becomes a region. Retention does not end the danger, because a replay or a backup restores old events.',
    fix: 'Take the next free number, and write `reserved` for the old one; or restore the field as it was: with its old name and type the number may be used again, because old events keep their meaning.',
    source: `${UPDATING}: numbers are never reused; of this registry: over all versions ever, deleted ones too.`,
    example: ever(file('  string region = 2;\n'), file('  string phone = 2;\n'), file('')),
  }),
  proto({
    id: 'PROTO_NUMBER_RETYPED',
    policy: 'any',
    severity: 'fail',
    title: 'A number changes to a type that reads other bytes',
    why: 'Events with the old type may still exist. A reader of the other type does not find their bytes, or reads them as another value. No mode treats that as a change of the same field.',
    fix: 'Restore the type; give the field of the other type the next free number.',
    source: `${UPDATING}; of this registry: over all versions ever, deleted ones too.`,
    example: ever(file('  string total = 2;\n'), file('  int64 total = 2;\n')),
  }),
  proto({
    id: 'PROTO_NUMBER_NOT_RESERVED',
    policy: 'any',
    severity: 'note',
    title: 'A number is gone and not reserved',
    why: 'Events are not affected. The registry refuses the number for any other field forever; `reserved` documents this in the schema.',
    fix: 'Write `reserved` with the number, and with the name.',
    source: UPDATING,
    example: ever(file(''), file('  string phone = 2;\n')),
  }),
  proto({
    id: 'PROTO_MESSAGE_REMOVED',
    severity: 'fail',
    title: 'A message is not in the reader’s schema',
    why: 'An event names the message that it is, and a reader looks it up by its full name. Without it no event of that message can be read. Renaming a message or its package removes the old name.',
    fix: 'Put the message back under its full name, which includes the package.',
    source: 'The frame of Protobuf events: message indexes of the writer’s file.',
    example: reading(file('', 'message Refund {\n  string id = 1;\n}\n'), file('')),
  }),
  proto({
    id: 'PROTO_NUMBER_CHANGED',
    severity: 'fail',
    title: 'A field has another number',
    why: 'The value is written under one number and read under another. If the reader has no field with the written number, the value is lost without an error, and the field that it knows is empty. If another field has that number, it gets the value: two fields that swap their names swap their values. This is no rename, because the same name has another number.',
    fix: 'Give the field its old number, and give another number to the field that took it. In a rename, neither name has another number in either schema.',
    source: UPDATING,
    example: reading(file('  string note = 2;\n'), file('  string note = 3;\n')),
  }),
  proto({
    id: 'PROTO_REQUIRED_ADDED',
    severity: 'fail',
    title: 'A required field that the writer may leave out',
    why: 'Reading an event without the field ends with an error.',
    fix: 'Make the field optional. `required` can never be added to a message that events exist of.',
    source: UPDATING,
    example: reading(old(''), old('  required string region = 2;\n')),
  }),
  proto({
    id: 'PROTO_TYPE_CHANGED',
    severity: 'fail',
    title: 'A type whose bytes the other one does not read',
    why: 'If the wire types differ, the reader skips the value, and the field is empty without an error. If they are equal, the bytes mean another value: int32 -3, read as sint32, is an entirely different number.',
    fix: 'Restore the type; add a field of the other type under a number of its own.',
    source: `${UPDATING}; ${ENCODING}`,
    example: reading(file('  int32 delta = 2;\n'), file('  sint32 delta = 2;\n')),
  }),
  proto({
    id: 'PROTO_INTEGER_CAST',
    severity: 'lossy',
    title: 'An integer that is cast',
    why: 'The types share their bytes, and a value that the reader’s type does not hold is cast as C++ does: 4294967301 as int32 is 5, -1 as uint32 is 4294967295, 7 as bool is true. There is no error.',
    fix: 'Keep the wider type, or give the field of the narrower type a number of its own.',
    source: UPDATING,
    example: reading(file('  int64 total = 2;\n'), file('  int32 total = 2;\n')),
  }),
  proto({
    id: 'PROTO_BYTES_AS_STRING',
    severity: 'fail',
    title: 'Bytes that are read as a string',
    why: 'A string is UTF-8. An event with other bytes ends with an error.',
    fix: 'Read them as bytes, or write a string.',
    source: UPDATING,
    example: reading(file('  bytes note = 2;\n'), file('  string note = 2;\n')),
  }),
  proto({
    id: 'PROTO_LABEL_CHANGED',
    severity: 'fail',
    title: 'A packed list that is read as one value',
    why: 'Repeated numbers are written as one packed run. A reader of a single number skips the run: all of the values are lost without an error.',
    fix: 'Keep the field repeated; add a single one under a number of its own.',
    source: ENCODING,
    example: reading(file('  repeated int32 sizes = 2;\n'), file('  int32 sizes = 2;\n')),
  }),
  proto({
    id: 'PROTO_LAST_VALUE_WINS',
    severity: 'lossy',
    title: 'A list that is read as one value',
    why: 'The reader keeps the last of several values; messages are merged field by field. The other values are lost without an error.',
    fix: 'Keep the field repeated; add a single one under a number of its own.',
    source: `${UPDATING}; ${ENCODING}`,
    example: reading(file('  repeated string notes = 2;\n'), file('  string notes = 2;\n')),
  }),
  proto({
    id: 'PROTO_MAP_CHANGED',
    severity: 'fail',
    title: 'A map that is read as something else, or the other way round',
    why: 'An entry of a map is a message. A reader of a scalar does not recognise it: the values are lost, or refused.',
    fix: 'Restore the map; add the other field under a number of its own.',
    source: 'protobuf.dev, "Maps"',
    example: reading(file('  map<string, string> notes = 2;\n'), file('  repeated string notes = 2;\n')),
  }),
  proto({
    id: 'PROTO_MAP_KEYS_MERGED',
    severity: 'lossy',
    title: 'A list of entries that is read as a map',
    why: 'The bytes are the same. The last entry of a key wins, and the other entries of the key are lost without an error.',
    fix: 'Keep the list if keys may repeat.',
    source: 'protobuf.dev, "Maps"',
    example: reading(
      file('  repeated Note notes = 2;\n', NOTE),
      file('  map<string, int32> notes = 2;\n', NOTE),
    ),
  }),
  proto({
    id: 'PROTO_ENCODING_CHANGED',
    severity: 'fail',
    title: 'A message in another encoding',
    why: 'A group is written between two tags, a message after its length. A reader of one encoding skips the other: the value is lost without an error.',
    fix: 'Keep the encoding; add the message under a number of its own.',
    source: ENCODING,
    example: reading(
      old('  optional group Place = 2 {\n    optional string city = 1;\n  }\n'),
      old('  message Place {\n    optional string city = 1;\n  }\n  optional Place place = 2;\n'),
    ),
  }),
  proto({
    id: 'PROTO_ONEOF_CHANGED',
    severity: 'fail',
    title: 'Fields that exclude each other in the reader only',
    why: 'An event may hold both. A reader that has them in one oneof keeps the last value and clears the other: a value is lost without an error.',
    fix: 'Move at most one of the fields that exist already into the oneof.',
    source: UPDATING,
    example: reading(
      file('  string mail = 2;\n  string phone = 3;\n'),
      file('  oneof contact {\n    string mail = 2;\n    string phone = 3;\n  }\n'),
    ),
  }),
  proto({
    id: 'PROTO_PRESENCE_CHANGED',
    severity: 'lossy',
    title: 'Absent and default are distinguished on one side only',
    why: 'A field without presence is left out when it holds its default. A reader with presence reads that as absent, and a reader without presence reads an absent field as the default.',
    fix: 'Write `optional` on both sides, or on none.',
    source: 'protobuf.dev, "Field Presence"',
    example: reading(file('  optional int32 total = 2;\n'), file('  int32 total = 2;\n')),
  }),
  proto({
    id: 'PROTO_ENUM_VALUE_DROPPED',
    severity: 'fail',
    title: 'A number that a closed enum does not know',
    why: 'A reader with a closed enum drops an unknown number as if it had not been written: a single value is absent, an item of a list or an entry of a map is missing. There is no error.',
    fix: 'Put the value back; or make the enum open, as in proto3.',
    source: 'protobuf.dev, "Enum Behavior"',
    example: reading(
      old('  optional Status status = 2;\n', STATUS),
      old('  optional Status status = 2;\n', 'enum Status {\n  PLACED = 0;\n}\n'),
    ),
  }),
  proto({
    id: 'PROTO_ENUM_VALUE_MISSING',
    severity: 'note',
    title: 'A number of an open enum without a name',
    why: 'The reader keeps the bare number. Nothing is lost, but a program that uses names must handle a number without a name.',
    fix: 'Nothing is to be done; put the value back if programs need its name.',
    source: 'protobuf.dev, "Enum Behavior"',
    example: reading(
      file('  Status status = 2;\n', STATUS),
      file('  Status status = 2;\n', 'enum Status {\n  PLACED = 0;\n}\n'),
    ),
  }),
  proto({
    id: 'PROTO_ENUM_VALUE_RENAMED',
    severity: 'note',
    title: 'A number of an enum under another name',
    why: 'The number arrives, and the reader gives it its own name. If the new name has another meaning, every old event has that meaning too.',
    fix: 'Nothing is to be done where both names mean the same.',
    source: UPDATING,
    example: reading(
      file('  Status status = 2;\n', STATUS),
      file('  Status status = 2;\n', 'enum Status {\n  PLACED = 0;\n  SETTLED = 1;\n}\n'),
    ),
  }),
  proto({
    id: 'PROTO_FIELD_RENAMED',
    severity: 'note',
    title: 'A number under another name',
    why: 'Readers match fields by number, so the value arrives under the other name. Protobuf’s JSON form uses names, so there the value does not arrive.',
    fix: 'Nothing is to be done where both names mean the same; otherwise take the next free number.',
    source: UPDATING,
    example: reading(file('  string note = 2;\n'), file('  string memo = 2;\n')),
  }),
  proto({
    id: 'PROTO_TYPE_UNKNOWN',
    severity: 'unjudged',
    title: 'An unknown type',
    why: 'A stored schema imports a file that is missing, so a type in it is unknown, and its values cannot be judged.',
    fix: 'Register the missing import as a reference of the schema.',
    source:
      'This registry: it reads the schemas that other registries stored, and reports those that it cannot read.',
    example: reading(
      'syntax = "proto3";\nimport "place.proto";\nmessage Order {\n  string id = 1;\n  Place place = 2;\n}\n',
      file('  Place place = 2;\n', 'message Place {\n  string city = 1;\n}\n'),
    ),
  }),
];
