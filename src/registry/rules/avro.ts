/** Avro rules of policy PROVEN: the behavior of Millrace's decoder for each event.
 *  Source of all rules: Apache Avro 1.12 specification. */
import type { Rule, RuleExample } from './rule.ts';

const SOURCE = 'Apache Avro 1.12 specification, "Schema Resolution"';

const record = (...fields: string[]): string =>
  `{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}${fields.map((field) => `,${field}`).join('')}]}`;
const one = (type: string): string => record(`{"name":"value","type":${type}}`);
const reading = (earlier: string, proposed: string): RuleExample => ({
  format: 'AVRO',
  direction: 'BACKWARD',
  earlier: [earlier],
  proposed,
});
const written = (earlier: string, proposed: string): RuleExample => ({
  ...reading(earlier, proposed),
  direction: 'FORWARD',
});
const enumOf = (symbols: string, more = ''): string =>
  one(`{"type":"enum","name":"Status","symbols":[${symbols}]${more}}`);

const avro = (rule: Omit<Rule, 'policy' | 'format' | 'source'> & { readonly source?: string }): Rule => ({
  policy: 'PROVEN',
  format: 'Avro',
  source: SOURCE,
  ...rule,
});

export const AVRO_RULES: readonly Rule[] = [
  avro({
    id: 'AVRO_READER_FIELD_WITHOUT_DEFAULT',
    severity: 'fail',
    title: 'A field without a default that the writer does not write',
    why: 'Avro has no absent fields: the reader looks for a value, finds none in the event and no default in its schema, and refuses the whole event. It happens to every event of that writer.',
    fix: 'Give the field a "default"; if it is an old field under another name, give it the alias of the old name.',
    example: reading(record(), record('{"name":"region","type":"string"}')),
  }),
  avro({
    id: 'AVRO_DEFAULT_MISFIT',
    severity: 'fail',
    title: 'A default that does not fit the type of its field',
    why: 'The writer does not write the field, so its default is needed, and the default is no value of its type: the event is refused.',
    fix: 'Write a default that is a value of the field’s type; readers before Avro 1.12 take only one of a union’s first branch.',
    example: written(
      '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"count","type":"int","default":"none"}]}',
      record(),
    ),
  }),
  avro({
    id: 'AVRO_RENAMED_VALUE_LOST',
    severity: 'lossy',
    title: 'A renamed field whose value an older reader replaces by its default',
    why: 'The writer renamed the field and kept the old name as an alias, which only readers of the writer’s schema know. An older reader looks for the old name, finds none, and takes its default: no error, and the written value is gone.',
    fix: 'Keep the old name until every reader knows the alias; or write both fields for a while.',
    example: written(
      record('{"name":"note","type":"string","default":""}'),
      record('{"name":"memo","type":"string","default":"","aliases":["note"]}'),
    ),
  }),
  avro({
    id: 'AVRO_RENAME_SUSPECTED',
    severity: 'note',
    title: 'A field that takes its default where a field like it vanished',
    why: 'One field is gone and another one of the same type came, with a default. If it is the same field under another name, its value is lost: the reader fills in the default without an error.',
    fix: 'If the field was renamed, give it the old name as an alias; otherwise nothing is to be done.',
    example: reading(
      record('{"name":"note","type":"string"}'),
      record('{"name":"memo","type":"string","default":""}'),
    ),
  }),
  avro({
    id: 'AVRO_FIELD_RENAMED',
    severity: 'note',
    title: 'A field that is read by its alias',
    why: 'The reader finds the written field under the name that its alias gives. Every value arrives.',
    fix: 'Nothing is to be done; keep the alias for as long as events with the old name are in a topic.',
    example: reading(
      record('{"name":"note","type":"string"}'),
      record('{"name":"memo","type":"string","aliases":["note"]}'),
    ),
  }),
  avro({
    id: 'AVRO_FIELD_NOT_READ',
    severity: 'note',
    title: 'A written field that the reader does not have',
    why: 'The reader skips it. Nothing that the reader asks for is lost.',
    fix: 'Nothing is to be done, unless consumers still want the value.',
    example: reading(record('{"name":"note","type":"string"}'), record()),
  }),
  avro({
    id: 'AVRO_ALIAS_AMBIGUOUS',
    severity: 'fail',
    title: 'A field whose name and aliases match several written fields',
    why: 'Nothing says which of the written values is meant, so the reader refuses every event of that writer.',
    fix: 'Take the alias away: the writer still has a field of the other name.',
    example: reading(
      record('{"name":"note","type":"string"}', '{"name":"memo","type":"string"}'),
      record('{"name":"memo","type":"string","aliases":["note"]}'),
    ),
  }),
  avro({
    id: 'AVRO_FIELD_READ_TWICE',
    severity: 'fail',
    title: 'Two fields that read one written field',
    why: 'A written value is read once. The other field then has no value, and decoders differ in which field that is.',
    fix: 'Give the alias to one of the fields, and the other one a default.',
    example: reading(
      record('{"name":"note","type":"string"}'),
      record(
        '{"name":"note","type":"string"}',
        '{"name":"memo","type":"string","default":"","aliases":["note"]}',
      ),
    ),
  }),
  avro({
    id: 'AVRO_TYPE_CHANGED',
    severity: 'fail',
    title: 'A type that cannot be read as the other one',
    why: 'The bytes of one type are not those of the other, and no promotion leads from the written type to the reader’s type: every event that holds the type is refused.',
    fix: 'Restore the type; add a field of the other type, with a default, beside it.',
    example: reading(one('"int"'), one('"string"')),
  }),
  avro({
    id: 'AVRO_PROMOTION_ROUNDS',
    severity: 'lossy',
    title: 'A number that is rounded where it has too many digits',
    why: 'A float holds whole numbers up to 2^24 exactly, a double up to 2^53. A greater one comes back as its nearest neighbour, without an error.',
    fix: 'Read it as a type that holds all of it: a long for an int, or the type that was written.',
    example: reading(one('"long"'), one('"double"')),
  }),
  avro({
    id: 'AVRO_BYTES_AS_STRING',
    severity: 'fail',
    title: 'Bytes that are read as a string',
    why: 'A string is UTF-8. Other bytes are refused: the next event with such bytes stops the reader.',
    fix: 'Read them as bytes, or make the writer write a string.',
    example: reading(one('"bytes"'), one('"string"')),
  }),
  avro({
    id: 'AVRO_NAME_CHANGED',
    severity: 'fail',
    title: 'A type with another name, and no alias',
    why: 'Two named types are the same only by name. The reader treats them as different types and refuses the event.',
    fix: 'Give the type its old full name as an alias.',
    example: reading(
      one('{"type":"record","name":"Price","fields":[]}'),
      one('{"type":"record","name":"Amount","fields":[]}'),
    ),
  }),
  avro({
    id: 'AVRO_TYPE_RENAMED',
    severity: 'note',
    title: 'A type that is read by its alias',
    why: 'The reader knows the written name as an alias of its own type. Every value arrives.',
    fix: 'Nothing is to be done; keep the alias for as long as events with the old name are in a topic.',
    example: reading(
      one('{"type":"record","name":"Price","fields":[]}'),
      one('{"type":"record","name":"Amount","aliases":["Price"],"fields":[]}'),
    ),
  }),
  avro({
    id: 'AVRO_NAMESPACE_CHANGED',
    severity: 'note',
    title: 'A type that moved to another namespace',
    why: 'Names are compared without their namespaces here, so every value arrives. Decoders that compare full names, as some for Node.js do, refuse the event.',
    fix: 'Give the type its old full name as an alias; then every decoder reads it.',
    example: reading(
      '{"type":"record","name":"shop.Order","fields":[]}',
      '{"type":"record","name":"sales.Order","fields":[]}',
    ),
  }),
  avro({
    id: 'AVRO_FIXED_SIZE_CHANGED',
    severity: 'fail',
    title: 'A fixed of another size',
    why: 'A fixed has no length on the wire. A reader that expects another number of bytes would read the rest of the event from the wrong place, so the pair is refused.',
    fix: 'Restore the size; add a field with a fixed of another name and a default.',
    example: reading(
      one('{"type":"fixed","name":"Digest","size":16}'),
      one('{"type":"fixed","name":"Digest","size":20}'),
    ),
  }),
  avro({
    id: 'AVRO_ENUM_SYMBOL_MISSING',
    severity: 'fail',
    title: 'A symbol that the reader does not know',
    why: 'The event that holds the symbol is refused. Other events pass, so the fault appears only when the symbol is first written.',
    fix: 'Put the symbol back, or give the reader’s enum a "default" symbol for unknown symbols. The default of a field does not help.',
    example: reading(enumOf('"PLACED","PAID"'), enumOf('"PLACED"')),
  }),
  avro({
    id: 'AVRO_ENUM_SYMBOL_DEFAULTED',
    severity: 'lossy',
    title: 'A symbol that the reader replaces by its default',
    why: 'The reader does not know the symbol and returns its default symbol instead, as the specification says: no error, and the written symbol is lost.',
    fix: 'Put the symbol back if readers must distinguish it from the default.',
    example: reading(enumOf('"PLACED","PAID"'), enumOf('"PLACED","OTHER"', ',"default":"OTHER"')),
  }),
  avro({
    id: 'AVRO_UNION_BRANCH_MISSING',
    severity: 'fail',
    title: 'A type that no branch of the reader’s union accepts',
    why: 'An event that holds the type is refused; events with other branches pass. A writer of ["null", "string"] breaks a reader without "null" on the first absent value.',
    fix: 'Add the branch to the union.',
    example: reading(one('["null","string","long"]'), one('["null","string"]')),
  }),
  avro({
    id: 'AVRO_LOGICAL_TYPE_CHANGED',
    severity: 'fail',
    title: 'Another logical type over the same bytes',
    why: 'The bytes can be read without an error, but they mean another value: milliseconds read as microseconds are off by a factor of a thousand, a decimal of another scale by a power of ten. The decoder therefore refuses the event.',
    fix: 'Restore the logical type; add a field with the other one and a default.',
    example: reading(
      one('{"type":"long","logicalType":"timestamp-millis"}'),
      one('{"type":"long","logicalType":"timestamp-micros"}'),
    ),
  }),
  avro({
    id: 'AVRO_LOGICAL_TYPE_ONE_SIDED',
    severity: 'note',
    title: 'A logical type on one side only',
    why: 'The value is the same: the reader gets the plain number or bytes that were written. No decoder can check that they mean what the logical type says.',
    fix: 'Nothing is to be done where both sides mean the same.',
    example: reading(one('"long"'), one('{"type":"long","logicalType":"timestamp-millis"}')),
  }),
];
