/** The checker of linearizability itself: histories that are linearizable, and one for each way in
 *  which a history is not. */
import { describe, expect, it } from 'vitest';
import { type Operation, RegisterHistory, violationsOf } from './register-history.ts';

const ORDER = new Map([['r', ['a', 'b']]]);

/** Runs operations one after another; `open` leaves the write without an answer. */
function historyOf(...steps: ReadonlyArray<readonly ['write' | 'read' | 'open', string | null]>) {
  const history = new RegisterHistory();
  for (const [kind, value] of steps) {
    const one = history.begin(kind === 'read' ? 'read' : 'write', 'r', value);
    if (kind !== 'open') history.end(one);
  }
  return history;
}

describe('checker of a history of registers', () => {
  it('operations one after another in the order of the log are linearizable', () => {
    const history = historyOf(['read', null], ['write', 'a'], ['read', 'a'], ['write', 'b'], ['read', 'b']);
    expect(violationsOf(history, ORDER)).toEqual([]);
  });

  it('concurrent operations may take effect in either order', () => {
    const history = new RegisterHistory();
    const open: Operation[] = [history.begin('write', 'r', 'b'), history.begin('write', 'r', 'a')];
    for (const value of ['a', 'b']) history.end(history.begin('read', 'r', value));
    for (const one of open) history.end(one);
    expect(violationsOf(history, ORDER)).toEqual([]);
  });

  it('a write without an answer may take effect late or never', () => {
    expect(violationsOf(historyOf(['open', 'b'], ['write', 'a'], ['read', 'b']), ORDER)).toEqual([]);
    expect(violationsOf(historyOf(['open', 'never'], ['write', 'a'], ['read', 'a']), ORDER)).toEqual([]);
  });

  it.each<[string, RegisterHistory, RegExp]>([
    [
      'a stale read',
      historyOf(['write', 'a'], ['write', 'b'], ['read', 'a']),
      /read of a .* behind the write of b/,
    ],
    ['an empty register after a write', historyOf(['write', 'a'], ['read', null]), /read of null .* behind/],
    ['an order of writes against time', historyOf(['write', 'b'], ['write', 'a']), /write of a .* behind/],
    [
      'a read that goes back',
      historyOf(['open', 'a'], ['open', 'b'], ['read', 'b'], ['read', 'a']),
      /read of a .* behind the read of b/,
    ],
    ['a value that no write stored', historyOf(['write', 'a'], ['read', 'c']), /no write that took effect/],
    ['a read before its write begins', historyOf(['read', 'a'], ['write', 'a']), /before the write begins/],
  ])('the checker detects %s', (_, history, expected) => {
    expect(violationsOf(history, ORDER)[0]).toMatch(expected);
  });
});
