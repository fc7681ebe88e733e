/** Refuses unknown options. TypeScript refuses most of them; without this check, a JavaScript
 *  caller or one that spreads an object would silently get a default. */
import { outboxError } from './errors.ts';

/** Every name of an options type. The compiler keeps the list complete. */
export type KnownNames<T> = Readonly<Record<keyof Required<T>, true>>;

/** Refuses an option that is not in `known`.
 *  @param what names the call in the error text
 *  @throws bad_option */
export function refuseUnknown(what: string, given: object, known: Readonly<Record<string, true>>): void {
  const unknown = Object.keys(given).find((name) => !Object.hasOwn(known, name));
  if (unknown === undefined) return;
  throw outboxError('bad_option', `${what} has no option ${unknown.slice(0, 60)}`, {
    next: `use one of ${Object.keys(known).sort().join(', ')}`,
  });
}
