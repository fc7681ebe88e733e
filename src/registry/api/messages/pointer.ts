/** Locates a finding in the text of an Avro schema, as a JSON pointer. */

type Node = unknown;

const isObject = (value: Node): value is Readonly<Record<string, Node>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const NAMED: readonly unknown[] = ['record', 'error', 'enum', 'fixed'];

/** Maps the short name of each named type to its node and pointer. Iterative, because the text may
 *  nest to any depth. */
function namesOf(root: Node): ReadonlyMap<string, readonly [Node, string]> {
  const names = new Map<string, readonly [Node, string]>();
  const open: Array<readonly [Node, string]> = [[root, '']];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const [node, at] = next;
    if (Array.isArray(node)) for (const [i, branch] of node.entries()) open.push([branch, `${at}/${i}`]);
    if (!isObject(node)) continue;
    const { type, name, fields, items, values } = node;
    if (NAMED.includes(type) && typeof name === 'string')
      names.set(name.slice(name.lastIndexOf('.') + 1), next);
    if (typeof type === 'object') open.push([type, `${at}/type`]);
    if (items !== undefined) open.push([items, `${at}/items`]);
    if (values !== undefined) open.push([values, `${at}/values`]);
    if (Array.isArray(fields)) {
      fields.forEach((field, i) => {
        if (isObject(field)) open.push([field['type'], `${at}/fields/${i}/type`]);
      });
    }
  }
  return names;
}

/** Returns the pointer of a path as findings write it: `Order.items[].qty`, with `{}` for the
 *  values of a map. Undefined: the text has no such path.
 *  @param field true: point to the field itself, not to its type */
export function avroPointer(text: string, path: string, field: boolean): string | undefined {
  return avroPointers(text)(path, field);
}

/** Like `avroPointer` for many paths in one text, which is parsed once. */
export function avroPointers(text: string): (path: string, field: boolean) => string | undefined {
  let root: Node;
  try {
    root = JSON.parse(text);
  } catch {
    return () => undefined;
  }
  const names = namesOf(root);
  return (path, field) => pointerIn(root, names, path, field);
}

function pointerIn(
  root: Node,
  names: ReadonlyMap<string, readonly [Node, string]>,
  path: string,
  field: boolean,
): string | undefined {
  const steps = path.match(/\.[^.[{]+|\[\]|\{\}/g) ?? [];
  let node: Node = root;
  let at = '';
  const resolve = (): void => {
    for (let hops = 0; hops < 4; hops++) {
      if (typeof node === 'string') {
        const found = names.get(node.slice(node.lastIndexOf('.') + 1));
        if (found === undefined) return;
        [node, at] = found;
      } else if (isObject(node) && isObject(node['type'])) {
        node = node['type'];
        at = `${at}/type`;
      } else return;
    }
  };
  for (const [index, step] of steps.entries()) {
    resolve();
    if (!isObject(node)) return undefined;
    if (step === '[]' || step === '{}') {
      const key = step === '[]' ? 'items' : 'values';
      node = node[key];
      at = `${at}/${key}`;
      continue;
    }
    const fields: unknown = node['fields'];
    if (!Array.isArray(fields)) return undefined;
    const position = fields.findIndex((item: Node) => isObject(item) && item['name'] === step.slice(1));
    if (position < 0) return undefined;
    at = `${at}/fields/${position}`;
    if (field && index === steps.length - 1) return at;
    node = (fields[position] as Readonly<Record<string, Node>>)['type'];
    at = `${at}/type`;
  }
  return at === '' ? '/' : at;
}
