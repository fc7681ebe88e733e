/** Rules that apply to every format. */
import type { Rule } from './rule.ts';

export const GENERAL_RULES: readonly Rule[] = [
  {
    id: 'FORMAT_CHANGED',
    policy: 'any',
    format: 'any',
    severity: 'fail',
    title: 'The schemas are of different formats',
    why: 'The bytes of one format mean nothing to a decoder of the other, so every event is refused or misread.',
    fix: 'Keep the format of the subject; register the other format under a subject, and a topic, of its own.',
    source: 'The wire formats themselves; the existing registries refuse it with the same words.',
    example: {
      format: 'AVRO',
      proposedFormat: 'PROTOBUF',
      direction: 'BACKWARD',
      earlier: ['{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}'],
      proposed: 'syntax = "proto3";\nmessage Order {\n  string id = 1;\n}\n',
    },
  },
  {
    id: 'COMPARISON_TOO_LONG',
    policy: 'any',
    format: 'any',
    severity: 'unjudged',
    title: 'The schemas combine their types in more ways than the limit',
    why: 'The check ends without a verdict, so nothing is known about any event, and the schema is refused.',
    fix: 'Make the schemas simpler: fewer named types that all refer to each other. Or compare with fewer versions.',
    source: 'A limit of this registry, CHECK_STEPS_MAX. Its HTTP interface then answers 422.',
  },
  {
    id: 'STORED_SCHEMA_UNREADABLE',
    policy: 'any',
    format: 'any',
    severity: 'unjudged',
    title: 'A stored schema cannot be read',
    why: 'Another registry accepted a text that is no schema, or whose references no longer exist. The content of its events is unknown, so no schema that must be compatible with them is accepted.',
    fix: 'Delete the unreadable version once the topic holds no event of it.',
    source:
      'This registry: it reads the schemas that other registries stored, and reports those that it cannot read.',
  },
];
