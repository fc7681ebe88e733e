/** Qualified subject names: `subject` in the default context, `:.context:subject` in another one.
 */
export const DEFAULT_CONTEXT = '.';

export interface SubjectName {
  /** Context with its leading dot; `.` is the default context. */
  readonly context: string;
  /** Name inside the context; empty: the context itself. */
  readonly name: string;
}

/** Splits a qualified name. A name without a context belongs to the default one. */
export function parseSubject(subject: string): SubjectName {
  if (!subject.startsWith(':.')) return { context: DEFAULT_CONTEXT, name: subject };
  const end = subject.indexOf(':', 2);
  return end < 0
    ? { context: subject.slice(1), name: '' }
    : { context: subject.slice(1, end), name: subject.slice(end + 1) };
}

/** Context that a subject names; empty: none, so the address of the registry decides. */
export const namedContext = (subject: string): string =>
  subject.startsWith(':.') ? parseSubject(subject).context : '';

/** Subject of a reference in a schema of this context. Without another context of its own it
 *  belongs to the context of the schema, as registries resolve it.
 *  @param context empty: that of the registry's address */
export function subjectWithin(context: string, subject: string): string {
  const own = parseSubject(subject);
  return context === '' || own.context !== DEFAULT_CONTEXT ? subject : `:${context}:${own.name}`;
}
