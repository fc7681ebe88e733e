/** Compatibility checks, and the messages of a refusal. */
import { findMillraceError } from '../../../core/errors.ts';
import { registryError } from '../../errors.ts';
import type { Judgement, RegisterInput } from '../../store/service.ts';
import { incompatibleMessage, type Judged, messagesOf } from '../messages/proven.ts';
import { ref } from '../openapi/schemas.ts';
import type { Call, Operation } from '../operation.ts';

function judgedOf(
  call: Call,
  input: RegisterInput,
  judgement: Omit<Judged, 'validateFields' | 'proposed'>,
): Judged {
  const { verdict, compared, level, policy } = judgement;
  const validateFields = call.service.config(call.subject, true).validateFields === true;
  return { verdict, compared, level, policy, validateFields, proposed: input.text };
}

function check(call: Call, version: string | undefined): unknown {
  const verbose = call.flag('verbose');
  try {
    const input = call.schema();
    const judgement = call.service.compatibility(call.subject, version, input, {
      ...call.normalize(),
      explain: verbose,
    });
    const { compatible: is_compatible, comparisons } = judgement;
    if (!verbose) return { is_compatible };
    const verdict = { compatible: is_compatible, comparisons };
    const messages = messagesOf(judgedOf(call, input, { ...judgement, verdict }));
    const body = { is_compatible, ...(messages.length === 0 ? {} : { messages }) };
    return listsFindings(judgement) ? withFindings(body, judgement) : body;
  } catch (thrown) {
    // With `verbose`, a text that cannot be parsed gets an answer instead of an error.
    const error = findMillraceError(thrown);
    if (!verbose || error?.code !== 'invalid_schema') throw thrown;
    return { is_compatible: false, messages: [error.message] };
  }
}

/** True if the answer lists findings. The existing registries return only messages, so policy
 *  STRICT lists none; notes alone are not listed either. */
const listsFindings = ({ policy, comparisons }: Judgement): boolean =>
  policy === 'PROVEN' &&
  comparisons.some(({ findings }) => findings.some(({ severity }) => severity !== 'note'));

function withFindings(body: object, judgement: Judgement): unknown {
  const findings = judgement.explained();
  return findings instanceof Promise
    ? findings.then((all) => ({ ...body, findings: all }))
    : { ...body, findings };
}

/** Translates an error of a registration into the form that clients know: a refusal lists all
 *  reasons. */
export function refusalOf(call: Call, thrown: unknown, input: RegisterInput): unknown {
  const error = findMillraceError(thrown);
  if (error?.code !== 'incompatible') return thrown;
  const { verdict, compared, level, policy } = error.details as Partial<Judged>;
  if (verdict === undefined || compared === undefined || level === undefined || policy === undefined)
    return thrown;
  const judged = judgedOf(call, input, { verdict, compared, level, policy });
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
      'check_too_long',
      'checks_busy',
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
    errors: [
      'subject_not_found',
      'version_not_found',
      'invalid_schema',
      'check_too_long',
      'checks_busy',
      'schema_too_large',
    ],
    run: (call) => check(call, undefined),
  },
];
