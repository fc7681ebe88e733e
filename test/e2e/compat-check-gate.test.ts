/** Verifies docs/how-to/gate.md: runs the scripts of its recipes in a new git repository against a
 *  registry. They pass on main and fail on a change that breaks readers, which the registry refuses
 *  too. */
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { packageRoot } from '../../src/shell/package.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';

const own = launcher();
const PAGE = readFileSync(join(packageRoot(), 'docs', 'how-to', 'gate.md'), 'utf8');
const GOOD = {
  'orders.avsc': JSON.stringify(
    {
      type: 'record',
      name: 'Order',
      fields: [
        { name: 'id', type: 'string' },
        { name: 'total', type: 'long' },
      ],
    },
    undefined,
    2,
  ),
  'refunds.proto': 'syntax = "proto3";\nmessage Refund {\n  string id = 1;\n  int64 cents = 2;\n}\n',
};
const BAD = {
  'orders.avsc': GOOD['orders.avsc'].replace('"name": "id"', '"name": "key"'),
  'refunds.proto': GOOD['refunds.proto'].replace('int64 cents', 'string cents'),
};
type Files = Readonly<Record<string, string>>;

interface Step {
  readonly name?: string;
  readonly run?: string;
}
interface GitHub {
  readonly jobs: { readonly gate: { readonly steps: readonly Step[] } };
}
interface GitLab {
  readonly 'compat-check': { readonly script: readonly string[] };
}

const blocks = (language: string): string[] =>
  [...PAGE.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, 'gm'))].map(
    ([, text]) => text as string,
  );
const [online, offline, gitlab] = blocks('yaml').map((text) => parse(text) as unknown);
const scriptOf = (recipe: unknown): string => {
  const found = (recipe as GitHub).jobs.gate.steps.find(({ name }) => name === 'compat-check')?.run;
  if (found === undefined) throw new Error('no step is named compat-check');
  return found;
};
const hook = blocks('sh').find((text) => text.startsWith('#!')) as string;

let registry: string;
let count = 0;

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function run(command: string, args: readonly string[], cwd: string, env: Files = {}): Promise<Ended> {
  return new Promise((resolve) => {
    const child = spawn(command, args, {
      cwd,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        PATH: `${join(packageRoot(), 'bin')}:${process.env['PATH']}`,
        HOME: own.dir,
        GIT_CONFIG_NOSYSTEM: '1',
        GIT_AUTHOR_NAME: 'a',
        GIT_AUTHOR_EMAIL: 'a@example.com',
        GIT_COMMITTER_NAME: 'a',
        GIT_COMMITTER_EMAIL: 'a@example.com',
        MILLRACE_NATIVE: process.env['MILLRACE_NATIVE'] ?? 'auto',
        ...env,
      },
    });
    let stdout = '';
    let stderr = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    child.once('close', (code) => resolve({ code, stdout, stderr }));
  });
}

const SHELL = ['--noprofile', '--norc', '-eo', 'pipefail', '-c'];
const shell = (script: string, cwd: string, env: Files = {}): Promise<Ended> =>
  run('bash', [...SHELL, script], cwd, { MILLRACE_REGISTRY: registry, ...env });

function write(dir: string, files: Files): void {
  mkdirSync(join(dir, 'schemas'), { recursive: true });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(dir, 'schemas', name), text);
}

/** Creates a repository with compatible schemas on main. */
async function repository(): Promise<string> {
  const dir = join(own.dir, `repository-${count++}`);
  write(dir, GOOD);
  const { code, stderr } = await shell(
    'git init -q -b main . && git add . && git commit -q -m first && git update-ref refs/remotes/origin/main main',
    dir,
  );
  expect(code, stderr).toBe(0);
  return dir;
}

const post = (subject: string, schema: string, schemaType: string): Promise<Response> =>
  fetch(`${registry}/subjects/${subject}/versions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ schema, schemaType }),
  });

beforeAll(async () => {
  const child = startRegistry(own, ['-store=memory']);
  registry = `http://${await child.address()}`;
  expect((await post('orders-value', GOOD['orders.avsc'], 'AVRO')).status).toBe(200);
  expect((await post('refunds-value', GOOD['refunds.proto'], 'PROTOBUF')).status).toBe(200);
});

describe('gate recipes', () => {
  it('the GitHub recipe passes on main and annotates the lines that break', async () => {
    const dir = await repository();
    const script = scriptOf(online);
    expect(await shell(script, dir)).toMatchObject({ code: 0 });
    write(dir, BAD);
    const { code, stdout } = await shell(script, dir);
    expect(code).toBe(1);
    expect(stdout).toMatch(/^::error file=schemas\/orders\.avsc,line=\d+,col=\d+,title=AVRO_/m);
    expect(stdout).toMatch(/^::error file=schemas\/refunds\.proto,line=4,col=3,title=PROTO_/m);
  });

  it('the GitHub recipe without a registry compares with the base branch and its history', async () => {
    const dir = await repository();
    const script = scriptOf(offline);
    const env = { BASE: 'origin/main', MILLRACE_REGISTRY: 'http://127.0.0.1:9' };
    expect(await shell(script, dir, env)).toMatchObject({ code: 0 });
    // A number that main removed and the change uses again: only the history of the file reveals
    // it.
    const without = GOOD['refunds.proto'].replace(/.*cents.*\n/, '');
    write(dir, { 'refunds.proto': without });
    await shell('git commit -q -am second && git update-ref refs/remotes/origin/main main', dir);
    expect(await shell(script, dir, env)).toMatchObject({ code: 0 });
    write(dir, { 'refunds.proto': GOOD['refunds.proto'].replace('cents', 'region') });
    const reused = await shell(script, dir, env);
    expect(reused.code).toBe(1);
    expect(reused.stdout).toContain('title=PROTO_NUMBER_REUSED');
    write(dir, { 'fresh.avsc': '"string"', 'refunds.proto': without });
    expect(await shell(script, dir, env)).toMatchObject({ code: 0 });
  });

  it('the GitLab recipe writes one report per schema', async () => {
    const dir = await repository();
    const script = (gitlab as GitLab)['compat-check'].script.join('\n');
    expect(await shell(script, dir)).toMatchObject({ code: 0 });
    write(dir, BAD);
    expect(await shell(script, dir)).toMatchObject({ code: 1 });
    expect(readdirSync(join(dir, 'reports')).sort()).toEqual(['orders.avsc.xml', 'refunds.proto.xml']);
    expect(readFileSync(join(dir, 'reports', 'orders.avsc.xml'), 'utf8')).toContain('failures="1"');
  });

  it('the pre-commit hook stops a commit that breaks a schema', async () => {
    const dir = await repository();
    const path = join(dir, '.git', 'hooks', 'pre-commit');
    mkdirSync(join(dir, '.git', 'hooks'), { recursive: true });
    writeFileSync(path, hook);
    chmodSync(path, 0o755);
    expect(existsSync(path)).toBe(true);
    write(dir, { 'orders.avsc': BAD['orders.avsc'] });
    expect((await shell('git add . && git commit -q -m broken', dir)).code).not.toBe(0);
    // The hook checks the staged files, not the working tree.
    write(dir, GOOD);
    expect((await shell('git commit -q -m broken', dir)).code).not.toBe(0);
    write(dir, { 'orders.avsc': `${GOOD['orders.avsc']}\n` });
    expect(await shell('git add . && git commit -q -m fine', dir)).toMatchObject({ code: 0 });
  });
});

it('compat-check finds files and folders of a git revision from any working directory', async () => {
  const dir = await repository();
  write(dir, BAD);
  const ask = (against: string, cwd: string): Promise<Ended> =>
    shell(`millrace compat-check -proposed orders.avsc -against '${against}'`, join(dir, cwd));
  for (const against of ['git:HEAD:schemas/orders.avsc', 'git:main:./orders.avsc']) {
    const { code, stdout } = await ask(against, 'schemas');
    expect(code).toBe(1);
    expect(stdout).toContain('AVRO_READER_FIELD_WITHOUT_DEFAULT');
  }
  // In a folder every file is a version; the last one by name has another format.
  const folder = await ask('git:HEAD:schemas', 'schemas');
  expect(folder.stdout).toContain('compared with HEAD:schemas/refunds.proto');
  expect((await ask('git:HEAD:schemas/none.avsc', 'schemas')).code).toBe(4);
});

describe('registry behind the gate', () => {
  it('the registry refuses the schemas that the gate refuses', async () => {
    expect((await post('orders-value', BAD['orders.avsc'], 'AVRO')).status).toBe(409);
    expect((await post('refunds-value', BAD['refunds.proto'], 'PROTOBUF')).status).toBe(409);
  });
});

it('the npm script runs the compat-check command', async () => {
  const { scripts } = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8')) as {
    scripts: Files;
  };
  const dir = await repository();
  const proposed = join(dir, 'schemas', 'orders.avsc');
  const ask = (): Promise<Ended> =>
    run(
      'bash',
      [...SHELL, `${scripts['compat-check']} -subject orders-value -proposed "${proposed}"`],
      packageRoot(),
      {
        MILLRACE_REGISTRY: registry,
      },
    );
  expect(await ask()).toMatchObject({ code: 0 });
  write(dir, { 'orders.avsc': BAD['orders.avsc'] });
  expect(await ask()).toMatchObject({ code: 1 });
});
