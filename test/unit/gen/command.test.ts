/** `millrace gen` and `millrace load` as commands: outputs, reports and refusals. */
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { xxh32Create, xxh32Digest, xxh32Update } from '../../../src/addon/reference/xxh32.ts';
import { command as gen } from '../../../src/bin/gen.ts';
import { command as load } from '../../../src/bin/load.ts';
import { readLedger, summarizeLedger } from '../../../src/outbox/reconcile/client-ledger.ts';
import type { Command } from '../../../src/shell/command.ts';
import { packageRoot } from '../../../src/shell/package.ts';
import { start } from '../shell/fake-world.ts';

const dir = mkdtempSync(join(tmpdir(), 'millrace-gen-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const LAUNCHER = join(packageRoot(), 'bin', 'millrace');

async function run(command: Command, ...argv: readonly string[]) {
  const { code, world } = start(command, [...argv, '-log-level=warn']);
  return { code: await code, stdout: world.stdout(), stderr: world.stderr() };
}

describe('gen to a file', () => {
  test('gen writes 256 B events one after the other and reports their digest', async () => {
    const path = join(dir, 'events');
    const { code, stdout } = await run(gen, '-count=5000', '-order=delayed', `-out=file:${path}`, '-json');
    expect(code).toBe(0);
    const bytes = readFileSync(path);
    expect(bytes.length).toBe(5000 * 256);
    const state = xxh32Create();
    xxh32Update(state, bytes, 0, bytes.length);
    const report = JSON.parse(stdout);
    expect(report).toMatchObject({
      kind: 'events',
      rows: 5000,
      xxh32: xxh32Digest(state).toString(16).padStart(8, '0'),
    });
  });

  test('gen writes the same file with and without the addon, at any batch size', async () => {
    const hashes = new Set<string>();
    for (const flags of [['-native=off'], [], ['-batch-rows=7'], ['-native=off', '-batch-rows=501']]) {
      const path = join(dir, 'same');
      expect(
        (await run(gen, '-count=3000', '-order=delayed', '-seed=9', `-out=file:${path}`, ...flags)).code,
      ).toBe(0);
      hashes.add(createHash('sha256').update(readFileSync(path)).digest('hex'));
    }
    expect(hashes.size).toBe(1);
  });

  test('gen writes the events of the fixed layout as JSON lines', async () => {
    const [fixed, lines] = [join(dir, 'fixed'), join(dir, 'lines')];
    const flags = ['-kind=events', '-count=500', '-order=delayed', '-account-base=18446744073709551000'];
    expect((await run(gen, ...flags, `-out=file:${fixed}`)).code).toBe(0);
    expect((await run(gen, ...flags, '-format=json', `-out=file:${lines}`)).code).toBe(0);
    const bytes = readFileSync(fixed);
    const expected = Array.from({ length: 500 }, (_, i) => {
      const at = i * 256;
      return `{"account_id":${bytes.readBigUInt64LE(at)},"value":${bytes.readBigInt64LE(at + 8)},"event_ts":${bytes.readBigInt64LE(at + 16)},"seq":${bytes.readBigUInt64LE(at + 24)},"pad":"`;
    });
    const found = readFileSync(lines, 'utf8').trimEnd().split('\n');
    expect(found.map((line) => line.slice(0, line.indexOf('"pad"') + 7))).toEqual(expected);
    for (const line of found) expect(JSON.parse(line).pad).toMatch(/^[A-Za-z0-9+/]{96}$/);
  });

  test('gen refuses framed events that do not go to a topic', async () => {
    const { code, stderr } = await run(gen, '-kind=events', '-format=avro', `-out=file:${join(dir, 'no')}`);
    expect(code).toBe(2);
    expect(stderr).toContain('events in avro go to a topic only');
  });

  test('gen writes orders as JSON lines with their version', async () => {
    const path = join(dir, 'orders');
    expect((await run(gen, '-kind=orders', '-count=300', '-versions=1,2,3', `-out=file:${path}`)).code).toBe(
      0,
    );
    const lines = readFileSync(path, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines.length).toBe(300);
    expect(new Set(lines.map((line) => line.version))).toEqual(new Set([1, 2, 3]));
    for (const { version, order } of lines) {
      expect('note' in order).toBe(version !== 3);
      expect('gift' in order).toBe(version === 3);
      expect('coupon' in order).toBe(version !== 1);
      expect(order.account_id).toMatch(/^\d+$/);
    }
  });

  test('a drained gen ends with whole events only', async () => {
    const path = join(dir, 'drained');
    const { code, address, world } = start(gen, ['-count=0', '-rate=20k', `-out=file:${path}`, '-json']);
    await address();
    await expect.poll(() => readFileSync(path).length).toBeGreaterThan(0);
    world.signal('SIGTERM');
    expect(await code).toBe(0);
    const { rows } = JSON.parse(world.stdout());
    expect(rows).toBeGreaterThan(0);
    expect(readFileSync(path).length).toBe(rows * 256);
  });
});

describe('schema printing', () => {
  test.each([
    ['1', 'avro', '"name": "amount_cents", "type": "long"'],
    ['2', 'protobuf', 'int64 discount_cents = 13;'],
    ['breaking', 'avro', '"name": "amount_cents", "type": "string"'],
    ['6', 'protobuf', 'string region = 17;'],
    ['add-required', 'avro', '"name": "tax_cents", "type": "long"'],
  ])('gen prints version %s in %s', async (version, format, part) => {
    const { code, stdout } = await run(gen, '-kind=orders', `-print-schema=${version}`, `-format=${format}`);
    expect(code).toBe(0);
    expect(stdout).toContain(part);
  });
});

describe('refused gen flags', () => {
  test.each<[string, readonly string[]]>([
    ['is not a choice', ['-kind=things']],
    ['did you mean -count', ['-cuont=5']],
    ['is not an output', ['-out=nowhere']],
    ['is not an output', ['-out=kafka:bad/name']],
    ['needs -brokers', ['-out=kafka:events']],
    ['framed records', ['-kind=orders', '-out=kafka:orders']],
    ['go to a topic only', ['-kind=orders', '-format=avro', '-out=-']],
    ['both write to stdout', ['-json']],
    ['has no schema version 9', ['-kind=orders', '-versions=1,9', '-count=1']],
    ['has no schema version 9', ['-print-schema=9', '-format=avro']],
    ['has no schema version 0', ['-kind=orders', '-schema-version=0', '-count=1']],
    ['does not exist in avro', ['-print-schema=reuse-number', '-format=avro']],
    ['-print-schema needs', ['-print-schema=1']],
    ['cannot write', ['-out=file:/nonexistent/x']],
    ['not a 64-bit number', ['-account-base=18446744073709551616']],
    ['per-ms=0', ['-per-ms=0']],
    ['tail-max is below', ['-order=delayed', '-tail-max=1s']],
    ['is too large', ['-zipf=5']],
  ])('gen refuses in one line with exit code 2: %s: %o', async (why, argv) => {
    const { code, stderr } = await run(gen, ...argv);
    const lines = stderr
      .trim()
      .split('\n')
      .filter((line) => !line.startsWith('listening on'));
    expect(lines.length).toBe(1);
    expect(lines[0]).toContain(why);
    expect(code).toBe(2);
  });
});

describe('gen process', () => {
  test('gen ends with 0 when its reader closes the pipe', () => {
    const { status, stdout } = spawnSync('sh', [
      '-c',
      `"${process.execPath}" "${LAUNCHER}" gen -count=0 -log-level=warn 2>/dev/null | head -c 2560; exit "$?"`,
    ]);
    expect(stdout.length).toBe(2560);
    expect(status).toBe(0);
    const code = spawnSync('bash', [
      '-c',
      `"${process.execPath}" "${LAUNCHER}" gen -count=0 -log-level=warn 2>/dev/null | head -c 256 >/dev/null; exit "\${PIPESTATUS[0]}"`,
    ]).status;
    expect(code).toBe(0);
  });

  test('SIGTERM lets gen write the rows in flight', async () => {
    const child = spawn(process.execPath, [LAUNCHER, 'gen', '-count=0', '-rate=50k', '-log-level=warn'], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let bytes = 0;
    child.stdout.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
    });
    await expect.poll(() => bytes).toBeGreaterThan(0);
    child.kill('SIGTERM');
    const code = await new Promise((resolve) => child.on('close', resolve));
    expect(code).toBe(0);
    expect(bytes % 256).toBe(0);
  });
});

describe('load command', () => {
  test('load sends, repeats, resends and keeps its ledger', async () => {
    const answers = new Map<string, string>();
    let requests = 0;
    const server = createServer((request, response) => {
      let body = '';
      request.on('data', (chunk: Buffer) => {
        body += chunk.toString();
      });
      request.on('end', () => {
        if (++requests % 40 === 0) return response.writeHead(503).end();
        const key = request.headers['idempotency-key'] as string;
        const known = answers.get(key);
        answers.set(key, known ?? JSON.stringify({ order_id: key, ...JSON.parse(body) }));
        response
          .writeHead(201, { 'idempotency-replayed': String(known !== undefined) })
          .end(answers.get(key));
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const ledger = join(dir, 'ledger.jsonl');
    const target = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const { code, stdout } = await run(
      load,
      `-target=${target}`,
      '-rate=1000',
      '-count=400',
      '-retry-within=200ms',
      `-ledger=${ledger}`,
      '-json',
    );
    server.close();
    expect(code).toBe(0);
    const report = JSON.parse(stdout);
    expect(report).toMatchObject({ intents: 400, unknown: 0, refused: 0, ledger });
    expect(report.failures).toBeGreaterThan(5);
    expect(report.replayed).toBeGreaterThan(30);
    expect(report.latency_ms.p99).toBeGreaterThan(0);
    const { intents, end } = await summarizeLedger(readLedger([readFileSync(ledger)]));
    expect(end).toMatchObject({ intents: 400, unknown: 0, replies: requests });
    for (const record of intents.values()) {
      const body = answers.get(record.key) as string;
      expect(JSON.parse(body)).toMatchObject({
        account_id: record.accountId,
        amount_cents: record.amountCents,
      });
      expect(record.answer).toBe(`201 ${createHash('sha256').update(body).digest('hex')}`);
      expect(record.different).toBe(0);
    }
  });

  test('load exits with 3 immediately for a target without a listener, and leaves no ledger', async () => {
    const ledger = join(dir, 'unreachable.jsonl');
    const { code, stderr } = await run(load, '-target=http://127.0.0.1:1', '-rate=20', `-ledger=${ledger}`);
    expect(code).toBe(3);
    expect(stderr).toContain('no connection to http://127.0.0.1:1 (ECONNREFUSED)');
    expect(existsSync(ledger)).toBe(false);
  });

  test('load exits with 3 when no reply ever arrives, and reports the intents as unknown', async () => {
    const mute = createTcpServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => mute.listen(0, '127.0.0.1', resolve));
    const { port } = mute.address() as AddressInfo;
    const { code, stdout, stderr } = await run(
      load,
      `-target=http://127.0.0.1:${port}`,
      '-rate=20',
      '-duration=100ms',
      '-give-up=100ms',
      '-json',
    );
    mute.close();
    expect(code).toBe(3);
    expect(stderr).toContain('no reply ever came');
    expect(JSON.parse(stdout)).toMatchObject({ replies: 0, unknown: 2 });
  });

  test.each<[string, readonly string[]]>([
    ['is not an http address', ['-target=127.0.0.1:1']],
    [
      'exists',
      [
        `-ledger=${(() => {
          const path = join(dir, 'old.jsonl');
          writeFileSync(path, '');
          return path;
        })()}`,
      ],
    ],
    ['cannot write the ledger', ['-ledger=/nonexistent/ledger']],
    ['is too large', ['-retry-rate=1.5']],
    ['is too small', ['-rate=0']],
  ])('load refuses with exit code 2: %s', async (why, argv) => {
    const { code, stderr } = await run(load, ...argv);
    expect([code, stderr.includes(why)]).toEqual([2, true]);
  });
});
