/** Registry clients of other projects as child processes: one request per line in, one answer per
 *  line out. */
import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { packageRoot } from '../../src/shell/package.ts';
import { arrival } from '../wait.ts';

const FOLDER = join(packageRoot(), 'test', 'clients');

export type ClientName = 'confluent' | 'kafkajs' | 'python';

/** Error that the client's own code threw. */
export interface Refusal {
  readonly type: string;
  readonly status: number | null;
  readonly code: number | null;
  readonly message: string;
}

interface Answer {
  readonly value?: unknown;
  readonly error?: Refusal;
}

export interface Client {
  readonly name: ClientName;
  /** @throws Error with the client's own message */
  ask<T>(op: string, request: Readonly<Record<string, unknown>>): Promise<T>;
  /** Returns the client's error.
   *  @throws Error if the client threw nothing */
  refused(op: string, request: Readonly<Record<string, unknown>>): Promise<Refusal>;
  close(): Promise<void>;
}

interface Installer {
  clientsDir(): string;
  kafkaClientsDir(): string;
  kafkaClientsDirs(): { readonly kafka: string; readonly confluent: string };
}
const installer = (): Promise<Installer> =>
  import(join(packageRoot(), 'tools', 'clients.mjs')) as Promise<Installer>;

/** Returns the folder of the installed clients; installs them if they are missing. */
export const clientsFolder = async (): Promise<string> => (await installer()).clientsDir();

/** Returns the folders of installed Kafka clients, by package; installs them if they are missing.
 */
export async function kafkaClients(): Promise<ReadonlyMap<string, string>> {
  const { kafka, confluent } = (await installer()).kafkaClientsDirs();
  const folderOf = (dir: string, name: string) => [name, join(dir, 'node_modules', name)] as const;
  return new Map([
    folderOf(kafka, 'kafkajs'),
    folderOf(kafka, '@platformatic/kafka'),
    folderOf(confluent, '@confluentinc/kafka-javascript'),
  ]);
}

/** Returns the folder of kafkajs; installs it if it is missing. */
export const kafkajsFolder = async (): Promise<string> =>
  join((await installer()).kafkaClientsDir(), 'node_modules', 'kafkajs');

/** Credentials of a client, and the certificate authority that it trusts. */
export interface Access {
  readonly user: string;
  readonly password: string;
  /** PEM file with the certificate authority of the server's certificate. */
  readonly ca: string;
}

export function startClient(name: ClientName, dir: string, url: string, access?: Access): Client {
  const more = access === undefined ? [] : [JSON.stringify(access)];
  const child: ChildProcess =
    name === 'python'
      ? spawn(join(dir, 'python', 'bin', 'python'), [join(FOLDER, 'python', 'confluent.py'), url, ...more])
      : spawn(process.execPath, [join(FOLDER, 'node', `${name}.mjs`), dir, url, ...more]);
  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', (chunk: string) => {
    stderr += chunk;
  });
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const waiting: Array<(line: string | undefined) => void> = [];
  createInterface({ input: child.stdout as NodeJS.ReadableStream }).on('line', (line) =>
    waiting.shift()?.(line),
  );
  void ended.then(() => {
    for (const one of waiting.splice(0)) one(undefined);
  });
  async function exchange(op: string, request: Readonly<Record<string, unknown>>): Promise<Answer> {
    const answered = new Promise<string | undefined>((resolve) => {
      waiting.push(resolve);
      child.stdin?.write(`${JSON.stringify({ op, ...request })}\n`);
    });
    const line = await arrival(`answer of ${name} to ${op}`, answered, () => stderr);
    if (line === undefined) throw new Error(`${name} ended during ${op}: ${stderr}`);
    return JSON.parse(line) as Answer;
  }
  return {
    name,
    async ask<T>(op: string, request: Readonly<Record<string, unknown>>): Promise<T> {
      const { value, error } = await exchange(op, request);
      if (error !== undefined) throw new Error(`${name} ${op}: ${error.type}: ${error.message}`);
      return value as T;
    },
    async refused(op, request) {
      const { value, error } = await exchange(op, request);
      if (error === undefined) throw new Error(`${name} ${op} was not refused: ${JSON.stringify(value)}`);
      return error;
    },
    async close() {
      // Every request was answered, so the client can be killed.
      child.kill('SIGKILL');
      await ended;
    },
  };
}

/** Text of a schema in test/clients/schemas. */
export const schemaText = (name: string): string => readFileSync(join(FOLDER, 'schemas', name), 'utf8');

type OrderVersion = '1' | '2' | 'breaking';

function descriptors(): {
  readonly sets: Readonly<Record<OrderVersion, unknown>>;
  readonly compiled: Readonly<Record<OrderVersion, Readonly<Record<string, string>>>>;
} {
  return JSON.parse(schemaText('shop.descriptors.json'));
}

/** shop/money.proto and shop/order.proto of one version, compiled by protoc to a FileDescriptorSet
 *  in its JSON form. */
export const descriptorSet = (version: OrderVersion): unknown => descriptors().sets[version];

/** One file of that set as base64 of its bytes, the form that serializers register. */
export function compiled(version: OrderVersion, path: string): string {
  const bytes = descriptors().compiled[version][path];
  if (bytes === undefined) throw new Error(`the descriptors contain no ${path}`);
  return bytes;
}
