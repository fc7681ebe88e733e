/** Command lines of a user's fleet, filled with the values of an instance. `{name}` is replaced
 *  after the split into words, so a value never makes another word; `{{name}}` is the text
 *  `{name}`. Other braces are kept. */
import { coreError } from '../../core/errors.ts';
import { nearest } from '../../core/settings.ts';
import { requireProgram, splitWords } from '../user-processes/words.ts';

/** Names of the values that an instance gets, in braces or as MILLRACE_NAME of its environment. */
export const PLACEHOLDERS = [
  'instance',
  'role',
  'version',
  'port',
  'brokers',
  'topic',
  'group',
  'registry',
  'subject',
  'schema_version',
  'schema_id',
  'schema_file',
  'rate',
] as const;
export type Placeholder = (typeof PLACEHOLDERS)[number];

const TEMPLATE = /\{\{([a-z_]+)\}\}|\{([a-z_]+)\}/g;

/** Splits a command line into words, one of which is the program. @throws bad_value */
export function splitCommand(flag: string, line: string): readonly string[] {
  const words = splitWords(flag, line);
  checkPlaceholders(flag, words);
  requireProgram(flag, words[0] as string);
  return words;
}

function checkPlaceholders(flag: string, words: readonly string[]): void {
  const names = words.flatMap((word) => [...word.matchAll(TEMPLATE)].flatMap(([, , name]) => name ?? []));
  const unknown = names.find((name) => !(PLACEHOLDERS as readonly string[]).includes(name));
  if (unknown === undefined) return;
  const near = nearest(unknown, PLACEHOLDERS);
  throw coreError('bad_value', `${flag} has an unknown value {${unknown}}`, {
    next:
      near === undefined
        ? `there are ${PLACEHOLDERS.join(', ')}; write {{${unknown}}} for the text itself`
        : `did you mean {${near}}?`,
  });
}

/** Replaces the placeholders of each word. */
export function fillWords(
  words: readonly string[],
  values: Readonly<Record<Placeholder, string>>,
): readonly string[] {
  return words.map((word) =>
    word.replace(TEMPLATE, (_, literal: string | undefined, name: Placeholder) =>
      literal === undefined ? values[name] : `{${literal}}`,
    ),
  );
}

/** Environment of an instance. The names are those of the settings of Millrace's own commands, so
 *  `millrace consumer` needs no further flags. */
export function valueEnvironment(
  values: Readonly<Record<Placeholder, string>>,
): Readonly<Record<string, string>> {
  return {
    ...Object.fromEntries(PLACEHOLDERS.map((name) => [`MILLRACE_${name.toUpperCase()}`, values[name]])),
    MILLRACE_LISTEN: `127.0.0.1:${values.port}`,
  };
}
