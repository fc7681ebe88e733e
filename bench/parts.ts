/** Selection of the parts of a benchmark by `-only`. */
import { coreError } from '../src/core/errors.ts';
import { nearest } from '../src/core/settings.ts';

/** Returns the selected parts in the order of `names`. @throws bad_value for an unknown part */
export function selectParts(
  only: readonly string[] | undefined,
  names: readonly string[],
): readonly string[] {
  const unknown = only?.find((name) => !names.includes(name));
  if (unknown !== undefined)
    throw coreError('bad_value', `-only=${unknown} is not a part of this benchmark`, {
      next: `did you mean ${nearest(unknown, names) ?? names.join(', ')}?`,
    });
  return only === undefined ? names : names.filter((name) => only.includes(name));
}
