/** Types that no finite event can hold, so they are never written: a record that requires itself,
 *  an enum without symbols, an empty union, and every type that requires one of these. An empty
 *  list or map needs no value of its type. */
import type { AvroNode, AvroRecordNode, AvroUnionNode } from '../../../formats/avro/syntax/tree.ts';

/** Record or union whose inner types are not all decided. */
interface Waiting {
  readonly node: AvroRecordNode | AvroUnionNode;
  /** Number of inner types that are not known to have a value. For a union, one inner type with a
   *  value is enough. */
  missing: number;
  held: boolean;
  readonly outer: Waiting[];
}

const innerOf = (node: AvroRecordNode | AvroUnionNode): Iterable<AvroNode> =>
  node.kind === 'union' ? node.branches : fieldTypes(node);

function* fieldTypes({ fields }: AvroRecordNode): Generator<AvroNode> {
  for (const { type } of fields) yield type;
}

/** Returns all such types in a tree. @cost linear in its types */
export function neverWritten(root: AvroNode): ReadonlySet<AvroNode> {
  const never = new Set<AvroNode>();
  const all = new Map<AvroNode, Waiting>();
  const open: Waiting[] = [];
  const ready: Waiting[] = [];
  /** Returns the entry of a type that depends on others, or whether the type has a value. Each
   *  record and union is queued once. */
  const visit = (start: AvroNode): Waiting | boolean => {
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
  visit(root);
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    let some = false;
    for (const inner of innerOf(next.node)) {
      const entry = visit(inner);
      if (entry === true) some = true;
      else {
        next.missing++;
        if (entry !== false) entry.outer.push(next);
      }
    }
    if (next.node.kind === 'union' ? some : next.missing === 0) hold(next);
  }
  // `outer` lists are complete here, even if the inner type was decided before its outer type was
  // visited: `ready` is drained only now.
  for (let next = ready.pop(); next !== undefined; next = ready.pop())
    for (const outer of next.outer) if (--outer.missing === 0 || outer.node.kind === 'union') hold(outer);
  for (const { node, held } of all.values()) if (!held) never.add(node);
  return never;
}
