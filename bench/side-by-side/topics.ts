/** Topics of the cells, each filled once a run, with the expected results of each window. */
import { randomBytes } from 'node:crypto';
import { loadGenKernels } from '../../src/addon/gen.ts';
import { chooseNative } from '../../src/addon/load.ts';
import { coreError } from '../../src/core/errors.ts';
import type { EventOptions } from '../../src/gen/event-options.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { ready } from '../../src/shell/children/ready.ts';
import type { Children } from '../children.ts';
import { PARTITIONS } from '../engine/events-topic.ts';
import { requireFreeSpace } from '../engine/free-space.ts';
import type { BenchContext } from '../harness.ts';
import { type Cell, streamOf, TAIL_EVENTS, tailOf } from './cells.ts';
import { type Expected, expectedOf } from './expected.ts';

const COMPRESSION = 'lz4';

export interface CellTopic {
  readonly topic: string;
  readonly registry: string | undefined;
  /** Events in the topic, with those that close the windows. */
  readonly events: number;
}

export class Topics {
  private readonly context: BenchContext;
  private readonly children: Children;
  private readonly events: number;
  private registry: Promise<string> | undefined;
  private readonly made: string[] = [];

  constructor(context: BenchContext, children: Children, events: number) {
    this.context = context;
    this.children = children;
    this.events = events;
  }

  /** Fills a new topic with the events of the cell and those that close its windows. */
  async fill(cell: Cell): Promise<CellTopic> {
    const topic = `engine-peers-${randomBytes(5).toString('hex')}`;
    this.made.push(topic);
    this.context.say(`filling ${this.events} events of ${cell.keys} keys`);
    if (!this.context.smoke) requireFreeSpace(this.children.dir);
    const registry = cell.format === 'avro' ? await this.registryAddress() : undefined;
    const format = registry === undefined ? [] : ['-format=avro', `-registry=${registry}`];
    for (const stream of [streamOf(cell, this.events, this.context.smoke), tailOf(cell)])
      await this.gen(topic, stream, format);
    return { topic, registry, events: this.events + TAIL_EVENTS };
  }

  /** Expected results of the cell, and those of the windows that never end. It blocks for about a
   *  second for ten million events. */
  expected(cell: Cell): { readonly expected: Expected; readonly tail: Expected } {
    const kernels = loadGenKernels(chooseNative(this.context.settings.native).mode);
    const stream = streamOf(cell, this.events, this.context.smoke);
    return {
      expected: expectedOf(stream, cell.kind, kernels),
      tail: expectedOf(tailOf(cell), cell.kind, kernels),
    };
  }

  /** Deletes topics of this run. @param more topics that others have made; missing ones are ignored
   */
  async delete(more: readonly string[] = []): Promise<void> {
    const topics = [...this.made.splice(0), ...more];
    if (topics.length === 0) return;
    const admin = await nodeRdkafkaDriver.admin({ brokers: this.children.brokers, clientId: 'bench' });
    try {
      for (const topic of topics) await admin.deleteTopics([topic]).catch(() => {});
    } finally {
      await admin.close();
    }
  }

  private async gen(topic: string, stream: EventOptions, format: readonly string[]): Promise<void> {
    const { count, accounts, zipf, perMs, baseMs, seed } = stream;
    const child = this.children.processes.spawn('gen', [
      'gen',
      `-brokers=${this.children.brokers}`,
      `-out=kafka:${topic}`,
      `-partitions=${PARTITIONS}`,
      `-compression=${COMPRESSION}`,
      ...['-kind=events', '-digest=false', '-log-level=warn'],
      ...[`-count=${count}`, `-accounts=${accounts}`, `-zipf=${zipf}`, `-per-ms=${perMs}`],
      ...[`-base=${baseMs}`, `-seed=${seed}`],
      ...format,
    ]);
    const { code, signal } = await child.ended;
    this.context.drain.throwIfAborted();
    if (code !== 0)
      throw coreError('unreachable', `gen ended with ${signal ?? code}`, { next: `see ${child.logPath}` });
  }

  private registryAddress(): Promise<string> {
    this.registry ??= (async () => {
      const child = this.children.processes.spawn('registry', [
        ...['registry', '-store=memory', '-listen=127.0.0.1:0', '-log-level=warn'],
      ]);
      return `http://${await ready('registry', child)}`;
    })();
    return this.registry;
  }
}
