/** Describes a failure: one line for stderr, with -json a document for stdout, and the exit code.
 */
import { inspect } from 'node:util';
import { EXIT, findMillraceError } from '../../core/errors.ts';
import { redactText, visibleLine } from './redact.ts';

export interface Failure {
  readonly exit: number;
  /** `error: what and why; what next [code]` without a line feed. */
  readonly line: string;
  readonly document: {
    readonly error: {
      readonly code: string;
      readonly kind: string;
      readonly message: string;
      readonly next?: string;
    };
  };
  /** Stack, printed at log level debug only. */
  readonly stack: string;
}

const textOf = (thrown: unknown): string =>
  typeof thrown === 'string' ? thrown : inspect(thrown, { depth: 1 });

/** Describes any thrown value; never throws.
 *  @param hide removes the secrets of the process from a text */
export function failureOf(thrown: unknown, hide: (text: string) => string = (text) => text): Failure {
  const oneLine = (text: string): string => redactText(visibleLine(hide(text)));
  const known = findMillraceError(thrown);
  const stack = hide(thrown instanceof Error ? (thrown.stack ?? thrown.message) : textOf(thrown));
  if (known !== undefined) {
    const message = oneLine(known.message);
    const next = known.next === undefined ? {} : { next: oneLine(known.next) };
    return {
      exit: known.row.exit,
      line: `error: ${oneLine(known.toLine())}`,
      document: { error: { code: known.code, kind: known.kind, message, ...next } },
      stack,
    };
  }
  const message =
    oneLine(thrown instanceof Error ? thrown.message || thrown.name : textOf(thrown)) || 'unknown failure';
  const next = 'this is a bug of millrace: run it again with -log-level=debug and report the stack';
  return {
    exit: EXIT.internal,
    line: `error: ${message}; ${next} [internal]`,
    document: { error: { code: 'internal', kind: 'internal', message, next } },
    stack,
  };
}
