import { execFileSync, spawn } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { shellWord, writableFolder, writeWhole } from '../../../src/devstack/files.ts';
import { GUARD_SCRIPT, Guard } from '../../../src/devstack/guard.ts';
import { newKafkaSecurity } from '../../../src/devstack/kafka/security.ts';
import {
  formatArguments,
  LONE_BROKER_SESSION_MS,
  newClusterId,
  serverProperties,
} from '../../../src/devstack/kafka/server.ts';
import { decodeMetadataResponse, encodeMetadataRequest } from '../../../src/devstack/kafka/wire.ts';
import { lockFolder } from '../../../src/devstack/lock.ts';
import { choosePort, freePort } from '../../../src/devstack/ports.ts';
import { identify, isAlive, signalProcess, startOf, waitForEnd } from '../../../src/devstack/process.ts';
import { prepareFolder } from '../../../src/devstack/stack.ts';
import { readIdentity, writeIdentity } from '../../../src/devstack/state.ts';
import { locks } from '../../locks.ts';
import { pause, until } from '../../wait.ts';

const base = mkdtempSync(join(tmpdir(), 'devstack unit '));
afterAll(() => rmSync(base, { recursive: true, force: true }));
const folder = () => mkdtempSync(join(base, 'f'));

/** Response by the protocol guide, written independently of the decoder. */
function metadataResponse(
  brokers: readonly { id: number; host: string; port: number }[],
  clusterId: string | null,
): Buffer {
  const parts: Buffer[] = [];
  const i32 = (value: number) => {
    const field = Buffer.alloc(4);
    field.writeInt32BE(value);
    parts.push(field);
  };
  const text = (value: string | null) => {
    const bytes = Buffer.from(value ?? '');
    const length = Buffer.alloc(2);
    length.writeInt16BE(value === null ? -1 : bytes.length);
    parts.push(length, bytes);
  };
  i32(encodeMetadataRequest().readInt32BE(8));
  i32(brokers.length);
  for (const broker of brokers) {
    i32(broker.id);
    text(broker.host);
    i32(broker.port);
    text(null);
  }
  text(clusterId);
  i32(1);
  i32(0);
  return Buffer.concat(parts);
}

describe('metadata request', () => {
  it('the metadata request has the bytes of the protocol guide', () => {
    const request = encodeMetadataRequest();
    expect(request.readInt32BE(0)).toBe(request.length - 4);
    expect([request.readInt16BE(4), request.readInt16BE(6)]).toEqual([3, 2]);
    expect(request.subarray(14, 14 + request.readInt16BE(12)).toString()).toBe('millrace-up');
    expect(request.readInt32BE(request.length - 4)).toBe(0);
  });

  it('every metadata answer is decoded as it was encoded', () => {
    const broker = fc.record({ id: fc.nat(), host: fc.string({ maxLength: 40 }), port: fc.nat(65_535) });
    fc.assert(
      fc.property(
        fc.array(broker, { maxLength: 5 }),
        fc.option(fc.string({ maxLength: 30 })),
        (brokers, clusterId) => {
          const view = decodeMetadataResponse(metadataResponse(brokers, clusterId));
          expect(view).toEqual({ brokers, clusterId: clusterId ?? undefined, controllerId: 1 });
        },
      ),
    );
  });

  it('the metadata decoder refuses a truncated answer and never throws on any bytes', () => {
    const whole = metadataResponse([{ id: 1, host: 'h', port: 9092 }], 'cluster');
    // The decoder does not read the last field, the topics.
    for (let end = 0; end < whole.length - 4; end++)
      expect(decodeMetadataResponse(whole.subarray(0, end))).toBeUndefined();
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        const at = encodeMetadataRequest().subarray(8, 12);
        decodeMetadataResponse(Buffer.from(bytes));
        decodeMetadataResponse(Buffer.concat([at, bytes]));
      }),
    );
  });
});

describe('shell words', () => {
  it('quoted shell words leave a shell unchanged', () => {
    const words = ["it's", 'a b', '$HOME', '`id`', '"', '\\', 'a\nb', '', '*', '-n', "''"];
    const script = `for word in ${words.map(shellWord).join(' ')}; do printf '%s\\0' "$word"; done`;
    expect(execFileSync('/bin/sh', ['-c', script], { encoding: 'utf8' }).split('\0').slice(0, -1)).toEqual(
      words,
    );
  });
});

describe('ports', () => {
  it('a stack keeps the port used before, and skips ports that are in use', async () => {
    const free = await freePort(new Set());
    const taken = new Set<number>();
    expect(await choosePort('-p', undefined, free, taken)).toBe(free);
    expect(await choosePort('-p', undefined, free, taken)).not.toBe(free);
    await expect(choosePort('-p', free, undefined, taken)).rejects.toMatchObject({ code: 'busy_port' });
  });
});

describe('stack folder lock', () => {
  it('a stack folder lock is held by one of several callers at a time', async () => {
    const at = folder();
    let holders = 0;
    let most = 0;
    await Promise.all(
      Array.from({ length: 5 }, async () => {
        const lock = await lockFolder(locks, at, 300_000);
        most = Math.max(most, ++holders);
        await new Promise((resolve) => setImmediate(resolve));
        holders--;
        lock.release();
      }),
    );
    expect(most).toBe(1);
  });

  it('a stack folder lock is refused after its timeout with an error that names the holder', async () => {
    const at = folder();
    const lock = await lockFolder(locks, at, 300_000);
    await expect(lockFolder(locks, at, 0)).rejects.toMatchObject({
      code: 'stack_locked',
      message: expect.stringContaining(`process ${process.pid} on `),
    });
    lock.release();
  });

  it.each([
    ['an earlier release', '999999999 boot/1 abc\n'],
    ['another host', JSON.stringify({ pid: process.pid, host: 'another-machine' })],
  ])('a stack folder lock is free if %s left a lock file', async (_what, text) => {
    const at = folder();
    writeFileSync(join(at, 'lock'), text);
    (await lockFolder(locks, at, 0)).release();
  });
});

describe('process identity', () => {
  it('a process with another start time is not signalled', async () => {
    const child = spawn('sleep', ['600'], { stdio: 'ignore' });
    const id = identify(child.pid as number);
    expect(id).toBeDefined();
    if (id === undefined) return;
    signalProcess({ pid: id.pid, start: 'boot/0' }, 'SIGKILL');
    expect(isAlive(id)).toBe(true);
    signalProcess(id, 'SIGKILL');
    expect(await waitForEnd([id], 60_000)).toBe(true);
  });
});

describe('guard process', () => {
  const guarded = (name: string, script: string, removeAtEnd = false) => {
    const at = folder();
    for (const part of ['run', 'logs']) execFileSync('mkdir', [join(at, part)]);
    writeFileSync(join(at, 'run', `${name}.sh`), script);
    return { at, guard: new Guard({ folder: at, removeAtEnd: removeAtEnd ? at : undefined }) };
  };

  it('the guard ends its servers and removes the folder when it receives a signal', async () => {
    const { at, guard } = guarded('server', 'exec sleep 60\n', true);
    const id = await guard.start('server', 'KILL');
    await guard.end();
    expect(isAlive(id)).toBe(false);
    expect(existsSync(at)).toBe(false);
  });

  it('the guard kills a server that ignores its signal', async () => {
    const { guard } = guarded('deaf', "trap '' QUIT; while :; do sleep 1; done\n");
    const id = await guard.start('deaf', 'QUIT');
    await guard.end();
    expect(isAlive(id)).toBe(false);
  });

  it('the guard ends its servers when the owner dies before it reads the answer', async () => {
    const at = folder();
    for (const part of ['run', 'logs']) execFileSync('mkdir', [join(at, part)]);
    writeFileSync(join(at, 'run', 'server.sh'), 'echo $$ >run/server.pid\nexec sleep 60\n');
    const shell = spawn('/bin/sh', ['-c', GUARD_SCRIPT, 'millrace-guard', ''], {
      cwd: at,
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    const closed = new Promise((resolve) => shell.stdout.once('close', resolve));
    shell.stdout.destroy();
    await closed;
    const over = new Promise((resolve) => shell.once('exit', resolve));
    shell.stdin.on('error', () => {});
    shell.stdin.write('start server KILL\n');
    const file = join(at, 'run', 'server.pid');
    const pid = await until('the pid of the server', () => Number(readFileSync(file, 'utf8')) || undefined);
    shell.stdin.end();
    await over;
    expect([pid > 0, startOf(pid)]).toEqual([true, undefined]);
  });

  it('a released guard leaves its servers running', async () => {
    const { guard } = guarded('server', 'exec sleep 600\n');
    const id = await guard.start('server', 'KILL');
    await guard.release();
    await pause(100);
    expect(isAlive(id)).toBe(true);
    signalProcess(id, 'SIGKILL');
    expect(await waitForEnd([id], 60_000)).toBe(true);
  });
});

it('the passwords of a secured cluster are arguments in a file, in the form that java reads', () => {
  const security = newKafkaSecurity('sasl_ssl');
  const text = formatArguments({ clusterId: 'id "\\', security }, 'run/kafka-1-format.properties');
  const lines = text.trimEnd().split('\n');
  expect(lines.slice(0, 6)).toEqual([
    '"kafka.tools.StorageTool"',
    '"format"',
    '"-t"',
    '"id \\"\\\\"',
    '"-c"',
    '"run/kafka-1-format.properties"',
  ]);
  for (const password of Object.values(security.users)) expect(text).toContain(`password=${password}]"`);
  expect(formatArguments({ clusterId: 'x', security: undefined }, 'c').split('\n')).toHaveLength(7);
});

describe('broker configuration', () => {
  const nodes = [1, 2, 3].map((id) => ({
    id,
    name: `kafka-${id}`,
    port: 9000 + id,
    controllerPort: 9100 + id,
  }));

  it('internal topics are replicated to as many brokers as there are', () => {
    const one = serverProperties(nodes[0]!, nodes.slice(0, 1), 'kafka-1');
    expect(one).toContain('offsets.topic.replication.factor=1\n');
    expect(one).toContain('transaction.state.log.min.isr=1\n');
    expect(one).toContain('controller.quorum.voters=1@127.0.0.1:9101\n');
    const three = serverProperties(nodes[1]!, nodes, 'kafka-2');
    expect(three).toContain('node.id=2\n');
    expect(three).toContain('offsets.topic.replication.factor=3\n');
    expect(three).toContain('controller.quorum.voters=1@127.0.0.1:9101,2@127.0.0.1:9102,3@127.0.0.1:9103\n');
  });

  it('a broker returns soon after its death, and a single broker is never removed from service', () => {
    const sessionOf = (text: string): number => Number(/^broker.session.timeout.ms=(\d+)$/m.exec(text)?.[1]);
    expect(sessionOf(serverProperties(nodes[0]!, nodes, 'kafka-1'))).toBe(5000);
    const lone = serverProperties(nodes[0]!, nodes.slice(0, 1), 'kafka-1', LONE_BROKER_SESSION_MS);
    expect(sessionOf(lone)).toBe(60_000);
  });

  it('a broker deletes expired records within seconds', () => {
    const one = serverProperties(nodes[0]!, nodes.slice(0, 1), 'kafka-1');
    expect(one).toContain('log.retention.check.interval.ms=15000\n');
  });

  it('a broker listens on this machine alone', () => {
    const listeners = /^listeners=(.*)$/m.exec(serverProperties(nodes[0]!, nodes, 'kafka-1'))?.[1];
    expect(listeners).toBe('PLAINTEXT://127.0.0.1:9001,CONTROLLER://127.0.0.1:9101');
  });

  it('a door is a further plaintext listener that sends its clients to another port', () => {
    const doors = [
      { name: 'RELAY', port: 9201, advertisedPort: 9301 },
      { name: 'PAYMENTS', port: 9202, advertisedPort: 9302 },
    ];
    const text = serverProperties({ ...nodes[0]!, doors }, nodes, 'kafka-1');
    const settingOf = (name: string): string | undefined => new RegExp(`^${name}=(.*)$`, 'm').exec(text)?.[1];
    expect(settingOf('listeners')).toBe(
      'PLAINTEXT://127.0.0.1:9001,RELAY://127.0.0.1:9201,PAYMENTS://127.0.0.1:9202,CONTROLLER://127.0.0.1:9101',
    );
    expect(settingOf('advertised.listeners')).toBe(
      'PLAINTEXT://127.0.0.1:9001,RELAY://127.0.0.1:9301,PAYMENTS://127.0.0.1:9302',
    );
    expect(settingOf('listener.security.protocol.map')).toBe(
      'PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,RELAY:PLAINTEXT,PAYMENTS:PLAINTEXT',
    );
    expect(settingOf('inter.broker.listener.name')).toBe('PLAINTEXT');
  });

  it('generated cluster ids have the form that Kafka accepts', () => {
    for (let i = 0; i < 200; i++) expect(newClusterId()).toMatch(/^[A-Za-z0-9_][\w-]{21}$/);
  });
});

describe('folder identity', () => {
  const identity = {
    format: 1,
    kafkaClusterId: 'c',
    postgresSystemId: '1',
    postgresPassword: 'p',
    kafkaNodes: 1,
  } as const;

  it('the identity of a folder is read as it was written', () => {
    const at = folder();
    expect(readIdentity(at)).toBeUndefined();
    writeIdentity(at, identity);
    expect(readIdentity(at)).toEqual(identity);
  });

  it.each([
    '',
    '{',
    'null',
    '{}',
    JSON.stringify({ ...identity, format: 2 }),
    JSON.stringify({ ...identity, postgresSystemId: 1 }),
  ])('the identity of a folder is refused when it is %j', (text) => {
    const at = folder();
    writeWhole(join(at, 'identity.json'), text);
    expect(() => readIdentity(at)).toThrow(expect.objectContaining({ code: 'strange_folder' }));
  });
});

describe('stack folder', () => {
  it('a stack folder is refused immediately below a file system that accepts no folders', () => {
    expect(() => writableFolder('/proc/millrace/sub', '-dir')).toThrow(
      expect.objectContaining({ code: 'not_writable' }),
    );
  });

  it('a folder with foreign files is refused, even where a subfolder is named like one of a stack', () => {
    const at = folder();
    for (const name of ['run', 'postgres', 'etc']) mkdirSync(join(at, name));
    expect(() => prepareFolder(at)).toThrow(expect.objectContaining({ code: 'strange_folder' }));
    expect(readdirSync(at)).toEqual(['etc', 'postgres', 'run']);
  });

  it('a folder with the remains of an unfinished start is accepted', () => {
    const at = folder();
    for (const name of ['run', 'logs', 'postgres.part', 'kafka-1']) mkdirSync(join(at, name));
    writeFileSync(join(at, 'lock'), '');
    expect(() => prepareFolder(at)).not.toThrow();
  });
});
