import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { MillraceError } from '../../../../src/core/errors.ts';
import type { HttpRoute } from '../../../../src/io/http/port.ts';
import { headerValues, targetOf } from '../../../../src/io/http/request.ts';
import { RouteTable } from '../../../../src/io/http/route.ts';
import { runs } from '../../../tier.ts';

const route = (method: string, path: string): HttpRoute => ({
  method,
  path,
  handler: () => ({ status: 200 }),
});

/** Oracle by the port's rule, without a tree: tries every route segment by segment; the most
 *  literal route wins. */
function oracle(routes: readonly HttpRoute[], method: string, path: string) {
  const parts = path.slice(1).split('/');
  if (parts.length > 1 && parts[parts.length - 1] === '') parts.pop();
  const fitting = routes
    .map((one) => {
      const pattern = one.path.slice(1).split('/');
      const params: Record<string, string> = {};
      if (pattern.length !== parts.length) return undefined;
      const kinds: string[] = [];
      for (const [i, segment] of pattern.entries()) {
        const given = decodeURIComponent(parts[i] as string);
        if (segment.startsWith('{')) {
          if (given === '') return undefined;
          params[segment.slice(1, -1)] = given;
          kinds.push('b');
        } else {
          if (segment !== given) return undefined;
          kinds.push('a');
        }
      }
      return { route: one, params, rank: kinds.join('') };
    })
    .filter((one) => one !== undefined)
    .sort((a, b) => (a.rank < b.rank ? -1 : 1));
  return {
    best: fitting.find((one) => one.route.method === method),
    methods: new Set(fitting.map((one) => one.route.method)),
  };
}

describe('route table', () => {
  const segment = fc.constantFrom('a', 'b', 'c');
  const pattern = fc
    .array(fc.oneof(segment, fc.constantFrom('{x}', '{y}')), { minLength: 1, maxLength: 3 })
    // A name may occur only once in a path.
    .map((parts) => `/${parts.map((part, i) => (part.startsWith('{') ? `{p${i}}` : part)).join('/')}`);
  const method = fc.constantFrom('GET', 'POST');
  const routes = fc.uniqueArray(fc.tuple(method, pattern), {
    selector: ([m, p]) => `${m} ${p}`,
    maxLength: 12,
  });
  const asked = fc
    .array(fc.oneof(segment, fc.constantFrom('%61', 'a%2Fb', 'z', '', '%20')), { minLength: 1, maxLength: 4 })
    .map((parts) => `/${parts.join('/')}`);

  test('the route table agrees with a search through every route', () => {
    fc.assert(
      fc.property(routes, method, asked, (pairs, verb, path) => {
        const list = pairs.map(([m, p]) => route(m, p));
        const expected = oracle(list, verb, path);
        const match = new RouteTable(list).match(verb, path);
        if (expected.best !== undefined) {
          expect(match.kind).toBe('found');
          if (match.kind !== 'found') return;
          expect(match.route).toBe(expected.best.route);
          expect({ ...match.params }).toEqual(expected.best.params);
        } else if (expected.methods.size > 0) {
          const allow = new Set([
            ...expected.methods,
            'OPTIONS',
            ...(expected.methods.has('GET') ? ['HEAD'] : []),
          ]);
          expect(match).toEqual({ kind: 'method', allow: [...allow].sort() });
        } else {
          expect(match).toEqual({ kind: 'unknown' });
        }
      }),
      { numRuns: runs(500) },
    );
  });

  test('the route table answers any path', () => {
    const table = new RouteTable([route('GET', '/a/{x}'), route('GET', '/{y}')]);
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(['found', 'method', 'unknown', 'malformed']).toContain(table.match('GET', `/${text}`).kind);
      }),
    );
  });

  test('a HEAD request is routed to GET unless it has a route of its own', () => {
    const get = route('GET', '/a');
    const head = route('HEAD', '/b');
    const table = new RouteTable([get, head, route('GET', '/b')]);
    expect(table.match('HEAD', '/a')).toMatchObject({ route: get });
    expect(table.match('HEAD', '/b')).toMatchObject({ route: head });
  });

  test('two routes for the same method and path are an internal error', () => {
    expect(() => new RouteTable([route('GET', '/a/{x}'), route('GET', '/a/{y}')])).toThrow(MillraceError);
    expect(() => new RouteTable([route('GET', '/a/{x}'), route('POST', '/a/{y}')])).not.toThrow();
  });

  test('the same path part may have another name for another method', () => {
    const table = new RouteTable([route('GET', '/a/{x}'), route('POST', '/a/{y}')]);
    expect(table.match('GET', '/a/1')).toMatchObject({ params: { x: '1' } });
    expect(table.match('POST', '/a/1')).toMatchObject({ params: { y: '1' } });
  });
});

describe('request target', () => {
  test.each([
    ['/a?b=1?c', { path: '/a', query: 'b=1?c' }],
    ['/', { path: '/', query: '' }],
    ['*', { path: '*', query: '' }],
    ['http://host:1/a?b', { path: '/a', query: 'b' }],
    ['HTTP://host', { path: '/', query: '' }],
    ['http://host?q', { path: '/', query: 'q' }],
    ['//a/b', { path: '//a/b', query: '' }],
    ['a', undefined],
    ['', undefined],
    ['/a b', undefined],
    ['/a#b', undefined],
    ['/\u00e9', undefined],
    ['/a\u007f', undefined],
    ['host:443', undefined],
    ['ftp://host/', undefined],
  ])('the target %j is split into path and query', (url, target) => expect(targetOf(url)).toEqual(target));
});

test('header lines of one name stay separate, in order, trimmed of blanks only', () => {
  const raw = ['A', ' 1 ', 'b', '2', 'a', '\t3,4\u00a0', 'odd'];
  expect(headerValues(raw, 'a')).toEqual(['1', '3,4\u00a0']);
  expect(headerValues(raw, 'C')).toEqual([]);
});
