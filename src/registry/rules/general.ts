/** Rules that belong to no one format. */
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
    title: 'The schemas combine their types in more ways than are looked at',
    why: 'A verdict that is not reached says nothing about any event, so the schema is refused rather than waved through.',
    fix: 'Make the schemas simpler: fewer named types that all refer to each other. Or compare with fewer versions.',
    source: 'A limit of this registry, CHECK_STEPS_MAX. Its HTTP interface answers 422 then.',
  },
  {
    id: 'STORED_SCHEMA_UNREADABLE',
    policy: 'any',
    format: 'any',
    severity: 'unjudged',
    title: 'A stored schema cannot be read',
    why: 'Another registry once took a text that is no schema, or whose references are gone. Nobody can say what its events hold, so nothing that must live with them is let through.',
    fix: 'Delete the version that cannot be read, once no event of it is left in the topic.',
    source: 'This registry: it reads what others stored, and says so where it cannot.',
  },
];
