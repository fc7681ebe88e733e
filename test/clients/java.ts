/** Kafka's Java client as a child process: one request a line, one answer a line. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fetchKafka } from '../../src/devstack/kafka/jars.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { arrival } from '../wait.ts';

/** Record whose bytes are base64. */
export interface JavaRecord {
  readonly partition: number;
  readonly key: string | null;
  readonly value: string | null;
  readonly timestamp: string;
  readonly headers: ReadonlyArray<readonly [string, string | null]>;
}

interface ProducerOf {
  /** compression.type */
  readonly codec: string;
  /** batch.size */
  readonly batchBytes: number;
}
interface TransactionOf extends ProducerOf {
  readonly transactionalId: string;
}

export type JavaRequest =
  | ({ readonly op: 'send'; readonly topic: string; readonly records: readonly JavaRecord[] } & ProducerOf)
  | ({
      readonly op: 'sendIn';
      readonly topic: string;
      readonly records: readonly JavaRecord[];
    } & TransactionOf)
  | ({ readonly op: 'begin' } & TransactionOf)
  | ({ readonly op: 'end'; readonly commit: boolean } & TransactionOf)
  | { readonly op: 'quota'; readonly clientId: string; readonly bytesPerSecond: number };

export interface JavaClient {
  /** Resolves when the request is done. @throws Error with the exception of the client */
  ask(request: JavaRequest): Promise<void>;
  close(): Promise<void>;
}

interface Oracles {
  kafkaWriterCommand(jars: string): { readonly command: string; readonly args: readonly string[] };
}

/** Starts test/clients/java/KafkaWriter.java, which is compiled at its first start. */
export async function startJavaClient(brokers: string): Promise<JavaClient> {
  const oracles = (await import(join(packageRoot(), 'tools', 'oracles.mjs'))) as Oracles;
  const { folder } = await fetchKafka();
  const { command, args } = oracles.kafkaWriterCommand(folder);
  const child: ChildProcess = spawn(command, [...args, brokers]);
  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-4000);
  });
  const closed = once(child, 'close');
  const waiting: Array<(line: string | undefined) => void> = [];
  createInterface({ input: child.stdout as NodeJS.ReadableStream }).on('line', (line) =>
    waiting.shift()?.(line),
  );
  void closed.then(() => {
    for (const one of waiting.splice(0)) one(undefined);
  });
  return {
    async ask(request) {
      const answered = new Promise<string | undefined>((resolve) => {
        waiting.push(resolve);
        child.stdin?.write(`${JSON.stringify(request)}\n`);
      });
      const line = await arrival(`answer of the Java client to ${request.op}`, answered, () => stderr);
      if (line === undefined) throw new Error(`the Java client ended: ${stderr}`);
      const { error } = JSON.parse(line) as { readonly error?: string };
      if (error !== undefined) throw new Error(`the Java client: ${request.op}: ${error}`);
    },
    async close() {
      child.kill('SIGKILL');
      await closed;
    },
  };
}
