import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { coreError } from '../../../src/core/errors.ts';
import { defineCommand } from '../../../src/shell/command.ts';
import { turn, until } from '../../wait.ts';
import { fakeWorld, start } from './fake-world.ts';
import { commandOf, drained, untilDrain } from './probe-command.ts';

const folders: string[] = [];
function folder(): string {
  const path = mkdtempSync(join(tmpdir(), 'millrace-config-'));
  folders.push(path);
  return path;
}
afterAll(() => {
  for (const path of folders) rmSync(path, { recursive: true });
});

describe('exit codes and messages', () => {
  test.each([
    [undefined, 0],
    [0, 0],
    [1, 1],
    [4, 4],
  ])('a run that resolves to %s exits with %i', async (result, code) => {
    expect(
      await start(
        commandOf(() => Promise.resolve(result)),
        [],
      ).code,
    ).toBe(code);
  });

  test('a known failure is one line, or a document with -json, and has its own exit code', async () => {
    const failing = commandOf(() =>
      Promise.reject(coreError('unreachable', 'no broker\nat postgres://u:pw@h/db', { next: 'start it' })),
    );
    const plain = start(failing, []);
    expect(await plain.code).toBe(3);
    expect(plain.world.stderr()).toContain(
      'error: no broker at postgres://u:***@h/db; start it [unreachable]\n',
    );
    expect(plain.world.stdout()).toBe('');
    const json = start(failing, ['-json']);
    expect(await json.code).toBe(3);
    expect(JSON.parse(json.world.stdout())).toEqual({
      error: {
        code: 'unreachable',
        kind: 'unavailable',
        message: 'no broker at postgres://u:***@h/db',
        next: 'start it',
      },
    });
  });

  test('an internal error is one line and exit code 70, with the stack only at level debug', async () => {
    const failing = commandOf(() => Promise.reject(new TypeError('x is not a function')));
    const quiet = start(failing, []);
    expect(await quiet.code).toBe(70);
    expect(quiet.world.stderr()).toContain('error: x is not a function; this is a bug of millrace');
    expect(quiet.world.stderr()).not.toContain('run.test.ts');
    const loud = start(failing, ['-log-level=debug']);
    expect(await loud.code).toBe(70);
    expect(loud.world.stderr()).toContain('run.test.ts');
  });

  test('the progress line ends before the error line, which is last', async () => {
    const failing = commandOf((context) => {
      context.progress({ what: 'copy', unit: 'rows' }).add(3);
      return Promise.reject(coreError('timeout', 'late'));
    });
    const { code, world } = start(failing, ['-log-level=error']);
    expect(await code).toBe(3);
    expect(world.stderr()).toMatch(/\ncopy: 3 rows in \d+s, [^\n]+\nerror: late \[timeout\]\n$/);
  });

  test('any thrown value gives exit code 70', async () => {
    for (const thrown of ['text', undefined, null, 7, { a: 1 }, Object.create(null)]) {
      expect(
        await start(
          commandOf(() => Promise.reject(thrown)),
          [],
        ).code,
      ).toBe(70);
    }
  });

  test('usage errors exit with 2 before anything listens, and are JSON on request', async () => {
    const ok = commandOf(() => Promise.resolve(0));
    const { code, world } = start(ok, ['-cuont=3', '-json']);
    expect(await code).toBe(2);
    expect(world.stderr()).toBe(
      'error: unknown flag -cuont; did you mean -count? (-help lists all) [unknown_flag]\n',
    );
    expect(JSON.parse(world.stdout())).toMatchObject({ error: { code: 'unknown_flag', kind: 'invalid' } });
  });

  test('an error outside every promise ends the process with its exit code', async () => {
    const { code, address, world } = start(commandOf(drained), []);
    await address();
    world.uncaught(new Error('lost'));
    await expect.poll(() => world.exits).toEqual([70]);
    world.uncaught(coreError('unreachable', 'gone'));
    await expect.poll(() => world.exits).toEqual([70, 3]);
    world.signal('SIGTERM');
    expect(await code).toBe(0);
  });

  test('the flag -help prints the table and runs nothing', async () => {
    let ran = false;
    const probe = commandOf(() => {
      ran = true;
      return Promise.resolve(0);
    });
    for (const flag of ['-help', '--help', '-h']) {
      const { code, world } = start(probe, ['-count=x', flag]);
      expect(await code).toBe(0);
      for (const name of ['count', 'listen', 'json', 'config', 'log-level', 'drain-timeout', 'native']) {
        expect(world.stdout()).toContain(`  -${name}=`);
      }
      expect(world.stdout()).toContain('A command of the tests.');
    }
    expect(ran).toBe(false);
  });
});

describe('settings and log', () => {
  test('the start-up line has every effective setting with its source, secrets and passwords hidden', async () => {
    const world = fakeWorld({ env: { MILLRACE_WAIT: '2m' } });
    expect(
      await start(
        commandOf(() => Promise.resolve(0)),
        ['-count=7'],
        world,
      ).code,
    ).toBe(0);
    const line = world.logged().find((one) => one['msg'] === 'start');
    expect(line).toMatchObject({
      level: 'info',
      command: 'probe',
      settings: {
        count: '7 (flag)',
        wait: '2m (environment)',
        token: '*** (default)',
        listen: '127.0.0.1:0 (default)',
      },
    });
    expect(line).toMatchObject({ settings: { store: 'postgres://me:***@db/x (default)' } });
    expect(world.stderr()).not.toMatch(/hunter2|pass:w/);
  });

  test('a config file ranks below environment and flags, and an invalid one is one clear line', async () => {
    const dir = folder();
    const file = (text: string): string => {
      const path = join(dir, 'config.json');
      writeFileSync(path, text);
      return path;
    };
    let seen: unknown;
    const probe = commandOf((context) => {
      seen = context.settings;
      return Promise.resolve(0);
    });
    const good = file('\uFEFF{"count": 5, "wait": "1m", "log-level": "silent"}');
    expect(await start(probe, [`-config=${good}`, '-wait=2m']).code).toBe(0);
    expect(seen).toMatchObject({ count: 5, wait: 120_000, 'log-level': 'silent' });
    for (const [text, why] of [
      ['{"count": 5', 'is not JSON'],
      ['[1]', 'is not a JSON object'],
      ['"text"', 'is not a JSON object'],
      ['{"count": {"a": 1}}', 'sets count to a value'],
      ['{"count": null}', 'sets count to a value'],
      ['{"cuont": 1}', 'did you mean count?'],
      ['{"count": "x"}', 'config count=x is not a whole number'],
    ] as const) {
      const { code, world } = start(probe, [`-config=${file(text)}`]);
      expect([await code, world.stderr()], text).toEqual([2, expect.stringContaining(why)]);
      expect(world.stderr().trim().split('\n')).toHaveLength(1);
    }
    const missing = start(probe, [`-config=${join(dir, 'none.json')}`]);
    expect(await missing.code).toBe(2);
    expect(missing.world.stderr()).toContain('cannot be read (ENOENT)');
    const unreadable = start(probe, [`-config=${dir}`]);
    expect([await unreadable.code, unreadable.world.stderr()]).toEqual([
      2,
      expect.stringContaining('EISDIR'),
    ]);
  });

  test('a required setting may come from the config file', async () => {
    const path = join(folder(), 'c.json');
    writeFileSync(path, '{"brokers": "a:1"}');
    const probe = defineCommand({
      name: 'probe',
      summary: '',
      settings: { brokers: { type: 'string', required: true, help: '' } },
      run: (context) => Promise.resolve(context.settings.brokers === 'a:1' ? 0 : 1),
    });
    expect(await start(probe, [`-config=${path}`]).code).toBe(0);
    expect(await start(probe, []).code).toBe(2);
  });

  test('log lines are JSON, carry bigint and errors, and respect the level', async () => {
    const probe = commandOf((context) => {
      context.log.debug({}, 'unheard');
      context.log.child({ part: 'reader' }).warn({ offset: 2n ** 63n, error: new Error('odd') }, 'heard');
      return Promise.resolve(0);
    });
    const { code, world } = start(probe, []);
    await code;
    expect(world.logged().map((one) => one['msg'])).toEqual(['start', 'heard']);
    expect(world.logged()[1]).toMatchObject({
      level: 'warn',
      part: 'reader',
      offset: '9223372036854775808',
      error: 'odd',
    });
    const silent = start(probe, ['-log-level=silent']);
    await silent.code;
    expect(silent.world.logged()).toEqual([]);
  });

  test('log lines on a TTY are formatted for a person', async () => {
    const world = fakeWorld({ tty: true });
    const probe = commandOf((context) => {
      context.log.warn({ topic: 'a b', n: 3 }, 'slow');
      return Promise.resolve(0);
    });
    await start(probe, [], world).code;
    expect(world.stderr()).toMatch(/^\d\d:\d\d:\d\d\.\d{3} WARN slow topic=a b n=3$/m);
  });

  test('child processes inherit the choice of -native', async () => {
    const world = fakeWorld();
    const probe = commandOf((context) => Promise.resolve(context.settings.native === 'off' ? 4 : 0));
    expect(await start(probe, ['-native=off'], world).code).toBe(4);
    expect(world.env['MILLRACE_NATIVE']).toBe('off');
    expect(await start(probe, [], fakeWorld({ env: { MILLRACE_NATIVE: 'off' } })).code).toBe(4);
  });
});

describe('stdout', () => {
  test('stdout is text without -json, and one document with it', async () => {
    const probe = commandOf((context) => {
      context.print('a line', { offset: 12n, name: 'x' });
      return Promise.resolve(1);
    });
    const text = start(probe, []);
    expect([await text.code, text.world.stdout()]).toEqual([1, 'a line\n']);
    const json = start(probe, ['-json']);
    expect([await json.code, json.world.stdout()]).toEqual([1, '{"offset":"12","name":"x"}\n']);
  });

  test('a failure after the document prints no second document', async () => {
    const probe = commandOf((context) => {
      context.print('', { done: false });
      return Promise.reject(coreError('timeout', 'late'));
    });
    const { code, world } = start(probe, ['-json']);
    expect([await code, world.stdout()]).toEqual([3, '{"done":false}\n']);
  });
});

describe('signals', () => {
  test('SIGTERM ends readiness immediately, lets work finish, and keeps the command’s exit code', async () => {
    const order: string[] = [];
    let finish = (): void => {};
    const probe = commandOf(async (context) => {
      context.setReady();
      context.onClose(() => void order.push('first opened'));
      context.onClose(async () => {
        for (let i = 0; i < 5; i++) await turn();
        order.push('last opened');
      });
      await untilDrain(context);
      order.push('drain');
      await new Promise<void>((resolve) => {
        finish = resolve;
      });
      order.push('finished');
      return 5;
    });
    const { code, address, world } = start(probe, []);
    const url = await address();
    expect((await fetch(`${url}/ready`)).status).toBe(200);
    world.signal('SIGTERM');
    const ready = await fetch(`${url}/ready`);
    expect([ready.status, await ready.json()]).toEqual([
      503,
      expect.objectContaining({ draining: true, ready: false }),
    ]);
    expect((await fetch(`${url}/health`)).status).toBe(200);
    world.signal('SIGTERM');
    finish();
    expect(await code).toBe(5);
    expect(order).toEqual(['drain', 'finished', 'last opened', 'first opened']);
    await expect(fetch(`${url}/health`)).rejects.toThrow();
    expect(world.exits).toEqual([]);
  });

  test('SIGINT drains and exits with 130, and a second SIGINT ends the process immediately', async () => {
    const probe = commandOf(async (context) => {
      await untilDrain(context);
      return 0;
    });
    const once = start(probe, []);
    await once.address();
    once.world.signal('SIGINT');
    expect(await once.code).toBe(130);
    expect(once.world.exits).toEqual([]);
    const hung = start(
      commandOf(() => new Promise(() => {})),
      [],
    );
    await hung.address();
    hung.world.signal('SIGINT');
    hung.world.signal('SIGINT');
    expect(hung.world.exits).toEqual([130]);
  });

  test('a drain that exceeds -drain-timeout exits with 70', async () => {
    const { address, world } = start(
      commandOf(() => new Promise(() => {})),
      ['-drain-timeout=30ms'],
    );
    await address();
    world.signal('SIGTERM');
    await expect.poll(() => world.exits).toEqual([70]);
    expect(world.stderr()).toContain('did not finish within 30 ms');
  });

  test('a stop by signal logs a last line with its exit code', async () => {
    const { code, address, world } = start(commandOf(drained), []);
    await address();
    world.signal('SIGTERM');
    expect(await code).toBe(0);
    expect(world.logged().map(({ msg }) => msg)).toEqual(['start', 'drain', 'stopped']);
    expect(world.logged().at(-1)).toMatchObject({ level: 'info', exit: 0 });
  });

  test('a wait that the drain signal ends is not a failure', async () => {
    const probe = commandOf(async (context) => {
      await new Promise((_, reject) =>
        context.drain.addEventListener('abort', () => reject(context.drain.reason)),
      );
      return 1;
    });
    const { code, address, world } = start(probe, []);
    await address();
    world.signal('SIGTERM');
    expect(await code).toBe(0);
  });

  test('a request in flight is answered before the hooks close its resources', async () => {
    let store: string | undefined = 'open';
    let begun = (): void => {};
    const started = new Promise<void>((resolve) => {
      begun = resolve;
    });
    let draining = false;
    const probe = commandOf(
      async (context) => {
        context.onClose(() => {
          store = undefined;
        });
        await untilDrain(context);
        draining = true;
        return 0;
      },
      {
        routes: () => [
          {
            method: 'GET',
            path: '/store',
            handler: async () => {
              begun();
              await until('a drain', () => draining);
              for (let i = 0; i < 20; i++) await turn();
              return { status: 200, body: store ?? 'closed' };
            },
          },
        ],
      },
    );
    const { code, address, world } = start(probe, []);
    const answer = fetch(`${await address()}/store`);
    await started;
    world.signal('SIGTERM');
    expect(await (await answer).text()).toBe('open');
    expect(await code).toBe(0);
  });

  test('every hook runs although one throws, also after a failed run, and the failure decides the exit code', async () => {
    const ran: number[] = [];
    const probe = (fails: boolean) =>
      commandOf((context) => {
        context.onClose(() => void ran.push(1));
        context.onClose(() => {
          throw coreError('unreachable', 'hook');
        });
        context.onClose(() => void ran.push(3));
        return fails ? Promise.reject(coreError('usage', 'run')) : Promise.resolve(0);
      });
    expect(await start(probe(false), []).code).toBe(3);
    expect(await start(probe(true), []).code).toBe(2);
    expect(ran).toEqual([3, 1, 3, 1]);
  });
});
