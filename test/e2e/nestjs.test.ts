/** A NestJS service with TypeORM: its module, and its Kafka transport through an inbox, on real
 *  servers. */
import 'reflect-metadata';
import { randomUUID } from 'node:crypto';
import { Controller, Inject, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Ctx, EventPattern, MessagePattern, type MicroserviceOptions, Payload } from '@nestjs/microservices';
import { of } from 'rxjs';
import { DataSource, type EntityManager } from 'typeorm';
import { afterAll, describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { openDrivers } from '../../src/drivers.ts';
import { typeormTransaction } from '../../src/outbox/adapters/index.ts';
import {
  currentTransaction,
  type MillraceContext,
  MillraceInbox,
  MillraceModule,
  MillraceOutbox,
  MillraceTransport,
} from '../../src/outbox/nestjs/index.ts';
import { Service } from '../../src/outbox/service.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import { inboxWorld } from './inbox-kit.ts';
import { pageExamples } from './page-examples.ts';

const world = await inboxWorld();
const stack = await sharedStack();
const TOPIC = `parcels-${world.schema}`;
const ASKED = `asked-${world.schema}`;
const PARTS = { outboxTable: 'parcel_outbox', inbox: 'history_inbox', parkedTable: 'history_parked' };
const ASKED_PARTS = { outboxTable: 'asked_outbox', inbox: 'asked_inbox', parkedTable: 'asked_parked' };
const EVENTS = 20;

const dataSource = new DataSource({ type: 'postgres', url: world.url, poolSize: 4 });
await dataSource.initialize();
const metrics = new Metrics();
const service = await Service.open({
  ...(await openDrivers()),
  name: world.schema,
  brokers: stack.brokers,
  postgres: stack.postgres,
  schema: world.schema,
  metrics,
  log: silentLogger,
});
await service.migrate(
  [
    "CREATE TABLE history (place bigserial PRIMARY KEY, parcel uuid NOT NULL, step text NOT NULL CHECK (step <> 'refused'))",
  ],
  PARTS,
);
await service.migrate([], ASKED_PARTS);
for (const [{ outboxTable }, topic] of [
  [PARTS, TOPIC],
  [ASKED_PARTS, ASKED],
] as const)
  await service.relay({ table: outboxTable, topic });

interface Moved {
  readonly msg_id: string;
  readonly event_type: string;
  readonly payload: { readonly parcel: string; readonly step: string };
}

const failures = new Map<string, number>();
const seen: Array<MillraceContext<EntityManager>> = [];

/** Handlers as they are with the Kafka transport of NestJS, but for the transaction. */
class ParcelController {
  readonly outbox: MillraceOutbox<EntityManager>;

  constructor(outbox: MillraceOutbox<EntityManager>) {
    this.outbox = outbox;
  }

  async moved({ payload }: Moved, context: MillraceContext<EntityManager>): Promise<void> {
    seen.push(context);
    const { parcel, step } = payload;
    const insert = 'INSERT INTO history (parcel, step) VALUES ($1, $2)';
    const write = currentTransaction<EntityManager>().query(insert, [parcel, step]);
    // The effect ignores the error of its statement.
    if (step === 'refused') return void (await write.catch(() => {}));
    await write;
    const failed = failures.get(parcel) ?? 0;
    failures.set(parcel, failed + 1);
    if (step === 'flaky' && failed < 2) throw new Error('the third party does not answer');
  }

  asked({ payload }: Moved) {
    const { parcel, step } = payload;
    const insert = currentTransaction<EntityManager>().query(
      'INSERT INTO history (parcel, step) VALUES ($1, $2)',
      [parcel, step],
    );
    return insert.then(() => of('answer'));
  }
}
const method = (name: string) =>
  Object.getOwnPropertyDescriptor(ParcelController.prototype, name) as PropertyDescriptor;
Inject(MillraceOutbox)(ParcelController, undefined, 0);
EventPattern(TOPIC)(ParcelController.prototype, 'moved', method('moved'));
Payload()(ParcelController.prototype, 'moved', 0);
Ctx()(ParcelController.prototype, 'moved', 1);
MessagePattern(ASKED)(ParcelController.prototype, 'asked', method('asked'));
Payload()(ParcelController.prototype, 'asked', 0);
Controller()(ParcelController);

class AppModule {}
Module({
  imports: [MillraceModule.forRoot({ outboxTable: PARTS.outboxTable, adapt: typeormTransaction })],
  controllers: [ParcelController],
})(AppModule);

const transport = new MillraceTransport<EntityManager>({
  service,
  consumers: [
    { ...PARTS, topic: TOPIC },
    { ...ASKED_PARTS, topic: ASKED },
  ].map((consumer) => ({
    ...consumer,
    retry: { firstDelayMs: 1, maxDelayMs: 10 },
    transaction: (work) => dataSource.transaction((manager) => work(typeormTransaction(manager), manager)),
  })),
});
const app = await NestFactory.createMicroservice<MicroserviceOptions>(AppModule, {
  strategy: transport,
  logger: false,
});
await app.listen();
const outbox = app.get<MillraceOutbox<EntityManager>>(MillraceOutbox);
afterAll(async () => {
  await app.close();
  await dataSource.destroy();
});

async function send(step: string, table: typeof outbox = outbox): Promise<string> {
  const parcel = randomUUID();
  await dataSource.transaction(async (manager) => {
    await table.append(manager, [
      { aggregateId: parcel, eventType: 'parcel.moved.v1', payload: { parcel, step } },
    ]);
  });
  return parcel;
}
const historyOf = async (parcels: readonly string[]): Promise<string[]> =>
  (
    await world.pool.query<{ parcel: string }>(
      'SELECT parcel::text AS parcel FROM history WHERE parcel = ANY ($1::uuid[]) ORDER BY parcel',
      [[...parcels]],
    )
  ).rows.map(({ parcel }) => parcel);
const settled = (parcels: readonly string[]) =>
  until('the effects of all events', async () => {
    const rows = await historyOf(parcels);
    return rows.length >= parcels.length && rows;
  });

describe('NestJS', () => {
  it('the service of the documentation compiles', async () => {
    const { files, compile } = pageExamples('docs/how-to/nestjs.md');
    expect(files.length).toBeGreaterThanOrEqual(3);
    expect(await compile()).toBe('');
  });

  it('an event handler has one effect for each message, although the relay publishes it again', async () => {
    const parcels: string[] = [];
    for (let i = 0; i < EVENTS; i++) parcels.push(await send('moved'));
    expect(await settled(parcels)).toEqual([...parcels].sort());
    await world.pool.query('UPDATE parcel_outbox SET published_at = NULL WHERE published_at IS NOT NULL');
    const duplicates = metrics.counter('inbox_duplicates_total', '');
    await until('the redeliveries', async () => duplicates.value() >= EVENTS);
    expect(await historyOf(parcels)).toEqual([...parcels].sort());
  });

  it('a handler gets the message and the context of the Kafka transport', async () => {
    const parcel = await send('moved');
    await settled([parcel]);
    const context = seen.find((one) => (one.getMessage().value as Moved).payload.parcel === parcel);
    expect(context?.getTopic()).toBe(TOPIC);
    expect(context?.getPartition()).toBeGreaterThanOrEqual(0);
    const message = context?.getMessage();
    expect(message?.key).toBe(parcel);
    expect(message?.headers['ce_type']).toBe('parcel.moved.v1');
    expect(message?.headers['ce_id']).toBe(context?.getMessageId());
    expect(message?.value).toMatchObject({ msg_id: context?.getMessageId() });
    expect(message?.offset).toMatch(/^\d+$/);
    expect(context?.getArgs()).toEqual([message, context?.getPartition(), TOPIC]);
    expect(context?.getArgByIndex(2)).toBe(TOPIC);
  });

  it('a handler that fails is retried, and its writes of failed attempts are rolled back', async () => {
    const parcel = await send('flaky');
    await settled([parcel]);
    expect(failures.get(parcel)).toBe(3);
    expect(await historyOf([parcel])).toEqual([parcel]);
  });

  it('a handler that ignores the error of a statement loses no message: its record is parked', async () => {
    const parcel = await send('refused');
    const detail = await until('the parked record', async () => {
      const { rows } = await world.pool.query<{ detail: string }>(
        `SELECT detail FROM history_parked WHERE convert_from(value, 'UTF8') LIKE '%' || $1 || '%'`,
        [parcel],
      );
      return rows[0]?.detail;
    });
    expect(detail).toMatch(/^25P02 /);
  });

  it('a message handler that returns a stream has its effect once', async () => {
    const asked = new MillraceOutbox({ outboxTable: ASKED_PARTS.outboxTable, adapt: typeormTransaction });
    const parcel = await send('asked', asked);
    await settled([parcel]);
  });

  it('the module provides an outbox and an inbox, and names an option that is missing', async () => {
    expect(app.get(MillraceInbox)).toBeInstanceOf(MillraceInbox);
    await dataSource.transaction(async (manager) => {
      const inbox = app.get<MillraceInbox<EntityManager>>(MillraceInbox);
      await expect(inbox.once(manager, randomUUID(), async () => {})).rejects.toMatchObject({
        code: 'bad_option',
        message: expect.stringContaining('inbox'),
      });
      const own = new MillraceInbox({ inbox: PARTS.inbox, adapt: typeormTransaction });
      expect(await own.once(manager, randomUUID(), async () => 1)).toEqual({ kind: 'done', value: 1 });
    });
    await expect(outbox.append(dataSource.manager, [])).resolves.toEqual([]);
    await expect(
      outbox.append(dataSource.manager, [{ aggregateId: randomUUID(), eventType: 'a', payload: 1 }]),
    ).rejects.toMatchObject({ code: 'not_in_transaction' });
  });

  it('the transaction of a message is unknown outside of its handler', () => {
    expect(() => currentTransaction()).toThrowError(expect.objectContaining({ code: 'not_in_transaction' }));
  });

  it.each([
    ['a consumer without a handler', ['a'], []],
    ['a handler without a consumer', [], ['a']],
    ['two consumers of one topic', ['a', 'a'], ['a']],
  ] as const)('the transport refuses %s', (_, topics, patterns) => {
    const consumed: string[] = [];
    const refused = new MillraceTransport({
      service: {
        consume: ({ topic }) => void consumed.push(topic),
        failure: async () => {},
        close: async () => {},
      },
      consumers: topics.map((topic) => ({ topic, inbox: 'i', parkedTable: 'p' })),
    });
    for (const pattern of patterns) refused.addHandler(pattern, async () => {}, true);
    const errors: unknown[] = [];
    refused.listen((error) => errors.push(error));
    expect(errors).toEqual([expect.objectContaining({ code: 'bad_option' })]);
    expect(consumed).toEqual([]);
  });
});
