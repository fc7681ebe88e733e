/** Smallest event of each type of a schema, if the type has one within the limits.
 *
 *  A record that requires itself, an enum without symbols and an empty union have no finite value;
 *  neither has a type that needs one of them. Sizes are found by relaxation from "none": each round
 *  can only make a type smaller. */
import type { AvroNode } from '../../../formats/avro/syntax/tree.ts';
import type { AvroDatum } from '../../../formats/datum.ts';
import { AVRO_EDGES } from './values.ts';

/** Most bytes of a smallest event; a type whose smallest event is larger counts as having none. */
const EVENT_BYTES_MAX = 1 << 20;
/** Most types inside types of a smallest event; bounds the recursion of every function that walks
 *  one. */
const EVENT_DEPTH_MAX = 120;
/** Most rounds of relaxation; real schemas settle in three. */
const ROUNDS_MAX = 100;

interface Size {
  readonly bytes: number;
  readonly depth: number;
}
const NONE: Size = { bytes: Number.POSITIVE_INFINITY, depth: Number.POSITIVE_INFINITY };

const PRIMITIVE_BYTES = {
  null: 0,
  boolean: 1,
  int: 1,
  long: 1,
  float: 4,
  double: 8,
  bytes: 1,
  string: 1,
} as const;

const partsOf = (node: AvroNode): readonly AvroNode[] => {
  switch (node.kind) {
    case 'record':
      return node.fields.map(({ type }) => type);
    case 'union':
      return node.branches;
    case 'array':
      return [node.items];
    case 'map':
      return [node.values];
    default:
      return [];
  }
};

/** Returns every type that the root reaches, inner ones first. An explicit stack replaces
 *  recursion, because chains of types may be long. */
function innerFirst(root: AvroNode): readonly AvroNode[] {
  const order: AvroNode[] = [];
  const seen = new Set<AvroNode>([root]);
  const open: Array<{ readonly node: AvroNode; readonly parts: readonly AvroNode[]; next: number }> = [
    { node: root, parts: partsOf(root), next: 0 },
  ];
  for (let top = open.at(-1); top !== undefined; top = open.at(-1)) {
    const part = top.parts[top.next++];
    if (part === undefined) {
      order.push(top.node);
      open.pop();
    } else if (!seen.has(part)) {
      seen.add(part);
      open.push({ node: part, parts: partsOf(part), next: 0 });
    }
  }
  return order;
}

export class LeastEvents {
  private readonly sizes = new Map<AvroNode, Size>();
  private readonly made = new Map<AvroNode, AvroDatum>();

  constructor(root: AvroNode) {
    const order = innerFirst(root);
    for (let round = 0, changed = true; changed && round < ROUNDS_MAX; round++) {
      changed = false;
      for (const node of order) {
        const size = this.measure(node);
        if (size.bytes >= this.sizeOf(node).bytes) continue;
        this.sizes.set(node, size);
        changed = true;
      }
    }
  }

  /** True if the type has an event within the limits. */
  has(node: AvroNode): boolean {
    const { bytes, depth } = this.sizeOf(node);
    return bytes <= EVENT_BYTES_MAX && depth <= EVENT_DEPTH_MAX;
  }

  bytesOf(node: AvroNode): number {
    return this.sizeOf(node).bytes;
  }

  /** Returns the smallest event. The type must have one. */
  of(node: AvroNode): AvroDatum {
    const known = this.made.get(node);
    if (known !== undefined) return known;
    const made = this.make(node);
    this.made.set(node, made);
    return made;
  }

  /** Returns the index of the branch with the smallest event; -1 if no branch has one. */
  branchOf(branches: readonly AvroNode[]): number {
    let best = -1;
    let least = NONE.bytes;
    for (let i = 0; i < branches.length; i++) {
      const { bytes } = this.sizeOf(branches[i] as AvroNode);
      if (bytes < least) {
        least = bytes;
        best = i;
      }
    }
    return best;
  }

  private sizeOf(node: AvroNode): Size {
    return this.sizes.get(node) ?? NONE;
  }

  private measure(node: AvroNode): Size {
    switch (node.kind) {
      case 'primitive':
        return { bytes: PRIMITIVE_BYTES[node.type], depth: 1 };
      case 'fixed':
        return { bytes: node.size, depth: 1 };
      case 'enum':
        return node.symbols.length === 0 ? NONE : { bytes: 1, depth: 1 };
      case 'array':
      case 'map':
        return { bytes: 1, depth: 1 };
      case 'union': {
        const best = node.branches[this.branchOf(node.branches)];
        if (best === undefined) return NONE;
        const { bytes, depth } = this.sizeOf(best);
        return { bytes: bytes + 1, depth: depth + 1 };
      }
      case 'record': {
        let bytes = 0;
        let depth = 0;
        for (const { type } of node.fields) {
          const size = this.sizeOf(type);
          bytes += size.bytes;
          if (size.depth > depth) depth = size.depth;
        }
        return { bytes, depth: depth + 1 };
      }
    }
  }

  private make(node: AvroNode): AvroDatum {
    switch (node.kind) {
      case 'primitive':
        return AVRO_EDGES[node.type][0] as AvroDatum;
      case 'fixed':
        return new Uint8Array(node.size);
      case 'enum':
        return node.symbols[0] as string;
      case 'array':
        return [];
      case 'map':
        return new Map();
      case 'union': {
        const branch = this.branchOf(node.branches);
        return { branch, value: this.of(node.branches[branch] as AvroNode) };
      }
      case 'record':
        return { fields: node.fields.map(({ type }) => this.of(type)) };
    }
  }
}
