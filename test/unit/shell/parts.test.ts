/** The small parts of the shell: screen, progress, readiness and redaction. */
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import type { Timers } from '../../../src/core/clock.ts';
import { Readiness } from '../../../src/shell/servers/readiness.ts';
import { addressOf } from '../../../src/shell/servers/serve.ts';
import { humanLine } from '../../../src/shell/terminal/log.ts';
import {
  progressText,
  shortDuration,
  shortNumber,
  startProgress,
} from '../../../src/shell/terminal/progress.ts';
import { redactSetting, redactText, secretsOf } from '../../../src/shell/terminal/redact.ts';
import { failureOf } from '../../../src/shell/terminal/report.ts';
import { Screen } from '../../../src/shell/terminal/screen.ts';
import { Terminal } from '../../fixtures/terminal.ts';
import { realClock, turn } from '../../wait.ts';
import { resumeAfterStall, withFakeIntervals } from '../stall.ts';

/** Clock that the test advances. */
function manualClock(): Timers & { advance(ms: number): void } {
  let now = 1000;
  return {
    ...realClock,
    wallNowMs: () => now,
    monotonicMs: () => now,
    advance: (ms) => {
      now += ms;
    },
  };
}

function recorder(isTTY: boolean, columns = 80) {
  let text = '';
  const screen = new Screen({ write: (more) => (text += more), isTTY, columns });
  return { screen, text: () => text };
}

describe('redaction', () => {
  test.each([
    ['postgres://me:secret@host:5432/db', 'postgres://me:***@host:5432/db'],
    ['postgres://me:p@ss:w@host/db?x=1', 'postgres://me:***@host/db?x=1'],
    ['postgres://me@host/db', 'postgres://me@host/db'],
    ['http://host:8081/path', 'http://host:8081/path'],
    ['a://u:p@h,b://v:q@k', 'a://u:***@h,b://v:***@k'],
    ['sasl.password=hunter2,acks=all', 'sasl.password=***,acks=all'],
    ['cannot reach postgres://me:secret@host/db now', 'cannot reach postgres://me:***@host/db now'],
    ['host:9092,other:9092', 'host:9092,other:9092'],
  ])('the text %s is redacted', (text, shown) => expect(redactText(text)).toBe(shown));

  test('no password of a URL survives redaction', () => {
    const word = fc.stringMatching(/^[A-Za-z0-9!$&'()*+,;=:@._~-]{1,20}$/);
    fc.assert(
      fc.property(word, (word) => {
        const password = `<${word}>`;
        expect(redactText(`x postgres://user:${password}@host:1/db y`)).toBe(
          'x postgres://user:***@host:1/db y',
        );
      }),
    );
  });

  test('a secret setting is hidden completely, including a list across its commas', () => {
    expect(redactSetting({ type: 'string', help: '', secret: true }, 'abc')).toBe('***');
    expect(redactSetting({ type: 'string', help: '', secret: true }, undefined)).toBeUndefined();
    const sink = { type: 'string', help: '', secret: true, plain: /^kafka:/ } as const;
    expect(redactSetting(sink, 'kafka:results')).toBe('kafka:results');
    expect(redactSetting(sink, 'postgres://u:p@h/d')).toBe('***');
    expect(secretsOf({ sink }, { sink: 'kafka:results' }).hide('topic kafka:results')).toContain('results');
    expect(redactSetting({ type: 'list', help: '' }, ['a://u:p@h', 'b'])).toBe('a://u:***@h,b');
    expect(redactSetting({ type: 'int', help: '' }, 5)).toBe(5);
  });
});

describe('progress', () => {
  test('figures of a progress line are short', () => {
    expect([0, 950, 1000, 12_345, 4_560_000, 2e9, 0.5].map(shortNumber)).toEqual([
      '0',
      '950',
      '1.00k',
      '12.3k',
      '4.56M',
      '2.00G',
      '0.500',
    ]);
    expect([0, 4400, 65_000, 3_725_000].map(shortDuration)).toEqual(['0s', '4s', '1m05s', '1h02m']);
  });

  test('a progress line states the progress, the rate, the remaining time and the failures', () => {
    const state = {
      what: 'gen',
      unit: 'events',
      count: 1_200_000,
      errors: 1,
      elapsedMs: 3000,
      perSecond: 400_000,
      total: 2_000_000,
    };
    expect(progressText(state)).toBe('gen: 1.20M of 2.00M events (60%), 400k/s, ETA 2s, 1 error');
    expect(progressText({ ...state, perSecond: 0 })).toContain('ETA -');
    expect(progressText({ ...state, total: undefined })).toBe('gen: 1.20M events in 3s, 400k/s, 1 error');
    expect(progressText({ ...state, total: 0, count: 0 })).toContain('(100%)');
  });

  test('progress that is not on a TTY ends in one plain line', () => {
    const clock = manualClock();
    const { screen, text } = recorder(false);
    const progress = startProgress({ what: 'load', total: 10, unit: 'orders' }, screen, clock, false);
    progress.add(4);
    progress.error();
    clock.advance(2000);
    progress.set(10);
    progress.done();
    progress.done();
    expect(text()).toBe('load: 10 of 10 orders (100%), 5/s, 1 error\n');
  });

  test('progress that is not on a TTY writes a plain line every 10 s, with the latest rate', () => {
    vi.useFakeTimers();
    try {
      const clock = manualClock();
      const { screen, text } = recorder(false);
      const progress = startProgress({ what: 'copy', total: 1000 }, screen, clock, false);
      const pass = (ms: number, count: number): void => {
        progress.add(count);
        clock.advance(ms);
        vi.advanceTimersByTime(ms);
      };
      pass(9_999, 100);
      expect(text()).toBe('');
      pass(1, 0);
      expect(text()).toBe('copy: 100 of 1.00k (10%), 10/s, ETA 1m30s, 0 errors\n');
      pass(10_000, 400);
      expect(text().split('\n')[1]).toBe('copy: 500 of 1.00k (50%), 40/s, ETA 13s, 0 errors');
      progress.done();
      pass(60_000, 0);
      expect(text().split('\n')).toHaveLength(4);
    } finally {
      vi.useRealTimers();
    }
  });

  test('quiet progress shows nothing', () => {
    const { screen, text } = recorder(true);
    const progress = startProgress({ what: 'x' }, screen, manualClock(), true);
    progress.add(1);
    progress.done();
    expect(text()).toBe('');
  });

  test('progress on a TTY rewrites one line, and other lines go above it', async () => {
    const terminal = new Terminal(30, 10);
    const screen = new Screen({ write: (text) => terminal.write(text), isTTY: true, columns: 30, rows: 10 });
    const progress = startProgress({ what: 'reading a long name', total: 10 }, screen, manualClock(), false);
    await expect.poll(() => terminal.shown()).toEqual(['reading a long name: 0 of 10']);
    screen.line('a log line');
    expect(terminal.shown()).toEqual(['a log line', 'reading a long name: 0 of 10']);
    progress.done();
    expect(terminal.shown().slice(0, 2)).toEqual(['a log line', 'reading a long name: 0 of 10 (']);
    expect(terminal.shown().join('')).toMatch(/0 errors$/);
    expect(terminal.isFree()).toBe(true);
  });

  test('a table of progress stays above its line, and remains when the work is done', async () => {
    const terminal = new Terminal(40, 10);
    const screen = new Screen({ write: (text) => terminal.write(text), isTTY: true, columns: 40, rows: 10 });
    let rows = ['instance  state', 'one       running'];
    const seen: unknown[] = [];
    const progress = startProgress(
      {
        what: 'work',
        table: (room) => {
          seen.push(room);
          return rows;
        },
      },
      screen,
      manualClock(),
      false,
    );
    await expect.poll(() => terminal.shown().slice(0, 2)).toEqual(rows);
    expect(seen[0]).toEqual({ columns: 40, rows: 8 });
    screen.line('an event');
    rows = ['instance  state'];
    await expect.poll(() => terminal.shown().length).toBe(3);
    expect(terminal.shown()).toEqual(['an event', 'instance  state', 'work: 0 in 0s, 0/s, 0 errors']);
    progress.done();
    expect(terminal.shown()).toEqual(['an event', 'instance  state', 'work: 0 in 0s, 0/s, 0 errors']);
    expect(terminal.isFree()).toBe(true);
  });

  test('progress that is not on a TTY has no table', () => {
    const { screen, text } = recorder(false);
    const progress = startProgress({ what: 'work', table: () => ['a row'] }, screen, manualClock(), false);
    progress.done();
    expect(text()).toBe('work: 0 in 0s, 0/s, 0 errors\n');
  });
});

describe('a block of lines on a terminal', () => {
  const line = fc.string({ unit: fc.constantFrom('a', 'b', ' ', '|'), maxLength: 60 });
  const step = fc.oneof(
    fc.record({ block: fc.array(line, { minLength: 1, maxLength: 14 }) }),
    fc.record({ line: fc.string({ unit: fc.constantFrom('x', 'y'), minLength: 1, maxLength: 70 }) }),
  );

  test('the terminal shows each line once after any blocks and lines, and the last block below them', () => {
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 20 }),
        fc.integer({ min: 2, max: 40 }),
        fc.integer({ min: 2, max: 12 }),
        (steps, columns, rows) => {
          const terminal = new Terminal(columns, rows);
          const screen = new Screen({ write: (text) => terminal.write(text), isTTY: true, columns, rows });
          const said = new Terminal(columns, rows);
          let block: readonly string[] = [];
          for (const one of steps) {
            if ('block' in one) {
              block = one.block.slice(-(rows - 1)).map((text) => text.slice(0, columns - 1));
              screen.showBlock(one.block);
            } else {
              screen.line(one.line);
              said.write(`${one.line}\n`);
            }
          }
          said.write(block.join('\n'));
          expect(terminal.shown()).toEqual(said.shown());
          screen.clear();
          expect(terminal.isFree()).toBe(true);
        },
      ),
    );
  });

  test('a frame is one write that clears no line before it is overwritten', () => {
    const writes: string[] = [];
    const screen = new Screen({ write: (text) => writes.push(text), isTTY: true, columns: 20, rows: 10 });
    screen.showBlock(['one', 'two']);
    screen.showBlock(['one', 'three']);
    expect(writes).toEqual([
      '\rone\u001b[K\ntwo\u001b[K\u001b[J',
      '\r\u001b[1Aone\u001b[K\nthree\u001b[K\u001b[J',
    ]);
  });

  test('a terminal of unknown size has 80 columns and 24 rows', () => {
    const of = (columns: number | undefined, rows: number | undefined) =>
      new Screen({ write: () => {}, isTTY: true, columns, rows }).size;
    expect(of(undefined, undefined)).toEqual({ columns: 80, rows: 24 });
    expect(of(0, 0)).toEqual({ columns: 80, rows: 24 });
  });

  test('a terminal that became narrower is redrawn from the first of the wrapped lines', () => {
    const writes: string[] = [];
    const output = { write: (text: string) => writes.push(text), isTTY: true, columns: 20, rows: 10 };
    const screen = new Screen(output);
    screen.showBlock(['x'.repeat(15), 'short']);
    output.columns = 8;
    screen.showBlock(['short']);
    // Fifteen characters take two rows of eight; the cursor is in the third row.
    expect(writes[1]).toBe('\r\u001b[2Ashort\u001b[K\u001b[J');
  });
});

describe('readiness', () => {
  test('a process is ready neither before setReady, nor while a check fails, nor once it drains', async () => {
    const clock = manualClock();
    const readiness = new Readiness(clock);
    let ok = false;
    readiness.add('store', () => ok);
    expect(await readiness.report()).toMatchObject({ ready: false, started: false });
    readiness.setReady();
    clock.advance(1000);
    expect(await readiness.report()).toMatchObject({
      ready: false,
      started: true,
      checks: [{ name: 'store', ok: false, why: 'not yet' }],
    });
    ok = true;
    clock.advance(1000);
    const report = await readiness.report();
    expect(report).toMatchObject({
      ready: true,
      checks: [{ name: 'store', ok: true, age_ms: 0, since_ms: 0 }],
    });
    expect(report.checks[0]).not.toHaveProperty('why');
    clock.advance(5000);
    expect((await readiness.report()).checks[0]).toMatchObject({ age_ms: 0, since_ms: 5000 });
    readiness.startDrain();
    expect(await readiness.report()).toMatchObject({ ready: false, draining: true, checks: [{ ok: true }] });
  });

  test('the result of a check is reused for 250 ms, and concurrent requests share one run', async () => {
    const clock = manualClock();
    const readiness = new Readiness(clock);
    let runs = 0;
    readiness.add('slow', async () => {
      runs++;
      await turn();
      return true;
    });
    await Promise.all([readiness.report(), readiness.report(), readiness.report()]);
    clock.advance(100);
    expect((await readiness.report()).checks[0]).toMatchObject({ age_ms: 100 });
    expect(runs).toBe(1);
    clock.advance(200);
    await readiness.report();
    expect(runs).toBe(2);
  });

  test('a check that answers after a stall of this process counts as passed', async () => {
    await withFakeIntervals(async () => {
      const clock = manualClock();
      const readiness = new Readiness(clock);
      readiness.setReady();
      let stalled = (): void => {};
      const stall = new Promise<void>((resolve) => {
        stalled = resolve;
      });
      readiness.add('answers', async () => {
        await stall;
        await turn();
        return true;
      });
      const report = readiness.report();
      clock.advance(2500);
      resumeAfterStall();
      stalled();
      expect(await report).toMatchObject({ ready: true, checks: [{ ok: true }] });
    });
  });

  test('a check that throws, rejects or hangs reports why the process is not ready', async () => {
    vi.useFakeTimers();
    try {
      const clock = manualClock();
      const readiness = new Readiness(clock);
      readiness.setReady();
      readiness.add('throws', () => {
        throw new Error('cold');
      });
      readiness.add('rejects', () => Promise.reject(new Error('gone')));
      let asked = 0;
      readiness.add('hangs', () => {
        asked++;
        return new Promise(() => {});
      });
      const first = readiness.report();
      await vi.advanceTimersByTimeAsync(2000);
      const { ready, checks } = await first;
      expect(ready).toBe(false);
      expect(checks.map((check) => check.why)).toEqual(['cold', 'gone', 'no answer within 2000 ms']);
      clock.advance(10_000);
      const again = readiness.report();
      await vi.advanceTimersByTimeAsync(2000);
      expect((await again).checks[2]?.since_ms).toBe(10_000);
      expect(asked).toBe(1);
    } finally {
      vi.useRealTimers();
    }
  });
});

test('an address is split at its last colon', () => {
  expect(addressOf('127.0.0.1:0')).toEqual({ host: '127.0.0.1', port: 0 });
  expect(addressOf('[::1]:8081')).toEqual({ host: '::1', port: 8081 });
});

test('control characters in a log line or an error cannot reach the terminal', () => {
  const line = humanLine(
    `${JSON.stringify({ level: 'warn', time: '', msg: 'odd', path: '/\u001b[2J\u0007\nnext\u009b1m' })}\n`,
  );
  expect(line).toBe('WARN odd path=/\\x1b[2J\\x07 next\\x9b1m\n');
  expect(failureOf(new Error('a\u001b[31m\r\nb')).line).toMatch(/^error: a\\x1b\[31m b; /);
});

test('a line that is not JSON is shown unchanged', () => {
  expect(humanLine('plain\n')).toBe('plain\n');
});
