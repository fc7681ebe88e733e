/** Route table: a tree of path segments, for any HTTP driver.
 *
 *  Invariants: (1) the path is split at its slashes before it is decoded, so `%2F` stays inside its
 *  segment; (2) a literal segment wins over `{name}`; (3) one trailing slash is ignored; (4)
 *  `{name}` is never empty.
 */
import { invariant } from '../../core/errors.ts';
import type { HttpRoute } from './port.ts';

interface Leaf {
  readonly route: HttpRoute;
  readonly names: readonly string[];
}

interface Node {
  readonly literal: Map<string, Node>;
  any: Node | undefined;
  readonly leaves: Map<string, Leaf>;
}

export type RouteMatch =
  | { readonly kind: 'found'; readonly route: HttpRoute; readonly params: Readonly<Record<string, string>> }
  /** The path is known but not the method; or the method is OPTIONS, answered with `allow` on every
   *  known path. */
  | { readonly kind: 'method'; readonly allow: readonly string[] }
  | { readonly kind: 'unknown' }
  /** The path has an invalid percent encoding. */
  | { readonly kind: 'malformed' };

const emptyNode = (): Node => ({ literal: new Map(), any: undefined, leaves: new Map() });

function split(path: string): string[] {
  const segments = path.slice(1).split('/');
  if (segments.length > 1 && segments[segments.length - 1] === '') segments.pop();
  return segments;
}

function decode(segment: string): string | undefined {
  if (!segment.includes('%')) return segment;
  try {
    return decodeURIComponent(segment);
  } catch {
    return undefined;
  }
}

type Found = Extract<RouteMatch, { readonly kind: 'found' }>;
const NO_PARAMS: Readonly<Record<string, string>> = Object.freeze(
  Object.create(null) as Record<string, string>,
);

export class RouteTable {
  private readonly root = emptyNode();
  /** Routes without `{name}`, by path and method: a literal always wins, so they need no search. */
  private readonly literal = new Map<string, Map<string, Found>>();

  constructor(routes: readonly HttpRoute[]) {
    for (const route of routes) this.add(route);
  }

  private add(route: HttpRoute): void {
    let node = this.root;
    const names: string[] = [];
    for (const segment of split(route.path)) {
      const name = /^\{(.+)\}$/.exec(segment)?.[1];
      if (name === undefined) {
        const next = node.literal.get(segment) ?? emptyNode();
        node.literal.set(segment, next);
        node = next;
      } else {
        names.push(name);
        node.any ??= emptyNode();
        node = node.any;
      }
    }
    invariant(!node.leaves.has(route.method), `two routes for ${route.method} ${route.path}`);
    node.leaves.set(route.method, { route, names });
    if (names.length > 0 || route.path.includes('%')) return;
    const byMethod = this.literal.get(route.path) ?? new Map<string, Found>();
    byMethod.set(route.method, { kind: 'found', route, params: NO_PARAMS });
    this.literal.set(route.path, byMethod);
  }

  /** Finds the route. HEAD falls back to the route of GET. @cost O(segments), at worst times 2 for
   *  each segment with both a literal and `{name}` */
  match(method: string, path: string): RouteMatch {
    const literal = this.literal.get(path)?.get(method);
    if (literal !== undefined) return literal;
    const segments: string[] = [];
    for (const raw of split(path)) {
      const segment = decode(raw);
      if (segment === undefined) return { kind: 'malformed' };
      segments.push(segment);
    }
    const values: string[] = [];
    const leaf = this.find(this.root, segments, 0, method, values);
    if (leaf !== undefined) {
      const params: Record<string, string> = Object.create(null) as Record<string, string>;
      leaf.names.forEach((name, index) => {
        params[name] = values[index] as string;
      });
      return { kind: 'found', route: leaf.route, params };
    }
    const allowed = new Set<string>();
    this.find(this.root, segments, 0, undefined, [], allowed);
    if (allowed.size === 0) return { kind: 'unknown' };
    if (allowed.has('GET')) allowed.add('HEAD');
    allowed.add('OPTIONS');
    return { kind: 'method', allow: [...allowed].sort() };
  }

  /** Searches the tree. Without a method it returns no route and collects the methods of the path.
   */
  private find(
    node: Node,
    segments: readonly string[],
    at: number,
    method: string | undefined,
    values: string[],
    allowed?: Set<string>,
  ): Leaf | undefined {
    if (at === segments.length) {
      if (method === undefined) {
        for (const known of node.leaves.keys()) allowed?.add(known);
        return undefined;
      }
      return node.leaves.get(method) ?? (method === 'HEAD' ? node.leaves.get('GET') : undefined);
    }
    const segment = segments[at] as string;
    const literal = node.literal.get(segment);
    if (literal !== undefined) {
      const found = this.find(literal, segments, at + 1, method, values, allowed);
      if (found !== undefined) return found;
    }
    if (node.any === undefined || segment === '') return undefined;
    values.push(segment);
    const found = this.find(node.any, segments, at + 1, method, values, allowed);
    if (found === undefined) values.pop();
    return found;
  }
}
