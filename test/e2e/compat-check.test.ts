/** compat-check against a real registry process and against stub servers with wrong answers. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { command } from '../../src/bin/compat-check.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { start } from '../unit/shell/fake-world.ts';

const own = launcher();
const servers: Server[] = [];
let registry: string;

const record = (...fields: unknown[]): string =>
  JSON.stringify(
    { type: 'record', name: 'Order', fields: [{ name: 'id', type: 'string' }, ...fields] },
    undefined,
    2,
  );
const proto = (fields: string, more = ''): string =>
  `syntax = "proto3";\npackage shop;\n${more}message Order {\n  string id = 1;\n${fields}}\n`;
const NOTE = { name: 'note', type: 'string' };
const decimal = (scale: number) => ({
  name: 'price',
  type: { type: 'bytes', logicalType: 'decimal', precision: 9, scale },
});

let files = 0;
function file(name: string, text: string): string {
  const dir = join(own.dir, `files-${files++}`);
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, name), text);
  return join(dir, name);
}

afterEach(() => {
  // The command sets process.exitCode of the test runner.
  process.exitCode = undefined;
});
afterAll(() => {
  for (const server of servers) server.close();
});

async function gate(...argv: readonly string[]) {
  const { code, world } = start(command, [...argv, '-listen=127.0.0.1:0']);
  return { code: await code, stdout: world.stdout(), stderr: world.stderr() };
}
const ask = (subject: string, proposed: string, ...more: readonly string[]) =>
  gate(`-registry=${registry}`, `-subject=${subject}`, `-proposed=${proposed}`, ...more);

async function call(method: string, path: string, body?: unknown): Promise<number> {
  const response = await fetch(`${registry}${path}`, {
    method,
    headers: { 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  await response.text();
  return response.status;
}
async function register(
  subject: string,
  schema: string,
  schemaType = 'AVRO',
  references: unknown[] = [],
): Promise<void> {
  expect(await call('POST', `/subjects/${subject}/versions`, { schema, schemaType, references })).toBe(200);
}

/** Starts a stub registry that answers from a table, and with 404 40401 for anything else. */
async function stub(answers: Readonly<Record<string, unknown>>, status = 200): Promise<string> {
  const server = createServer((request, response) => {
    const path = (request.url ?? '').split('?')[0] as string;
    const key = `${request.method} ${path}`;
    const known = Object.hasOwn(answers, key);
    const answer = known ? answers[key] : { error_code: 40401, message: 'no' };
    response.writeHead(known ? status : 404, { 'content-type': 'application/json' });
    response.end(typeof answer === 'string' ? answer : JSON.stringify(answer));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  servers.push(server);
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

beforeAll(async () => {
  const child = startRegistry(own, ['-store=memory']);
  registry = `http://${await child.address()}`;
  await register('orders-value', record());
});

describe('exit codes', () => {
  const good = (): string => file('order.avsc', record({ ...NOTE, default: '' }));

  it('compat-check exits 0 and prints the upgrade order for a compatible schema', async () => {
    const { code, stdout } = await ask('orders-value', good());
    expect(code).toBe(0);
    expect(stdout.split('\n')[0]).toBe('orders-value: compatible under BACKWARD: upgrade consumers first');
    expect(stdout).toContain('The registry agrees.');
  });

  it('compat-check exits 1 and prints what breaks with its place', async () => {
    const path = file('order.avsc', record(NOTE));
    const { code, stdout } = await ask('orders-value', path);
    expect(code).toBe(1);
    expect(stdout).toMatch(/^orders-value: INCOMPATIBLE under BACKWARD: 1 refusing finding$/m);
    expect(stdout).toContain(`1. ${path}:9:5: field "note" has no default`);
    expect(stdout).toContain('rule     AVRO_READER_FIELD_WITHOUT_DEFAULT at Order.note');
    expect(stdout).toMatch(/bytes +[0-9a-f]+ \(\d+ bytes?; decoding breaks at byte \d+\)/);
    expect(stdout).toContain('fix      add "default": ""');
    expect(stdout).toContain('The registry refuses it too.');
  });

  it.each([
    ['no file is named', ['-subject=s'], 'usage'],
    ['no subject is named', ['-proposed=x'], 'usage'],
    ['the file does not exist', ['-subject=s', '-proposed=nowhere.avsc'], 'bad_file'],
    ['a mode is unknown', ['-subject=s', '-proposed=x', '-mode=SIDEWAYS'], 'bad_value'],
    ['a reference has no equals sign', ['-subject=s', '-proposed=x', '-reference=file'], 'bad_value'],
    ['a patch is requested as a report', ['-subject=s', '-proposed=x', '-fix', '-output=junit'], 'usage'],
    [
      'a revision looks like a flag',
      ['-proposed=knip.json', '-against=git:--help:x', '-format=json'],
      'bad_value',
    ],
    ['a revision does not exist', ['-proposed=knip.json', '-against=git:nope:x', '-format=json'], 'bad_file'],
    ['a rule is unknown', ['-explain=AVRO_NOTHING'], 'bad_value'],
  ])('compat-check exits 2 where %s', async (_why, argv, error) => {
    const { code, stdout, stderr } = await gate(...argv);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain(`[${error}]`);
  });

  it('compat-check exits 3 where the registry does not answer or the server is no registry', async () => {
    const path = good();
    const dead = ['-registry=http://127.0.0.1:9', '-subject=s', `-proposed=${path}`];
    expect(await gate(...dead)).toMatchObject({ code: 3, stdout: '' });
    const unwell = await stub({ 'GET /config/s': { error_code: 50001, message: 'ill' } }, 500);
    expect((await gate(`-registry=${unwell}`, '-subject=s', `-proposed=${path}`)).code).toBe(3);
    const other = await stub({ 'GET /config/s': '<html>' });
    expect((await gate(`-registry=${other}`, '-subject=s', `-proposed=${path}`)).code).toBe(3);
  });

  it('compat-check exits 0 with a note where the subject is read-only', async () => {
    await register('frozen-value', record());
    expect(await call('PUT', '/mode/frozen-value', { mode: 'READONLY' })).toBe(200);
    const { code, stdout } = await ask('frozen-value', good());
    expect(code).toBe(0);
    expect(stdout).toContain('the subject is in mode READONLY: the registry takes no schema');
    expect((await ask('orders-value', good())).stdout).not.toContain('is in mode');
  });

  it.each([
    [401, { error_code: 40101, message: 'who?' }, 'unauthenticated'],
    [401, '<html>', 'unauthenticated'],
    [403, { error_code: 40301, message: 'no' }, 'forbidden'],
    [403, { error_code: 403, message: 'no' }, 'forbidden'],
  ])(
    'compat-check exits 2 where the registry answers %i %j, and names the flags to give',
    async (status, answer, error) => {
      const closed = await stub({ 'GET /config/s': answer }, status);
      const { code, stderr } = await gate(`-registry=${closed}`, '-subject=s', `-proposed=${good()}`);
      expect(code).toBe(2);
      expect(stderr).toMatch(
        new RegExp(
          `the registry answers ${status}: .*-registry-user or -registry-token-file.*\\[${error}\\]`,
        ),
      );
    },
  );

  it('compat-check exits 4 for an unknown subject, and 0 with -allow-new', async () => {
    const path = good();
    const { code, stderr } = await ask('unheard-value', path);
    expect(code).toBe(4);
    expect(stderr).toContain('the registry has no subject unheard-value; check -subject, or give -allow-new');
    expect(await ask('unheard-value', path, '-allow-new')).toMatchObject({ code: 0 });
  });

  it('compat-check exits 5 with the line where the file is no schema', async () => {
    const path = file('order.avsc', '{\n  "type": "record",\n  "name": 5\n}');
    const { code, stderr } = await ask('orders-value', path);
    expect(code).toBe(5);
    expect(stderr).toMatch(/order\.avsc: invalid Avro schema: .*line 3/);
    expect((await ask('unheard-value', path)).code).toBe(5);
    const { stdout } = await ask('orders-value', path, '-output=github');
    expect(stdout).toMatch(/^::error file=.*order\.avsc,line=3,col=\d+,title=gate_unparsable::/);
  });

  it('compat-check keeps its exit code when its stdout is closed', async () => {
    const argv = ['compat-check', `-registry=${registry}`, '-subject=orders-value'];
    const proposed = `-proposed=${file('order.avsc', record(NOTE))}`;
    expect(await own.run([...argv, proposed], { stdout: 'closed' })).toMatchObject({ code: 1, stdout: '' });
  });
});

describe('comparison', () => {
  it('compat-check compares with one version, or with all versions by the mode or by a flag', async () => {
    // Each step passes, but the third version cannot read the first.
    const middle = record({ ...NOTE, default: '' });
    await register('steps-value', record());
    await register('steps-value', middle);
    const path = file('order.avsc', record(NOTE));
    expect((await ask('steps-value', path)).code).toBe(0);
    const all = await ask('steps-value', path, '-all-versions');
    expect(all.code).toBe(1);
    expect(all.stdout).toContain('fails on events of version 1 (BACKWARD)');
    expect((await ask('steps-value', path, '-mode=BACKWARD_TRANSITIVE')).code).toBe(1);
    expect((await ask('steps-value', path, '-mode=NONE')).code).toBe(0);
  });

  it('compat-check compares with the field numbers of deleted versions', async () => {
    await register('gone-value', proto('  string phone = 2;\n'), 'PROTOBUF');
    await register('gone-value', proto(''), 'PROTOBUF');
    const path = file('order.proto', proto('  string region = 2;\n'));
    expect(await call('DELETE', '/subjects/gone-value/versions/1')).toBe(200);
    const soft = await ask('gone-value', path, '-mode=NONE');
    expect(soft.code).toBe(1);
    expect(soft.stdout).toContain('PROTO_NUMBER_REUSED at shop.Order.region');
    expect(soft.stdout).toContain('fix      give "region" the next free number, 3');
    // After a permanent delete only the registry remembers the number.
    expect(await call('DELETE', '/subjects/gone-value/versions/1?permanent=true')).toBe(200);
    const hard = await ask('gone-value', path, '-mode=NONE');
    expect(hard.code).toBe(1);
    expect(hard.stdout).toMatch(/^gone-value: REFUSED by the registry/);
  });

  it('compat-check reports a text that the subject already has', async () => {
    const { code, stdout } = await ask('orders-value', file('order.avsc', record()));
    expect(code).toBe(0);
    expect(stdout).toContain(
      'The subject has this very text as version 1; to register it again changes nothing.',
    );
  });

  it('compat-check compares with files, with folders in numeric order, and with other formats without a registry', async () => {
    const path = file('v2.avsc', record({ ...NOTE, default: '' }));
    const folder = join(path, '..');
    writeFileSync(join(folder, 'v1.avsc'), record());
    writeFileSync(join(folder, 'v10.avsc'), record({ ...NOTE, default: '-' }));
    const proposed = `-proposed=${file('order.avsc', record(NOTE))}`;
    const latest = await gate(proposed, `-against=${folder}`);
    expect(latest.code).toBe(0);
    expect(latest.stdout).toContain(`compared with ${join(folder, 'v10.avsc')}`);
    expect(latest.stdout).toContain('The registry was not asked');
    expect((await gate(proposed, `-against=${folder}`, '-all-versions')).code).toBe(1);
    expect((await gate(proposed, `-against=${join(folder, 'v1.avsc')}`)).code).toBe(1);
    expect((await gate(proposed, `-against=${join(folder, 'v3.avsc')}`)).code).toBe(2);
    const other = await gate(proposed, `-against=${file('order.proto', proto(''))}`);
    expect(other.code).toBe(1);
    expect(other.stdout).toContain('rule     FORMAT_CHANGED');
  });
});

describe('policies and losses', () => {
  it('compat-check reports the verdict of the other policy', async () => {
    await register('prices-value', record(decimal(2)));
    const path = file('order.avsc', record(decimal(4)));
    const proven = await ask('prices-value', path);
    expect(proven.code).toBe(1);
    expect(proven.stdout).toContain('Policy STRICT would answer otherwise: compatible.');
    // With -policy=STRICT the gate still asks the registry, which is set to PROVEN.
    const strict = await ask('prices-value', path, '-policy=STRICT');
    expect(strict.code).toBe(1);
    expect(strict.stdout).toMatch(/^prices-value: REFUSED by the registry, though compatible/);
    expect(await call('PUT', '/config/prices-value', { verdictPolicy: 'STRICT' })).toBe(200);
    const agreed = await ask('prices-value', path);
    expect(agreed.code).toBe(0);
    expect(agreed.stdout).toContain('policy STRICT');
    expect(agreed.stdout).toContain('Policy PROVEN would answer otherwise: incompatible.');
  });

  it('a lossy change passes unless the subject rejects losses', async () => {
    await register('sums-value', record({ name: 'sum', type: 'long' }));
    const path = file('order.avsc', record({ name: 'sum', type: 'double' }));
    const lossy = await ask('sums-value', path, '-prove');
    expect(lossy.code).toBe(0);
    expect(lossy.stdout).toContain('AVRO_PROMOTION_ROUNDS');
    expect(lossy.stdout).toMatch(/Live proof: \d\d+ events .*every verdict is what happened/);
    expect(await call('PUT', '/config/sums-value', { lossy: 'REJECT' })).toBe(200);
    expect((await ask('sums-value', path)).code).toBe(1);
  });
});

describe('compatibility groups', () => {
  it('compat-check compares only with versions in the group of the latest version', async () => {
    const send = (schema: string, major: string): Promise<number> =>
      call('POST', '/subjects/grouped-value/versions', { schema, metadata: { properties: { major } } });
    expect(await call('PUT', '/config/grouped-value', { compatibilityGroup: 'major' })).toBe(200);
    expect(await send(record({ ...NOTE, type: 'int' }), '1')).toBe(200);
    expect(await send(record(NOTE), '2')).toBe(200);
    const path = file('order.avsc', record(NOTE, { name: 'more', type: 'int', default: 0 }));
    const { stdout } = await ask('grouped-value', path, '-all-versions');
    expect(stdout).toContain('compared with version 2 of');
    expect(stdout).toMatch(/^grouped-value: compatible/);
  });
});

describe('schema references', () => {
  const money = JSON.stringify({
    type: 'record',
    name: 'Money',
    namespace: 'shop',
    fields: [{ name: 'cents', type: 'long' }],
  });
  const priced = (...fields: unknown[]): string => record({ name: 'price', type: 'shop.Money' }, ...fields);

  it('compat-check uses the references of the latest version', async () => {
    await register('money', money);
    await register('priced-value', priced(), 'AVRO', [{ name: 'shop.Money', subject: 'money', version: 1 }]);
    expect((await ask('priced-value', file('order.avsc', priced({ ...NOTE, default: '' })))).code).toBe(0);
    const broken = await ask('priced-value', file('order.avsc', priced(NOTE)));
    expect(broken.code).toBe(1);
    expect(broken.stdout).toContain('The registry refuses it too.');
  });

  it('a reference may be a file, registered or not', async () => {
    const reference = `-reference=shop.Money=${file('money.avsc', money)}`;
    const path = file('order.avsc', priced());
    expect(await ask('first-value', path, '-allow-new')).toMatchObject({ code: 5 });
    expect((await ask('first-value', path, '-allow-new', reference)).code).toBe(0);
    const imported = file('order.proto', proto('  Money price = 2;\n', 'import "money.proto";\n'));
    const other = file(
      'money.proto',
      'syntax = "proto3";\npackage shop;\nmessage Money {\n  int64 cents = 1;\n}\n',
    );
    const unasked = await ask('second-value', imported, '-allow-new', `-reference=money.proto=${other}`);
    expect(unasked.code).toBe(0);
    expect(unasked.stdout).toContain('The registry was not asked: it does not hold money.proto');
    await register(
      'money.proto',
      'syntax = "proto3";\npackage shop;\nmessage Money {\n  int64 cents = 1;\n}\n',
      'PROTOBUF',
    );
    const asked = await ask('second-value', imported, '-allow-new', `-reference=money.proto=${other}`);
    expect(asked.stdout).toContain('The registry agrees.');
  });
});

describe('disagreeing registry', () => {
  const version = { subject: 's', version: 1, id: 1, schema: record() };
  const answers = {
    'GET /config/s': { compatibilityLevel: 'BACKWARD' },
    'GET /subjects/s/versions': [1],
    'GET /subjects/s/versions/1': version,
  };

  it('a refusal by the registry always fails compat-check', async () => {
    const url = await stub({
      ...answers,
      'POST /compatibility/subjects/s/versions': {
        is_compatible: false,
        messages: ['for reasons of its own'],
      },
    });
    const argv = [
      `-registry=${url}`,
      '-subject=s',
      `-proposed=${file('order.avsc', record({ ...NOTE, default: '' }))}`,
    ];
    const { code, stdout } = await gate(...argv);
    expect(code).toBe(1);
    expect(stdout).toMatch(/^s: REFUSED by the registry, though compatible under BACKWARD as judged here/);
    expect(stdout).toContain('for reasons of its own');
    const json = JSON.parse((await gate(...argv, '-json')).stdout);
    expect(json).toMatchObject({ compatible: false, judged: true, agrees: false, findings: [] });
    expect((await gate(...argv, '-output=github')).stdout).toContain('title=REGISTRY_REFUSES');
  });

  it('compat-check falls back to a registry that checks against one version only', async () => {
    const url = await stub({
      ...answers,
      'POST /compatibility/subjects/s/versions': { is_compatible: 'perhaps' },
      'POST /compatibility/subjects/s/versions/latest': { is_compatible: true },
    });
    const { code, stdout } = await gate(
      `-registry=${url}`,
      '-subject=s',
      `-proposed=${file('order.avsc', record())}`,
    );
    expect(code).toBe(0);
    expect(stdout).toContain('The registry agrees.');
  });

  it('approval by the registry does not override a finding', async () => {
    const url = await stub({
      ...answers,
      'POST /compatibility/subjects/s/versions': { is_compatible: true },
    });
    const argv = [`-registry=${url}`, '-subject=s', `-proposed=${file('order.avsc', record(NOTE))}`];
    const { code, stdout } = await gate(...argv);
    expect(code).toBe(1);
    expect(stdout).toContain('The registry would accept it; the verdict of this check counts.');
  });

  it('an unreadable stored schema fails compat-check although the registry agrees', async () => {
    const url = await stub({
      ...answers,
      'GET /subjects/s/versions/1': { ...version, schema: '{' },
      'POST /compatibility/subjects/s/versions': { is_compatible: true },
    });
    const { code, stdout } = await gate(
      `-registry=${url}`,
      '-subject=s',
      `-proposed=${file('order.avsc', record())}`,
    );
    expect(code).toBe(1);
    expect(stdout).toContain('STORED_SCHEMA_UNREADABLE');
  });
});

describe('stdout', () => {
  it('compat-check -json prints one document, for a failure as well', async () => {
    const path = file('order.avsc', record(NOTE));
    const json = JSON.parse((await ask('orders-value', path, '-json')).stdout);
    expect(json).toMatchObject({ compatible: false, judged: false, agrees: true, mode: 'BACKWARD' });
    expect(JSON.parse((await ask('orders-value', path, '-output=json')).stdout)).toEqual(json);
    for (const form of ['-json', '-output=json']) {
      const { code, stdout } = await ask('unheard-value', path, form);
      expect(code).toBe(4);
      expect(JSON.parse(stdout).error.code).toBe('gate_unknown_subject');
    }
    const both = await ask('orders-value', path, '-json', '-output=sarif');
    expect(both.code).toBe(2);
    expect(JSON.parse(both.stdout).error.code).toBe('usage');
  });

  it('compat-check -fix prints the patch on stdout and the report on stderr', async () => {
    const path = file('order.avsc', record(NOTE));
    const { code, stdout, stderr } = await ask('orders-value', path, '-fix');
    expect(code).toBe(1);
    expect(stdout).toMatch(/^--- a\/.*order\.avsc\n\+\+\+ b\/.*order\.avsc\n@@ -\d+,\d+ \+\d+,\d+ @@\n/);
    expect(stdout).toMatch(/^\+ {6}"default": ""$/m);
    expect(stderr).toContain('INCOMPATIBLE');
    const json = JSON.parse((await ask('orders-value', path, '-fix', '-output=json')).stdout);
    expect(json.patch).toBe(stdout);
    const fine = await ask('orders-value', file('order.avsc', record()), '-fix');
    expect({ code: fine.code, stdout: fine.stdout }).toEqual({ code: 0, stdout: '' });
  });

  it('compat-check -explain prints the page of a rule', async () => {
    const { code, stdout } = await gate('-explain', 'proto-number-reused');
    expect(code).toBe(0);
    expect(stdout).toMatch(/^# PROTO_NUMBER_REUSED\n/);
    const { stderr } = await gate('-explain=PROTO_NUMBER_REUSE');
    expect(stderr).toContain('did you mean PROTO_NUMBER_REUSED?');
  });
});
