/** Options that a caller of the library hands in. TypeScript refuses most mistakes; a caller in
 *  JavaScript, or one that spreads an object, would otherwise get a default without a word. */
import { outboxError } from './errors.ts';

/** Every name of an options type, so that the compiler keeps the list complete. */
export type KnownNames<T> = Readonly<Record<keyof Required<T>, true>>;

/** @param what names the call in the message
 *  @throws bad_option for a name that means nothing */
export function refuseUnknown(what: string, given: object, known: Readonly<Record<string, true>>): void {
  const unknown = Object.keys(given).find((name) => !Object.hasOwn(known, name));
  if (unknown === undefined) return;
  throw outboxError('bad_option', `${what} has no option ${unknown.slice(0, 60)}`, {
    next: `use one of ${Object.keys(known).sort().join(', ')}`,
  });
}
