/** Stacks into a flame graph: text of `perf script` to folded stacks, folded stacks to one SVG without a script.
 *
 *  A folded stack is its frames from the root, with semicolons between, and how often it was seen. Width is share of the
 *  samples; frames stand in the order of their names, so equal runs give equal pictures.
 */

const WIDTH = 1200;
const ROW = 17;
const MARGIN = 10;
const HEAD = 44;
/** Narrower frames are left out. */
const WIDTH_MIN = 0.8;
/** Of the font, a character. */
const CHARACTER = 6.2;

export type Folded = ReadonlyMap<string, number>;

/** `JS:*name file:line:column` and symbols with offsets, in words for a reader. The kind is the suffix: _[j] JavaScript, _[k]
 *  kernel, _[l] a library, none for the program itself. */
function frameOf(line: string): string | undefined {
  const [, symbol, object] = /^\s*[0-9a-f]+ (.+) \(([^()]*(?:\([^()]*\))?[^()]*)\)$/.exec(line) ?? [];
  if (symbol === undefined || object === undefined) return undefined;
  const bare = symbol.replace(/\+0x[0-9a-f]+$/, '').replaceAll(';', ',');
  const script = /^(?:JS|Eval|Script|Function|LazyCompile):[*~^+]?(.*)$/.exec(bare);
  if (script !== null) {
    const text = (script[1] as string)
      .replace(/:\d+$/, '')
      .replace(/(?:file:\/\/)?\/\S*\/(?:dist|node_modules)\//, '');
    return `${text.trim() || '(anonymous)'}_[j]`;
  }
  if (object.startsWith('[kernel') || bare.endsWith('_[k]')) return `${bare}_[k]`;
  if (/\.so(\.|$)|\.node$/.test(object))
    return `${bare === '[unknown]' ? object.split('/').at(-1) : bare}_[l]`;
  return bare === '[unknown]' ? undefined : bare;
}

/** A perf map whose addresses have one name each, the last that was given: code that is gone makes room for other code. */
export function latestNames(map: string): string {
  const kept: Array<{ readonly from: number; readonly to: number; readonly line: string }> = [];
  for (const line of map.split('\n').reverse()) {
    const [, start, size] = /^([0-9a-f]+) ([0-9a-f]+) /.exec(line) ?? [];
    if (start === undefined || size === undefined) continue;
    const from = Number.parseInt(start, 16);
    const to = from + Number.parseInt(size, 16);
    let low = 0;
    let high = kept.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((kept[middle] as { from: number }).from < from) low = middle + 1;
      else high = middle;
    }
    if ((kept[low - 1]?.to ?? 0) > from || (kept[low]?.from ?? Number.POSITIVE_INFINITY) < to) continue;
    kept.splice(low, 0, { from, to, line });
  }
  return `${kept.map(({ line }) => line).join('\n')}\n`;
}

/** Text of `perf script`: a head line a sample, then its frames from the leaf on, then an empty line. */
export function foldPerf(text: string): Folded {
  const folded = new Map<string, number>();
  let frames: string[] = [];
  let thread = '';
  const close = (): void => {
    if (thread === '') return;
    const stack = [thread, ...frames.reverse()].join(';');
    folded.set(stack, (folded.get(stack) ?? 0) + 1);
    frames = [];
    thread = '';
  };
  for (const line of text.split('\n')) {
    if (line === '') close();
    else if (/^\s/.test(line) && thread !== '') {
      const frame = frameOf(line);
      // A frame that calls itself is one frame.
      if (frame !== undefined && frame !== frames.at(-1)) frames.push(frame);
    } else {
      close();
      // The name of the thread may hold blanks; its id does not.
      thread = /^(.+?)\s+\d+(?:\/\d+)?\s+(?:\[\d+\]\s+)?[\d.]+:/.exec(line)?.[1]?.trim() ?? '';
    }
  }
  close();
  return folded;
}

/** What V8's own profiler gives, as much as is read. */
export interface CpuProfile {
  readonly nodes: ReadonlyArray<{
    readonly id: number;
    readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
    readonly children?: readonly number[];
  }>;
  readonly samples?: readonly number[];
}

/** Stacks of a CPU profile, without the samples in which the thread waited. */
export function foldCpuProfile({ nodes, samples = [] }: CpuProfile): Folded {
  const parents = new Map<number, number>();
  const names = new Map<number, string>();
  for (const { id, callFrame, children = [] } of nodes) {
    const { functionName, url, lineNumber } = callFrame;
    const place =
      url === ''
        ? ''
        : ` ${url.replace(/(?:file:\/\/)?\/\S*\/(?:dist|node_modules)\//, '')}:${lineNumber + 1}`;
    const name = `${functionName || '(anonymous)'}${place}`.replaceAll(';', ',');
    names.set(id, url === '' ? name : `${name}_[j]`);
    for (const child of children) parents.set(child, id);
  }
  const folded = new Map<string, number>();
  for (const sample of samples) {
    const frames: string[] = [];
    for (let at: number | undefined = sample; at !== undefined; at = parents.get(at)) {
      const name = names.get(at) as string;
      if (name !== '(root)') frames.push(name);
    }
    if (frames.length === 0 || frames[0] === '(idle)') continue;
    const stack = frames.reverse().join(';');
    folded.set(stack, (folded.get(stack) ?? 0) + 1);
  }
  return folded;
}

interface Node {
  readonly name: string;
  count: number;
  readonly children: Map<string, Node>;
}

function treeOf(folded: Folded): Node {
  const root: Node = { name: 'all', count: 0, children: new Map() };
  for (const [stack, count] of folded) {
    root.count += count;
    let at = root;
    for (const name of stack.split(';')) {
      let next = at.children.get(name);
      if (next === undefined) {
        next = { name, count: 0, children: new Map() };
        at.children.set(name, next);
      }
      next.count += count;
      at = next;
    }
  }
  return root;
}

const HUES: Readonly<Record<string, number>> = { j: 120, k: 205, l: 45 };

function colorOf(name: string): string {
  const hue = HUES[/_\[([jkl])\]$/.exec(name)?.[1] ?? ''] ?? 20;
  let hash = 0;
  for (const character of name) hash = (hash * 31 + (character.codePointAt(0) as number)) % 997;
  return `hsl(${hue} 55% ${62 + (hash % 17)}%)`;
}

const escapeXml = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');

/** One SVG: the root below, leaves above, each frame with its share as a tooltip. */
export function flameSvg(folded: Folded, title: string, note: string): string {
  const root = treeOf(folded);
  const scale = root.count === 0 ? 0 : (WIDTH - 2 * MARGIN) / root.count;
  const boxes: Array<{ readonly node: Node; readonly x: number; readonly depth: number }> = [];
  let deepest = 0;
  const place = (node: Node, x: number, depth: number): void => {
    if (node.count * scale < WIDTH_MIN) return;
    boxes.push({ node, x, depth });
    deepest = Math.max(deepest, depth);
    let at = x;
    for (const child of [...node.children.values()].sort((a, b) => (a.name < b.name ? -1 : 1))) {
      place(child, at, depth + 1);
      at += child.count * scale;
    }
  };
  place(root, MARGIN, 0);
  const height = HEAD + (deepest + 1) * ROW + MARGIN;
  const drawn = boxes.map(({ node, x, depth }) => {
    const width = node.count * scale;
    const y = height - MARGIN - (depth + 1) * ROW;
    const name = node.name.replace(/_\[[jkl]\]$/, '');
    const share = `${((100 * node.count) / root.count).toFixed(2)}%, ${node.count} samples`;
    const room = Math.floor((width - 4) / CHARACTER);
    const label = room < 3 ? '' : name.length <= room ? name : `${name.slice(0, room - 1)}…`;
    const words =
      label === '' ? '' : `<text x="${(x + 2).toFixed(1)}" y="${y + 12}">${escapeXml(label)}</text>`;
    return `<g><title>${escapeXml(name)} (${share})</title><rect x="${x.toFixed(1)}" y="${y}" width="${Math.max(0.3, width - 0.3).toFixed(1)}" height="${ROW - 1}" fill="${colorOf(node.name)}"/>${words}</g>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}">`,
    `<title>${escapeXml(title)}</title>`,
    '<style>text{font:10.5px monospace;fill:#222}.t{font:15px sans-serif}</style>',
    `<rect width="${WIDTH}" height="${height}" fill="#fffdf6"/>`,
    `<text class="t" x="${MARGIN}" y="20">${escapeXml(title)}</text>`,
    `<text x="${MARGIN}" y="36">${escapeXml(note)}</text>`,
    ...drawn,
    '</svg>',
    '',
  ].join('\n');
}

/** Share of the samples by kind of their leaf, for the note under a title. */
export function sharesOf(folded: Folded): string {
  const sums = new Map<string, number>();
  let all = 0;
  for (const [stack, count] of folded) {
    const kind = /_\[([jkl])\]$/.exec(stack)?.[1] ?? 'p';
    sums.set(kind, (sums.get(kind) ?? 0) + count);
    all += count;
  }
  const names = { j: 'JavaScript', p: 'Node.js and V8', l: 'libraries and addons', k: 'kernel' } as const;
  return Object.entries(names)
    .map(([kind, name]) => `${name} ${Math.round((100 * (sums.get(kind) ?? 0)) / Math.max(1, all))}%`)
    .join(', ');
}
