/** Names of subjects and versions in requests, and the errors for missing ones. A subject is
 *  `subject` in the default context and `:.context:subject` in another one.
 */
import type { MillraceError } from '../../../core/errors.ts';
import { DEFAULT_CONTEXT, parseSubject, type SubjectName } from '../../../core/subject.ts';
import { registryError } from '../../errors.ts';
import { VERSION_MAX } from './records.ts';

export { DEFAULT_CONTEXT, parseSubject };

/** Context of the global settings, as another registry may write it. */
const GLOBAL_CONTEXT = '.__GLOBAL';
const WILDCARD = ':*:';
const RESERVED_NAMES = ['__GLOBAL', '__EMPTY'];

/** Maximum characters of a subject, its context included. */
export const SUBJECT_CHARS_MAX = 1024;

/** Canonical spelling of a subject: without the default context. */
export function qualify({ context, name }: SubjectName): string {
  return context === DEFAULT_CONTEXT ? name : `:${context}:${name}`;
}

export function contextOf(subject: string): string {
  return subject.startsWith(':.') ? parseSubject(subject).context : DEFAULT_CONTEXT;
}

/** Qualifies a name; without a context of its own it belongs to the context of `parent`. */
export function qualifyWith(parent: string, subject: string): string {
  const own = parseSubject(subject);
  return own.context === DEFAULT_CONTEXT
    ? qualify({ context: contextOf(parent), name: own.name })
    : qualify(own);
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are what is refused
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;
const LONE_SURROGATE = /\p{Surrogate}/u;

function refuse(subject: string): never {
  const long = subject.length > SUBJECT_CHARS_MAX;
  const name = long ? `${subject.slice(0, 64)}…` : subject;
  const why = long ? ` It has more than ${SUBJECT_CHARS_MAX} characters.` : '';
  throw registryError('invalid_subject', `The specified subject '${name}' is not valid.${why}`, {
    next: `use 1 to ${SUBJECT_CHARS_MAX} characters, no control characters, and not ${RESERVED_NAMES.join(' or ')}`,
  });
}

function isWritable(subject: string): boolean {
  return subject.length <= SUBJECT_CHARS_MAX && !CONTROL.test(subject) && !LONE_SURROGATE.test(subject);
}

/** Returns the subject in its canonical spelling. @throws invalid_subject */
export function checkSubject(subject: string): string {
  const parsed = parseSubject(subject);
  if (
    !isWritable(subject) ||
    parsed.name === '' ||
    subject.startsWith(WILDCARD) ||
    RESERVED_NAMES.includes(parsed.name) ||
    parsed.context === GLOBAL_CONTEXT
  )
    refuse(subject);
  return qualify(parsed);
}

/** Returns the scope of a setting: null is global, `:.context:` a whole context. @throws
 *  invalid_subject
 */
export function checkScope(subject: string | undefined): string | null {
  if (subject === undefined) return null;
  const parsed = parseSubject(subject);
  if (!isWritable(subject) || subject.startsWith(WILDCARD) || RESERVED_NAMES.includes(parsed.name))
    refuse(subject);
  if (parsed.name === '') {
    if (parsed.context === GLOBAL_CONTEXT || (parsed.context === DEFAULT_CONTEXT && subject !== ''))
      return null;
    if (parsed.context === DEFAULT_CONTEXT) refuse(subject);
  } else if (parsed.context === GLOBAL_CONTEXT) refuse(subject);
  return qualify(parsed);
}

/** Scopes in which a setting is looked up, in order: the scope itself, its context, global. */
export function scopesOf(scope: string | null): readonly (string | null)[] {
  if (scope === null) return [null];
  const { context, name } = parseSubject(scope);
  return context === DEFAULT_CONTEXT || name === '' ? [scope, null] : [scope, `:${context}:`, null];
}

const IN_DEFAULT = `:${DEFAULT_CONTEXT}:`;

/** Returns a test for the subjects of a prefix: plain text, `:*:text` in any context,
 *  `:.context:text` in one.
 */
export function prefixTest(prefix: string): (subject: string) => boolean {
  if (prefix.startsWith(IN_DEFAULT)) {
    const rest = prefix.slice(IN_DEFAULT.length);
    return (subject) => contextOf(subject) === DEFAULT_CONTEXT && subject.startsWith(rest);
  }
  if (!prefix.startsWith(WILDCARD)) return (subject) => subject.startsWith(prefix);
  const rest = prefix.slice(WILDCARD.length);
  return (subject) => parseSubject(subject).name.startsWith(rest);
}

/** True when a subject belongs to a scope; null is every subject. */
export function isWithin(subject: string, scope: string | null): boolean {
  if (scope === null || subject === scope) return true;
  const { context, name } = parseSubject(scope);
  return name === '' && contextOf(subject) === context;
}

/** @throws invalid_version */
export function parseVersion(wanted: string): number | 'latest' {
  if (wanted === 'latest' || wanted === '-1') return 'latest';
  const number = /^\d{1,10}$/.test(wanted) ? Number(wanted) : 0;
  if (number < 1 || number > VERSION_MAX) {
    throw registryError(
      'invalid_version',
      `The specified version '${wanted}' is not a valid version id. Allowed values are between [1, 2^31-1] and the string "latest"`,
    );
  }
  return number;
}

export function subjectNotFound(subject: string): MillraceError {
  return registryError('subject_not_found', `Subject '${subject}' not found.`);
}

export function versionNotFound(wanted: string): MillraceError {
  return registryError('version_not_found', `Version ${wanted} not found.`);
}
