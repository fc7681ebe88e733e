/** Texts of a target file with values in braces: `{name}` is replaced, `{{name}}` is the text
 *  `{name}`, and every other brace is kept, so JSON needs no quoting. */
import { coreError } from '../../core/errors.ts';
import { nearest } from '../../core/settings.ts';

const TEMPLATE = /\{\{([a-z][a-z0-9_]*)\}\}|\{([a-z][a-z0-9_]*)\}/g;

/** Names in a text, without repetition. */
export function namesIn(text: string): readonly string[] {
  return [...new Set([...text.matchAll(TEMPLATE)].flatMap(([, , name]) => name ?? []))];
}

/** Replaces the names that have a value, and keeps the others for a later step. */
export function fill(text: string, values: Readonly<Record<string, string>>): string {
  return text.replace(TEMPLATE, (all, _literal: string | undefined, name: string | undefined) =>
    name !== undefined && Object.hasOwn(values, name) ? (values[name] as string) : all,
  );
}

/** Replaces the names, and turns `{{name}}` into `{name}`: the last step of a text. */
export function fillLast(text: string, values: Readonly<Record<string, string>>): string {
  return text.replace(TEMPLATE, (all, literal: string | undefined, name: string | undefined) => {
    if (literal !== undefined) return `{${literal}}`;
    return name !== undefined && Object.hasOwn(values, name) ? (values[name] as string) : all;
  });
}

/** @throws bad_value for a name that has no value here */
export function requireNames(where: string, text: string, known: readonly string[]): void {
  const unknown = namesIn(text).find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const near = nearest(unknown, known);
  throw coreError('bad_value', `${where} has an unknown value {${unknown}}`, {
    next:
      near === undefined
        ? `there are ${known.map((name) => `{${name}}`).join(' ')}; write {{${unknown}}} for the text itself`
        : `did you mean {${near}}?`,
  });
}
