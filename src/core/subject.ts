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
