/** Final table of the demo: one row for each fact, with a tick or a cross. */
import type { Fact } from './fact.ts';

const WIDTH_MAX = 110;

function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else {
      line = line === '' ? word : `${line} ${word}`;
    }
  }
  if (line !== '') lines.push(line);
  return lines;
}

/** Renders plain text; `columns` is the width of the terminal, if there is one. */
export function renderFacts(facts: readonly Fact[], columns: number | undefined): string {
  const width = Math.min(columns ?? WIDTH_MAX, WIDTH_MAX);
  const out: string[] = [];
  let slice = '';
  for (const fact of facts) {
    if (fact.slice !== slice) {
      slice = fact.slice;
      out.push('', slice.toUpperCase());
    }
    out.push(`  ${fact.holds ? '✓' : '✗'} ${fact.claim}`);
    for (const line of wrap(fact.seen, width - 6)) out.push(`      ${line}`);
  }
  const held = facts.filter((fact) => fact.holds).length;
  out.push('', `${held} of ${facts.length} facts hold`);
  return out.join('\n');
}

/** Determines the exit code. A demo without facts has shown nothing and fails. */
export const allHold = (facts: readonly Fact[]): boolean =>
  facts.length > 0 && facts.every((fact) => fact.holds);
