/** Selects the finder of JSON fields: the addon or the TypeScript reference implementation. */
import { coreError } from '../core/errors.ts';
import type { JsonFinder, JsonKernels } from '../core/json/finder.ts';
import { callAddon, loadAddon, type NativeMode } from './load.ts';
import type { Addon } from './raw.ts';
import { referenceJsonKernels } from './reference/json/finder.ts';

interface Named {
  readonly name: Uint8Array;
  field: number;
  readonly children: Map<string, Named>;
}

const named = (name: string): Named => ({ name: Buffer.from(name), field: -1, children: new Map() });

/** Tree of the names on the paths, as the addon reads it: for each node in preorder its parent, its
 *  field, and start and size of its name. */
function treeOf(paths: ReadonlyArray<readonly string[]>): { table: Int32Array; names: Uint8Array } {
  const root = named('');
  paths.forEach((path, field) => {
    let node = root;
    for (const name of path) {
      const child = node.children.get(name) ?? named(name);
      node.children.set(name, child);
      node = child;
    }
    node.field = field;
  });
  const words: number[] = [];
  const names: Uint8Array[] = [];
  let size = 0;
  const add = (node: Named, parent: number): void => {
    const index = words.length / 4;
    words.push(parent, node.field, size, node.name.length);
    names.push(node.name);
    size += node.name.length;
    for (const child of node.children.values()) add(child, index);
  };
  add(root, -1);
  return { table: Int32Array.from(words), names: Buffer.concat(names) };
}

function opened(addon: Addon, paths: ReadonlyArray<readonly string[]>): JsonFinder {
  const { table, names } = treeOf(paths);
  const finder = callAddon(() => addon.jsonOpenFinder(table, names, paths.length));
  return {
    find({ bytes, start, length }, from, to, into) {
      if (into.fields !== paths.length) throw coreError('layout_mismatch', 'into: other fields');
      const { isDocument, kind, start: starts, end, integer } = into;
      callAddon(() =>
        addon.jsonFind(finder, bytes, start, length, from, to, isDocument, kind, starts, end, integer),
      );
    },
    close: () => callAddon(() => addon.jsonCloseFinder(finder)),
  };
}

/** Selects the finder of JSON fields. @throws addon_missing, addon_mismatch as `loadAddon` does */
export function loadJsonKernels(mode: NativeMode): JsonKernels {
  if (mode !== 'native') return referenceJsonKernels;
  const addon = loadAddon();
  return { name: 'native', openFinder: (paths) => opened(addon, paths) };
}
