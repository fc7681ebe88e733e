/** The types that no finite event can hold, so that nobody ever writes one: a record that requires itself, an enum without
 *  symbols, an empty union, and what requires one of these. An empty list or map holds none of its type.
 */
import type { AvroNode, AvroRecordNode, AvroUnionNode } from '../../../formats/avro/syntax/tree.ts';

/** Undecided: it waits for types inside it. */
interface Waiting {
  readonly node: AvroRecordNode | AvroUnionNode;
  /** Types inside that are not known to hold a value; of a union, one that does is enough. */
  missing: number;
  held: boolean;
  readonly outer: Waiting[];
}

const innerOf = (node: AvroRecordNode | AvroUnionNode): Iterable<AvroNode> =>
  node.kind === 'union' ? node.branches : fieldTypes(node);

function* fieldTypes({ fields }: AvroRecordNode): Generator<AvroNode> {
  for (const { type } of fields) yield type;
}

/** All of them in a tree. @cost linear in its types */
export function neverWritten(root: AvroNode): ReadonlySet<AvroNode> {
  const never = new Set<AvroNode>();
  const all = new Map<AvroNode, Waiting>();
  const open: Waiting[] = [];
  const ready: Waiting[] = [];
  /** What has to be decided about a type, or true: it holds a value. Each record and union is put on the list once. */
  const meet = (start: AvroNode): Waiting | boolean => {
    let node = start;
    while (node.kind === 'array' || node.kind === 'map')
      node = node.kind === 'array' ? node.items : node.values;
    let here: Waiting | boolean = true;
    if (node.kind === 'enum' && node.symbols.length === 0) {
      never.add(node);
      here = false;
    } else if (node.kind === 'record' || node.kind === 'union') {
      const known = all.get(node);
      here = known ?? { node, missing: 0, held: false, outer: [] };
      if (known === undefined) {
        all.set(node, here);
        open.push(here);
      }
    }
    return node === start ? here : true;
  };
  const hold = (one: Waiting): void => {
    if (one.held) return;
    one.held = true;
    ready.push(one);
  };
  meet(root);
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    let some = false;
    for (const inner of innerOf(next.node)) {
      const met = meet(inner);
      if (met === true) some = true;
      else {
        next.missing++;
        if (met !== false) met.outer.push(next);
      }
    }
    if (next.node.kind === 'union' ? some : next.missing === 0) hold(next);
  }
  // An inner type that was decided before its outer one met it stands in `outer` all the same: nothing was drained yet.
  for (let next = ready.pop(); next !== undefined; next = ready.pop())
    for (const outer of next.outer) if (--outer.missing === 0 || outer.node.kind === 'union') hold(outer);
  for (const { node, held } of all.values()) if (!held) never.add(node);
  return never;
}
