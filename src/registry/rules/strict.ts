/** Rules of policy STRICT: the rules of the existing registries, by their own names. The text of a
 *  rule says where live decode differs. */
import type { Rule, RuleExample } from './rule.ts';

const AVRO_SOURCE = 'Apache Avro, SchemaCompatibility, which the existing registries use unchanged.';
const PROTO_SOURCE = 'Confluent Schema Registry 8, the differences of its Protobuf check (facts only).';

const record = (...fields: string[]): string =>
  `{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}${fields.map((field) => `,${field}`).join('')}]}`;
const one = (type: string): string => record(`{"name":"value","type":${type}}`);
const message = (fields: string, more = ''): string =>
  `syntax = "proto3";\n${more}message Order {\n  string id = 1;\n${fields}}\n`;
const old = (fields: string): string =>
  `syntax = "proto2";\nmessage Order {\n  optional string id = 1;\n${fields}}\n`;
const of = (format: 'AVRO' | 'PROTOBUF', earlier: string, proposed: string): RuleExample => ({
  format,
  direction: 'BACKWARD',
  earlier: [earlier],
  proposed,
});

const avro = (rule: Pick<Rule, 'id' | 'title' | 'why' | 'fix'>, earlier: string, proposed: string): Rule => ({
  policy: 'STRICT',
  format: 'Avro',
  severity: 'fail',
  source: AVRO_SOURCE,
  ...rule,
  example: of('AVRO', earlier, proposed),
});
const proto = (
  rule: Pick<Rule, 'id' | 'title' | 'why' | 'fix'>,
  earlier: string,
  proposed: string,
): Rule => ({
  policy: 'STRICT',
  format: 'Protobuf',
  severity: 'fail',
  source: PROTO_SOURCE,
  ...rule,
  example: of('PROTOBUF', earlier, proposed),
});

export const STRICT_RULES: readonly Rule[] = [
  avro(
    {
      id: 'READER_FIELD_MISSING_DEFAULT_VALUE',
      title: 'A field without a default that the writer does not write',
      why: 'The reader finds no value in the event and no default in its schema, and refuses the event. Policy PROVEN says the same: AVRO_READER_FIELD_WITHOUT_DEFAULT.',
      fix: 'Give the field a "default", or the alias of its old name.',
    },
    record(),
    record('{"name":"region","type":"string"}'),
  ),
  avro(
    {
      id: 'TYPE_MISMATCH',
      title: 'A type that cannot be read as the other one',
      why: 'No promotion leads from the written type to the reader’s type, and the event is refused. Policy PROVEN says the same: AVRO_TYPE_CHANGED.',
      fix: 'Restore the type; add a field of the other type, with a default.',
    },
    one('"int"'),
    one('"string"'),
  ),
  avro(
    {
      id: 'NAME_MISMATCH',
      title: 'A type with another name, and no alias',
      why: 'Two named types are the same only by name; namespaces are not compared. Policy PROVEN says the same: AVRO_NAME_CHANGED.',
      fix: 'Give the type its old full name as an alias.',
    },
    one('{"type":"record","name":"Price","fields":[]}'),
    one('{"type":"record","name":"Amount","fields":[]}'),
  ),
  avro(
    {
      id: 'FIXED_SIZE_MISMATCH',
      title: 'A fixed of another size',
      why: 'The reader would read another number of bytes than was written. Policy PROVEN says the same: AVRO_FIXED_SIZE_CHANGED.',
      fix: 'Restore the size.',
    },
    one('{"type":"fixed","name":"Digest","size":16}'),
    one('{"type":"fixed","name":"Digest","size":20}'),
  ),
  avro(
    {
      id: 'MISSING_ENUM_SYMBOLS',
      title: 'Symbols that the reader does not know',
      why: 'An event that holds such a symbol is refused, unless the enum has a default symbol. Policy PROVEN says the same: AVRO_ENUM_SYMBOL_MISSING.',
      fix: 'Put the symbols back, or give the enum a "default" symbol.',
    },
    one('{"type":"enum","name":"Status","symbols":["PLACED","PAID"]}'),
    one('{"type":"enum","name":"Status","symbols":["PLACED"]}'),
  ),
  avro(
    {
      id: 'MISSING_UNION_BRANCH',
      title: 'A type that no branch of the reader’s union accepts',
      why: 'The event that holds the type is refused. Policy PROVEN says the same: AVRO_UNION_BRANCH_MISSING.',
      fix: 'Add the branch to the union.',
    },
    one('["null","string","long"]'),
    one('["null","string"]'),
  ),
  proto(
    {
      id: 'PACKAGE_CHANGED',
      title: 'Another package',
      why: 'Events do not contain the package, but the existing registries refuse the change. Readers that look a message up by its full name do not find it: PROTO_MESSAGE_REMOVED.',
      fix: 'Restore the package.',
    },
    message('').replace('message', 'package shop;\nmessage'),
    message('').replace('message', 'package sales;\nmessage'),
  ),
  proto(
    {
      id: 'MESSAGE_REMOVED',
      title: 'A message is gone',
      why: 'Events of the message cannot be read. Policy PROVEN says the same where events may exist: PROTO_MESSAGE_REMOVED.',
      fix: 'Put the message back.',
    },
    message('', 'message Refund {\n  string id = 1;\n}\n'),
    message(''),
  ),
  proto(
    {
      id: 'FIELD_KIND_CHANGED',
      title: 'A field that changed between scalar, map and message',
      why: 'The reader does not recognize the bytes, and the value is lost or refused. A map and a list of its entries have the same bytes; policy PROVEN considers this, the existing registries do not.',
      fix: 'Restore the type; add the other field under a number of its own.',
    },
    message('  int32 total = 2;\n'),
    message('  Total total = 2;\n', 'message Total {\n  int32 cents = 1;\n}\n'),
  ),
  proto(
    {
      id: 'FIELD_SCALAR_KIND_CHANGED',
      title: 'Scalars whose bytes differ on the wire',
      why: 'The value is lost, or its bytes mean another value. Policy PROVEN says the same: PROTO_TYPE_CHANGED.',
      fix: 'Restore the type; add the other field under a number of its own.',
    },
    message('  int32 delta = 2;\n'),
    message('  sint32 delta = 2;\n'),
  ),
  proto(
    {
      id: 'FIELD_NAMED_TYPE_CHANGED',
      title: 'A message type under another name, or one that is incompatible itself',
      why: 'Events do not contain names of types: if the fields fit, every value arrives. The existing registries refuse the change; policy PROVEN compares the fields.',
      fix: 'Restore the name of the type.',
    },
    message(
      '  Price price = 2;\n',
      'message Price {\n  int64 cents = 1;\n}\nmessage Amount {\n  int64 cents = 1;\n}\n',
    ),
    message(
      '  Amount price = 2;\n',
      'message Price {\n  int64 cents = 1;\n}\nmessage Amount {\n  int64 cents = 1;\n}\n',
    ),
  ),
  proto(
    {
      id: 'FIELD_NUMERIC_LABEL_CHANGED',
      title: 'Another label of a number or an enum, written on both sides',
      why: 'A packed list that is read as one number is lost. The other direction is harmless. The existing registries refuse both directions; policy PROVEN refuses only the first.',
      fix: 'Restore the label; add the other field under a number of its own.',
    },
    message('  optional int32 total = 2;\n'),
    message('  repeated int32 total = 2;\n'),
  ),
  proto(
    {
      id: 'REQUIRED_FIELD_ADDED',
      title: 'A required field is new',
      why: 'Reading an event without it ends with an error. Policy PROVEN says the same: PROTO_REQUIRED_ADDED.',
      fix: 'Make the field optional.',
    },
    old(''),
    old('  required string region = 2;\n'),
  ),
  proto(
    {
      id: 'REQUIRED_FIELD_REMOVED',
      title: 'A required field is removed',
      why: 'A reader without the field skips it and loses nothing; an older reader, which requires the field, fails. The existing registries refuse both directions; policy PROVEN refuses only the direction that fails.',
      fix: 'Put the field back, or choose a level that checks one direction.',
    },
    old('  required string region = 2;\n'),
    old(''),
  ),
  proto(
    {
      id: 'ONEOF_FIELD_REMOVED',
      title: 'A member of a oneof is removed',
      why: 'The reader skips the member like any unknown field. The existing registries refuse the change; policy PROVEN does not.',
      fix: 'Put the member back.',
    },
    message('  oneof contact {\n    string mail = 2;\n    string phone = 3;\n  }\n'),
    message('  oneof contact {\n    string mail = 2;\n  }\n'),
  ),
  proto(
    {
      id: 'MULTIPLE_FIELDS_MOVED_TO_ONEOF',
      title: 'Several independent fields moved into one oneof',
      why: 'An event may hold both, and the reader keeps one. Policy PROVEN says the same: PROTO_ONEOF_CHANGED.',
      fix: 'Move at most one of the fields that exist already.',
    },
    message('  string mail = 2;\n  string phone = 3;\n'),
    message('  oneof contact {\n    string mail = 2;\n    string phone = 3;\n  }\n'),
  ),
  proto(
    {
      id: 'FIELD_MOVED_TO_EXISTING_ONEOF',
      title: 'An independent field moved into a oneof that exists',
      why: 'An event may hold it beside a member of the oneof, and the reader keeps one. Policy PROVEN says the same: PROTO_ONEOF_CHANGED.',
      fix: 'Leave the field outside of the oneof.',
    },
    message('  oneof contact {\n    string mail = 2;\n  }\n  string phone = 3;\n'),
    message('  oneof contact {\n    string mail = 2;\n    string phone = 3;\n  }\n'),
  ),
];
