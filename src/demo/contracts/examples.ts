/** Text of the faults that a fact shows. */

const EXAMPLES_MAX = 3;

/** Empty without faults. */
export const examples = (faults: readonly string[]): string =>
  faults.length === 0
    ? ''
    : `; ${faults.slice(0, EXAMPLES_MAX).join('; ')}${faults.length > EXAMPLES_MAX ? `; and ${faults.length - EXAMPLES_MAX} more` : ''}`;
