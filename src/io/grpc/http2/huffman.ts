/** Huffman decoder of HPACK, four bits at a time. Source: RFC 7541, section 5.2 and appendix B.
 *
 *  The code is canonical: codes of one length are consecutive in the order of their symbols, so the
 *  table of lengths defines the code. A string is padded with the first bits of EOS, fewer than
 *  eight; a whole EOS is invalid.
 */

const EOS = 256;
/** Bits of the code of each byte, and of EOS. */
const LENGTHS: readonly number[] = [
  [13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28],
  [28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28],
  [6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6],
  [5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10],
  [13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7],
  [7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6],
  [15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5],
  [6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28],
  [20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23],
  [24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24],
  [22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23],
  [21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23],
  [26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25],
  [19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27],
  [20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23],
  [26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26],
  [30],
].flat();
const SHORTEST_BITS = 5;
/** Most bytes of a decoded string: no code is shorter than five bits. */
export const huffmanBytesMax = (bytes: number): number => Math.floor((8 * bytes) / SHORTEST_BITS);

/** Inner nodes of the tree: 257 leaves have 256 inner nodes. */
const NODES = 256;
const PADDING_BITS_MAX = 7;

/** Builds the tree: children of the inner nodes in pairs, each a node or ~symbol. Node 0 is the
 *  root. */
function growTree(): Int16Array {
  const children = new Int16Array(2 * NODES);
  let used = 1;
  let code = 0;
  let bits = SHORTEST_BITS;
  const symbols = LENGTHS.map((length, symbol) => ({ length, symbol })).sort(
    (a, b) => a.length - b.length || a.symbol - b.symbol,
  );
  for (const { length, symbol } of symbols) {
    code *= 2 ** (length - bits);
    bits = length;
    let node = 0;
    for (let bit = length - 1; bit > 0; bit--) {
      const at = 2 * node + ((code >>> bit) & 1);
      if (children[at] === 0) children[at] = used++;
      node = children[at] as number;
    }
    children[2 * node + (code & 1)] = ~symbol;
    code++;
  }
  return children;
}

/** Layout of a step: the next node in the lowest byte, a symbol in the second byte, then these
 *  flags. */
const EMITS = 1 << 16;
const FAILS = 1 << 17;

function stepsOf(children: Int16Array): Int32Array {
  const steps = new Int32Array(NODES * 16);
  for (let node = 0; node < NODES; node++) {
    for (let nibble = 0; nibble < 16; nibble++) {
      let at = node;
      let step = 0;
      for (let bit = 3; bit >= 0; bit--) {
        const next = children[2 * at + ((nibble >>> bit) & 1)] as number;
        if (next >= 0) at = next;
        else {
          step |= ~next === EOS ? FAILS : EMITS | (~next << 8);
          at = 0;
        }
      }
      steps[node * 16 + nibble] = step | at;
    }
  }
  return steps;
}

/** Nodes at which a string may end: at most seven steps towards EOS. */
function endsOf(children: Int16Array): Uint8Array {
  const ends = new Uint8Array(NODES);
  let node = 0;
  for (let depth = 0; depth <= PADDING_BITS_MAX; depth++) {
    ends[node] = 1;
    node = children[2 * node + 1] as number;
  }
  return ends;
}

const CHILDREN = growTree();
const STEPS = stepsOf(CHILDREN);
const ENDS = endsOf(CHILDREN);

/** Decodes a string into `into`, which has room for `huffmanBytesMax`. Returns the number of bytes,
 *  or -1 for an invalid code. @cost O(to - from) */
export function readHuffman(bytes: Uint8Array, from: number, to: number, into: Uint8Array): number {
  let node = 0;
  let length = 0;
  for (let at = from; at < to; at++) {
    const byte = bytes[at] as number;
    let step = STEPS[(node << 4) | (byte >>> 4)] as number;
    if (step >= EMITS) {
      if (step >= FAILS) return -1;
      into[length++] = (step >>> 8) & 0xff;
    }
    step = STEPS[((step & 0xff) << 4) | (byte & 15)] as number;
    if (step >= EMITS) {
      if (step >= FAILS) return -1;
      into[length++] = (step >>> 8) & 0xff;
    }
    node = step & 0xff;
  }
  return ENDS[node] === 1 ? length : -1;
}
