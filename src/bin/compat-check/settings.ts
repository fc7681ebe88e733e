/** Settings of `millrace compat-check`. */
import type { SettingTable } from '../../core/settings.ts';
import { LEVELS } from '../../registry/compatibility/modes.ts';
import { CLIENT_SETTINGS } from '../registry-clients/shared.ts';

const { registry, 'registry-user': user, 'registry-token-file': token } = CLIENT_SETTINGS;

export const GATE_SETTINGS = {
  subject: { type: 'string', help: 'subject that the schema is proposed for; not needed with -against' },
  proposed: { type: 'string', help: 'file with the proposed schema; - reads standard input' },
  registry,
  'registry-user': user,
  'registry-token-file': token,
  'connect-timeout': {
    type: 'duration',
    default: '10s',
    min: 100,
    help: 'how long one request to the registry may take',
  },
  against: {
    type: 'string',
    help: 'compare with this instead of a registry: a file, a folder with one file a version, or git:REV:PATH',
  },
  'all-versions': {
    type: 'bool',
    default: 'false',
    help: 'compare with every version, whatever the mode says; with git:REV:PATH with every commit of the file',
  },
  mode: {
    type: 'string',
    choices: LEVELS,
    help: "compatibility mode (default: the subject's; without a registry BACKWARD)",
  },
  policy: {
    type: 'string',
    choices: ['PROVEN', 'STRICT'],
    help: "PROVEN: what decoders do with events; STRICT: what the existing registries answer (default: the subject's, else PROVEN)",
  },
  reference: {
    type: 'list',
    help: "name=file of what the schema refers to; without it the references of the subject's latest version are used",
  },
  format: {
    type: 'string',
    choices: ['avro', 'protobuf', 'json'],
    help: 'format of the schema (default: by the name of the file, else by what is in it)',
  },
  output: {
    type: 'string',
    choices: ['text', 'json', 'github', 'junit', 'sarif', 'markdown'],
    default: 'text',
    help: 'form of the answer; github: annotations of a workflow run',
  },
  prove: {
    type: 'bool',
    default: 'false',
    help: 'also write events with the one schema, read them with the other, and say how many were tried',
  },
  explain: { type: 'string', help: 'print the page of this rule, and check nothing' },
  fix: {
    type: 'bool',
    default: 'false',
    help: 'print the smallest fix as a unified diff of the proposed file; the report goes to stderr',
  },
  'allow-new': {
    type: 'bool',
    default: 'false',
    help: 'a subject that the registry does not know is no failure',
  },
  'log-level': {
    type: 'string',
    choices: ['debug', 'info', 'warn', 'error', 'silent'],
    default: 'warn',
    help: 'least level that is logged on stderr',
  },
} as const satisfies SettingTable;
