/** Unified diffs of two texts in the format of `git apply` and `patch`. The common lines are found
 *  by a longest-common-subsequence table. */

/** Largest number of cells in the table; a larger range is replaced as a whole. */
const CELLS_MAX = 4_000_000;
const CONTEXT = 3;

interface Step {
  readonly sign: ' ' | '-' | '+';
  readonly line: string;
}

/** Lines with their line ends; the last line may have none. */
const linesOf = (text: string): string[] => text.match(/[^\n]*\n|[^\n]+$/g) ?? [];

function between(before: readonly string[], after: readonly string[]): Step[] {
  const width = after.length + 1;
  if ((before.length + 1) * width > CELLS_MAX)
    return [
      ...before.map((line): Step => ({ sign: '-', line })),
      ...after.map((line): Step => ({ sign: '+', line })),
    ];
  // common[i][j]: the most lines in common from before[i] and after[j] on.
  const common = new Uint32Array((before.length + 1) * width);
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      const down = common[(i + 1) * width + j] as number;
      const right = common[i * width + j + 1] as number;
      common[i * width + j] =
        before[i] === after[j] ? 1 + (common[(i + 1) * width + j + 1] as number) : Math.max(down, right);
    }
  }
  const steps: Step[] = [];
  let i = 0;
  let j = 0;
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) {
      steps.push({ sign: ' ', line: before[i++] as string });
      j++;
    } else if (
      i < before.length &&
      (j >= after.length || (common[(i + 1) * width + j] as number) >= (common[i * width + j + 1] as number))
    )
      steps.push({ sign: '-', line: before[i++] as string });
    else steps.push({ sign: '+', line: after[j++] as string });
  }
  return steps;
}

/** Every line of both texts as a diff step, in order. */
function stepsOf(before: string, after: string): Step[] {
  const old = linesOf(before);
  const fresh = linesOf(after);
  let head = 0;
  while (head < old.length && head < fresh.length && old[head] === fresh[head]) head++;
  let tail = 0;
  while (
    tail < old.length - head &&
    tail < fresh.length - head &&
    old[old.length - 1 - tail] === fresh[fresh.length - 1 - tail]
  )
    tail++;
  const same = (line: string): Step => ({ sign: ' ', line });
  return [
    ...old.slice(0, head).map(same),
    ...between(old.slice(head, old.length - tail), fresh.slice(head, fresh.length - tail)),
    ...old.slice(old.length - tail).map(same),
  ];
}

interface Hunk {
  readonly from: number;
  readonly to: number;
  readonly steps: readonly Step[];
}

function hunksOf(steps: readonly Step[], context: number): Hunk[] {
  const hunks: Hunk[] = [];
  let from = 1;
  let to = 1;
  let begin = 0;
  let at = 0;
  while (at < steps.length) {
    if ((steps[at] as Step).sign === ' ') {
      at++;
      continue;
    }
    let end = at;
    // Changes whose context lines would overlap share a hunk.
    for (let next = at; next < steps.length && next <= end + 2 * context + 1; next++)
      if ((steps[next] as Step).sign !== ' ') end = next;
    const first = Math.max(begin, at - context);
    const last = Math.min(steps.length, end + 1 + context);
    for (const { sign } of steps.slice(begin, first)) {
      if (sign !== '+') from++;
      if (sign !== '-') to++;
    }
    const own = steps.slice(first, last);
    hunks.push({ from, to, steps: own });
    for (const { sign } of own) {
      if (sign !== '+') from++;
      if (sign !== '-') to++;
    }
    begin = last;
    at = last;
  }
  return hunks;
}

function stepText({ sign, line }: Step): string {
  return line.endsWith('\n') ? `${sign}${line}` : `${sign}${line}\n\\ No newline at end of file\n`;
}

function rangeText(start: number, count: number): string {
  // An empty range is addressed by the line before it.
  return `${count === 0 ? start - 1 : start}${count === 1 ? '' : `,${count}`}`;
}

export function unifiedDiff(path: string, before: string, after: string): string {
  const name = path.replace(/^(\.?\/)+/, '');
  // `patch` needs a tab after a name with a space; otherwise the name ends at the space.
  const end = name.includes(' ') ? '\t\n' : '\n';
  const parts = [`--- a/${name}${end}`, `+++ b/${name}${end}`];
  for (const { from, to, steps } of hunksOf(stepsOf(before, after), CONTEXT)) {
    const old = steps.filter(({ sign }) => sign !== '+').length;
    const fresh = steps.filter(({ sign }) => sign !== '-').length;
    parts.push(`@@ -${rangeText(from, old)} +${rangeText(to, fresh)} @@\n`, ...steps.map(stepText));
  }
  return parts.join('');
}

/** Changed lines only, without line ends. */
export function changedLines(before: string, after: string): string[] {
  return stepsOf(before, after)
    .filter(({ sign }) => sign !== ' ')
    .map(({ sign, line }) => `${sign} ${line.replace(/\r?\n$/, '')}`);
}
