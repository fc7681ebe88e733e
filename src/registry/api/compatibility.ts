/** Compatibility checks, and the words of a refusal. */
import { findMillraceError } from '../../core/errors.ts';
import type { Verdict } from '../compatibility/modes.ts';
import { registryError } from '../errors.ts';
import type { RegisterInput, StoredVersion } from '../store/service.ts';
import { ref } from './description.ts';
import { incompatibleMessage, type Judged, messagesOf } from './messages.ts';
import type { Call, Operation } from './operation.ts';

function judgedOf(
  call: Call,
  input: RegisterInput,
  verdict: Verdict & { readonly compared: readonly StoredVersion[]; readonly level: string },
): Judged {
  return {
    verdict,
    compared: verdict.compared,
    level: verdict.level,
    validateFields: call.service.config(call.subject, true).validateFields === true,
    proposed: input.text,
  };
}

function check(call: Call, version: string | undefined): unknown {
  const verbose = call.flag('verbose');
  try {
    const input = call.schema();
    const verdict = call.service.compatibility(call.subject, version, input, call.normalize());
    const messages = verbose ? messagesOf(judgedOf(call, input, verdict)) : [];
    return { is_compatible: verdict.compatible, ...(messages.length === 0 ? {} : { messages }) };
  } catch (thrown) {
    // With verbose a text that cannot be parsed is an answer, not an error.
    const error = findMillraceError(thrown);
    if (!verbose || error?.code !== 'invalid_schema') throw thrown;
    return { is_compatible: false, messages: [error.message] };
  }
}

/** An error of a registration, as clients know it: a refusal tells all that stands against the schema. */
export function refusalOf(call: Call, thrown: unknown, input: RegisterInput): unknown {
  const error = findMillraceError(thrown);
  if (error?.code !== 'incompatible') return thrown;
  const { verdict, level } = error.details as { readonly verdict?: Verdict; readonly level?: string };
  if (verdict === undefined || level === undefined) return thrown;
  const numbers = new Set(verdict.comparisons.map(({ version }) => version));
  const compared = call.service.versions(call.subject, 'no').filter(({ version }) => numbers.has(version));
  const judged = judgedOf(call, input, { ...verdict, compared, level });
  return registryError('incompatible', incompatibleMessage(call.subject, judged), { cause: thrown });
}

export const COMPATIBILITY_OPERATIONS: readonly Operation[] = [
  {
    id: 'checkAgainstVersion',
    method: 'POST',
    path: '/compatibility/subjects/{subject}/versions/{version}',
    summary: 'Would this schema be compatible with that one version, in the mode of the subject?',
    tag: 'compatibility',
    right: 'read',
    query: ['verbose', 'normalize'],
    body: 'SchemaRequest',
    answer: ref('Compatibility'),
    errors: [
      'subject_not_found',
      'version_not_found',
      'invalid_version',
      'invalid_schema',
      'schema_too_large',
    ],
    run: (call) => check(call, call.param('version')),
  },
  {
    id: 'checkAgainstSubject',
    method: 'POST',
    path: '/compatibility/subjects/{subject}/versions',
    summary: 'Would this schema be accepted, against all versions that the mode of the subject names?',
    tag: 'compatibility',
    right: 'read',
    query: ['verbose', 'normalize'],
    body: 'SchemaRequest',
    answer: ref('Compatibility'),
    errors: ['subject_not_found', 'version_not_found', 'invalid_schema', 'schema_too_large'],
    run: (call) => check(call, undefined),
  },
];
