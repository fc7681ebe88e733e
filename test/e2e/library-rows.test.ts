/** Rows of a service's own outbox, in both modes of the relay: text ids, headers, topics, keys,
 *  CloudEvents, values in registry frames, and tables of an earlier release. */
import { describe, expect, it } from 'vitest';
import { append } from '../../src/outbox/append/events.ts';
import { derivedAggregateId } from '../../src/outbox/append/record-columns.ts';
import { outboxTableSql } from '../../src/outbox/append/table.ts';
import { migrate } from '../../src/outbox/database/migrations.ts';
import { partMigrations } from '../../src/outbox/database/parts.ts';
import type { Service, ServiceRelay } from '../../src/outbox/service.ts';
import { SchemaRegistry } from '../../src/registry/index.ts';
import { connectPool, ownDatabase } from '../fixtures/database.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { asAdmin, createTopic } from '../fixtures/topic.ts';
import { until } from '../wait.ts';
import { v4 } from './inbox-kit.ts';
import { recordsOf, rowsWorld } from './library-rows-kit.ts';
import { dropSlots } from './wal-kit.ts';

const stack = await sharedStack();
const own = launcher();
const MODES = ['poll', 'wal'] as const;
const PARTS = { outboxTable: 'sent' };

/** Options of a relay that reads the table soon again, in either mode. */
const relayIn = (mode: (typeof MODES)[number]): Pick<ServiceRelay, 'mode' | 'rescanMs' | 'wal'> =>
  mode === 'wal' ? { mode, wal: { heartbeatMs: 100, auditMs: 500 } } : { mode, rescanMs: 500 };

const send = (service: Service, events: Parameters<typeof append>[2]): Promise<readonly string[]> =>
  service.pool.transaction((tx) => append(tx, 'sent', events));

describe.each(MODES)('relay in %s mode', (mode) => {
  it('text ids, headers, topics and keys reach the records, and each aggregate keeps its order', async () => {
    const world = await rowsWorld();
    const service = await world.open();
    const named = `${world.schema}.named`;
    const ruled = `${world.schema}.ruled`;
    try {
      await service.migrate([], PARTS);
      await service.relay({
        ...relayIn(mode),
        table: 'sent',
        topic: world.topic,
        topics: { 'ruled.*': ruled },
      });
      const keys = [...Array.from({ length: 40 }, (_, i) => `Kunde/${i} ä`), v4()];
      for (let n = 0; n < 5; n++)
        await send(
          service,
          keys.map((aggregateId) => ({
            aggregateId,
            eventType: 'moved.v1',
            payload: { n },
            headers: { tenant: 'größe', place: String(n) },
          })),
        );
      await send(service, [
        { aggregateId: 'a', eventType: 'ruled.v1', payload: 1 },
        { aggregateId: 'a', eventType: 'ruled.v1', payload: 2, topic: named, partitionKey: 'chosen' },
      ]);
      await world.drained();
      const records = await recordsOf(world.topic);
      expect(records).toHaveLength(205);
      for (const key of keys) {
        const ofKey = records.filter((record) => record.key === key);
        expect(
          ofKey.map(({ value }) => JSON.parse(value.toString()).payload.n),
          key,
        ).toEqual([0, 1, 2, 3, 4]);
        expect(new Set(ofKey.map(({ partition }) => partition)).size).toBe(1);
        expect(ofKey.map((record) => record.text('place'))).toEqual(['0', '1', '2', '3', '4']);
        expect(ofKey[0]?.text('tenant')).toBe('größe');
        expect(ofKey[0]?.text('ce_subject')).toBe(key);
        expect(ofKey[0]?.text('relay_mode')).toBe(mode);
      }
      const of = async (topic: string) =>
        (await recordsOf(topic)).map(({ key, value }) => [key, JSON.parse(value.toString()).payload]);
      expect(await of(ruled)).toEqual([['a', 1]]);
      expect(await of(named)).toEqual([['chosen', 2]]);
    } finally {
      await service.close();
      await dropSlots(world.pool, world.schema);
    }
  });

  it('an outbox of an earlier release is migrated: its pending rows and new rows are published in order', async () => {
    const world = await rowsWorld();
    // The migrations that the earlier release applied, and its replication slot.
    const [part] = partMigrations(PARTS);
    await migrate(world.pool, world.schema, part?.owner ?? '', part?.migrations.slice(0, 2) ?? []);
    const key = v4();
    const insert = (n: number) =>
      world.pool.query(
        `INSERT INTO sent (aggregate_id, msg_id, event_type, payload, traceparent)
         VALUES ($1::uuid, gen_random_uuid(), 'moved.v1', convert_to($2, 'UTF8'), NULL)`,
        [key, JSON.stringify({ n })],
      );
    await insert(1);
    const first = await world.open();
    await first.relay({ ...relayIn(mode), table: 'sent', topic: world.topic });
    await world.drained();
    await first.close();
    await insert(2);
    const service = await world.open();
    try {
      await service.migrate([], PARTS);
      await insert(3);
      await send(service, [
        { aggregateId: key, eventType: 'moved.v1', payload: { n: 4 }, headers: { own: 'yes' } },
        {
          aggregateId: 'text',
          eventType: 'moved.v1',
          payload: new Uint8Array([0, 1]),
          contentType: 'own/type',
        },
      ]);
      await service.relay({ ...relayIn(mode), table: 'sent', topic: world.topic });
      await send(service, {
        aggregateId: key,
        eventType: 'moved.v1',
        payload: { n: 5 },
        headers: { own: 'yes' },
      });
      await world.drained();
      const records = await recordsOf(world.topic);
      const ofKey = records.filter((record) => record.key === key);
      expect(ofKey.map(({ value }) => JSON.parse(value.toString()).payload.n)).toEqual([1, 2, 3, 4, 5]);
      expect(ofKey.map((record) => record.text('own'))).toEqual([
        undefined,
        undefined,
        undefined,
        'yes',
        'yes',
      ]);
      const [other] = records.filter((record) => record.key === 'text');
      expect([...(other?.value ?? [])]).toEqual([0, 1]);
      expect(other?.text('content-type')).toBe('own/type');
      await expect(
        world.pool.query(
          `INSERT INTO sent (aggregate_id, msg_id, event_type, payload) VALUES (gen_random_uuid(), gen_random_uuid(), 'a', '{')`,
        ),
        'a payload without a content type is JSON, as before',
      ).rejects.toMatchObject({ code: 'sql_failed' });
    } finally {
      await service.close();
      await dropSlots(world.pool, world.schema);
    }
  });

  it('a relay that runs while the columns are added publishes the choices of the first row that has some', async () => {
    const world = await rowsWorld();
    await world.pool.query(outboxTableSql('sent'));
    const service = await world.open();
    const key = v4();
    try {
      await service.relay({ ...relayIn(mode), table: 'sent', topic: world.topic });
      await send(service, { aggregateId: key, eventType: 'a', payload: 1 });
      await world.drained();
      await service.migrate([], PARTS);
      for (let n = 2; n < 6; n++)
        await send(service, [
          { aggregateId: key, eventType: 'a', payload: n, headers: { own: String(n) } },
          { aggregateId: 'text', eventType: 'a', payload: n },
        ]);
      await world.drained();
      const records = await recordsOf(world.topic);
      const firsts = new Map(records.map((record) => [record.text('ce_id'), record]));
      const of = (name: string) => [...firsts.values()].filter((record) => record.key === name);
      expect(of(key).map((record) => record.text('own'))).toEqual([undefined, '2', '3', '4', '5']);
      expect(of('text').map(({ value }) => JSON.parse(value.toString()).payload)).toEqual([2, 3, 4, 5]);
      expect(firsts.size).toBe(9);
      expect(new Set(records.map((record) => record.key))).toEqual(new Set([key, 'text']));
    } finally {
      await service.close();
      await dropSlots(world.pool, world.schema);
    }
  });

  it('a row for a topic that does not exist stays pending without holding up other keys, until the topic exists', async () => {
    const world = await rowsWorld();
    const service = await world.open();
    const missing = `${world.schema}.missing`;
    try {
      await service.migrate([], PARTS);
      await createTopic(stack.brokers, world.topic, 4);
      await service.relay({
        ...relayIn(mode),
        table: 'sent',
        topic: world.topic,
        createTopic: undefined,
      });
      await send(service, { aggregateId: 'blocked', eventType: 'a', payload: 1, topic: missing });
      await send(service, { aggregateId: 'blocked', eventType: 'a', payload: 2 });
      await send(service, { aggregateId: 'free', eventType: 'a', payload: 3 });
      const left = world.metrics.counter('relay_rows_without_topic_total', '');
      await until('a published row of another key, and a row that was left', async () => {
        const { rowCount } = await world.pool.query('SELECT FROM sent WHERE published_at IS NOT NULL');
        return (rowCount === 1 && left.value() > 0) || undefined;
      });
      expect(await asAdmin(stack.brokers, (admin) => admin.describeTopic(missing))).toBeUndefined();
      expect((await recordsOf(world.topic)).map(({ key }) => key)).toEqual(['free']);
      await createTopic(stack.brokers, missing, 4);
      await world.drained();
      expect((await recordsOf(missing)).map(({ key }) => key)).toEqual(['blocked']);
      expect((await recordsOf(world.topic)).map(({ key }) => key).sort()).toEqual(['blocked', 'free']);
    } finally {
      await service.close();
      await dropSlots(world.pool, world.schema);
    }
  });
});

describe('rules of topics', () => {
  it('relays of one outbox that differ in their rules are refused while one of them runs', async () => {
    const world = await rowsWorld();
    const service = await world.open();
    try {
      await service.migrate([], PARTS);
      const settings = { table: 'sent', topic: world.topic };
      await service.relay({ ...settings, topics: { a: `${world.schema}.a` } });
      await expect(service.relay({ ...settings, topics: { a: `${world.schema}.b` } })).rejects.toMatchObject({
        code: 'lease_mismatch',
      });
      await expect(service.relay({ ...settings, topics: { 'a*b': 'c' } })).rejects.toMatchObject({
        code: 'bad_option',
      });
    } finally {
      await service.close();
    }
  });
});

describe('CloudEvents', () => {
  it('an event in binary content mode has its payload as the value and its attributes as headers', async () => {
    const world = await rowsWorld();
    const service = await world.open();
    try {
      await service.migrate([], PARTS);
      await service.relay({ table: 'sent', topic: world.topic });
      const cloudEvent = {
        source: '//shop',
        subject: 'parcel/7',
        dataSchema: 'urn:parcel',
        extensions: { tenant: 'eu' },
      };
      const [id] = await send(service, [
        { aggregateId: 'p7', eventType: 'parcel.moved.v1', payload: { n: 1 }, cloudEvent },
      ]);
      await world.drained();
      const [record] = await recordsOf(world.topic);
      expect(record?.value.toString()).toBe('{"n":1}');
      const headers = Object.fromEntries(
        Object.entries(record?.headers ?? {}).map(([name, value]) => [name, String(value)]),
      );
      expect(headers).toMatchObject({
        ce_specversion: '1.0',
        ce_id: id,
        ce_source: '//shop',
        ce_type: 'parcel.moved.v1',
        ce_subject: 'parcel/7',
        ce_dataschema: 'urn:parcel',
        ce_tenant: 'eu',
        ce_partitionkey: 'p7',
        'content-type': 'application/json',
      });
      expect(new Date(headers['ce_time'] ?? '').toISOString()).toBe(headers['ce_time']);
    } finally {
      await service.close();
    }
  });
});

describe('values in frames of the registry', () => {
  const PARCEL = {
    type: 'record',
    name: 'Parcel',
    fields: [
      { name: 'id', type: 'long' },
      { name: 'state', type: 'string' },
    ],
  };
  const PROTO = 'syntax = "proto3"; message Parcel { int64 id = 1; string state = 2; }';
  const value = { id: 9_007_199_254_740_993n, state: 'sent' };

  const JSON_SCHEMA = {
    type: 'object',
    required: ['id', 'state'],
    properties: { id: { type: 'integer' }, state: { type: 'string' } },
  };

  it('Avro, Protobuf and JSON Schema values become framed records that the registry client reads', async () => {
    const url = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
    const registry = new SchemaRegistry({ url });
    const world = await rowsWorld();
    const service = await world.open();
    try {
      await service.migrate([], PARTS);
      await service.relay({ table: 'sent', topic: world.topic });
      const subject = 'RecordName' as const;
      const avro = registry.serializer({ topic: world.topic, schema: PARCEL, autoRegister: true, subject });
      const guided = registry.serializer({
        topic: `${world.topic}.guided`,
        schema: PARCEL,
        autoRegister: true,
        header: 'headers',
      });
      const proto = registry.serializer({
        topic: `${world.topic}.proto`,
        format: 'PROTOBUF',
        schema: PROTO,
        autoRegister: true,
      });
      const json = registry.serializer({
        topic: `${world.topic}.json`,
        format: 'JSON',
        schema: JSON_SCHEMA,
        autoRegister: true,
      });
      const bare = registry.serializer({
        topic: `${world.topic}.json`,
        version: 'latest',
        header: 'headers',
      });
      const plain = { id: 7, state: 'sent' };
      await send(service, [
        { aggregateId: 'avro', eventType: 'parcel.v1', schema: avro, value },
        { aggregateId: 'guided', eventType: 'parcel.v1', schema: guided, value },
        { aggregateId: 'proto', eventType: 'parcel.v1', schema: proto, value },
        { aggregateId: 'json', eventType: 'parcel.v1', schema: json, value: plain },
        { aggregateId: 'bare', eventType: 'parcel.v1', schema: bare, value: plain },
      ]);
      await world.drained();
      const records = await recordsOf(world.topic);
      const of = (key: string) => {
        const record = records.find((one) => one.key === key);
        if (record === undefined) throw new Error(`no record ${key}`);
        return record;
      };
      expect(of('avro').value[0]).toBe(0);
      expect(of('avro').value.readUInt32BE(1)).toBe(avro.schemaId);
      expect(of('avro').text('content-type')).toBe('application/avro');
      expect(of('proto').text('content-type')).toBe('application/protobuf');
      expect(of('proto').value.readUInt32BE(1)).toBe(proto.schemaId);
      const deserializer = registry.deserializer();
      for (const key of ['avro', 'proto', 'guided'])
        expect(await deserializer.deserialize(of(key).value, of(key).headers), key).toMatchObject(value);
      expect(of('guided').headers['__value_schema_id']).toHaveLength(17);
      expect(of('json').value.readUInt32BE(1)).toBe(json.schemaId);
      expect(of('json').value.subarray(5).toString()).toBe('{"id":7,"state":"sent"}');
      expect([of('bare').text('content-type'), of('bare').value.toString()]).toEqual([
        'application/json',
        '{"id":7,"state":"sent"}',
      ]);
      for (const key of ['json', 'bare'])
        expect(await deserializer.deserialize(of(key).value, of(key).headers), key).toEqual(plain);
      for (const schema of [avro, json])
        await expect(
          send(service, { aggregateId: 'bad', eventType: 'parcel.v1', schema, value: { id: 'x' } }),
        ).rejects.toMatchObject({ code: 'value_refused' });
      expect((await world.pool.query('SELECT FROM sent')).rowCount).toBe(5);
    } finally {
      await service.close();
    }
  });
});

describe('two databases', () => {
  it('events of one database have their effects once in another, also when the consumer is killed in between', async () => {
    const publisher = await rowsWorld();
    const name = `other_${publisher.schema}`;
    const otherUrl = await ownDatabase(stack.postgres, name);
    const consumer = await rowsWorld(otherUrl);
    const sending = await publisher.open();
    const parts = { inbox: 'received', parkedTable: 'aside' };
    const receive = async () => {
      const service = await consumer.open({ name: 'receiver' });
      service.consume({
        ...parts,
        topic: publisher.topic,
        handle: async (tx, { msgId, key }) => {
          await tx.query('INSERT INTO effects (msg_id, aggregate) VALUES ($1::uuid, $2)', [
            msgId,
            Buffer.from(key ?? []).toString(),
          ]);
        },
      });
      return service;
    };
    const setUp = await consumer.open({ name: 'receiver' });
    await setUp.migrate(
      ['CREATE TABLE effects (place bigserial, msg_id uuid NOT NULL, aggregate text NOT NULL)'],
      parts,
    );
    await setUp.close();
    await sending.migrate([], PARTS);
    await sending.relay({ table: 'sent', topic: publisher.topic });
    let receiving = await receive();
    const effects = async () => {
      const { rows } = await consumer.pool.query<{ id: string; aggregate: string }>(
        'SELECT msg_id::text AS id, aggregate FROM effects ORDER BY place',
      );
      return rows;
    };
    try {
      const ids: string[] = [];
      for (let n = 0; n < 4; n++) {
        ids.push(
          ...(await send(
            sending,
            ['text id', v4()].map((aggregateId) => ({ aggregateId, eventType: 'a', payload: { n } })),
          )),
        );
        await until('all effects', async () => (await effects()).length === ids.length || undefined);
        if (n !== 1) continue;
        // Publishes every row again, as after a crash before the mark, to another member.
        await receiving.close();
        await publisher.pool.query('UPDATE sent SET published_at = NULL');
        await publisher.drained();
        receiving = await receive();
      }
      const found = await effects();
      expect(found.map(({ id }) => id).sort()).toEqual([...ids].sort());
      expect(found.filter(({ aggregate }) => aggregate === 'text id')).toHaveLength(4);
      const [here] = (await publisher.pool.query<{ name: string }>('SELECT current_database() AS name')).rows;
      const [there] = (await consumer.pool.query<{ name: string }>('SELECT current_database() AS name')).rows;
      expect(there?.name).toBe(name);
      expect(here?.name).not.toBe(name);
    } finally {
      await receiving.close();
      await sending.close();
    }
  });
});

describe('row of another writer', () => {
  it('a row that SQL inserts with a text id has the digest that the documentation gives', async () => {
    const pool = await connectPool(stack.postgres, { connections: 1 });
    try {
      const { rows } = await pool.query<{ id: string }>(
        `SELECT encode(substr(sha256(convert_to($1, 'UTF8')), 1, 16), 'hex')::uuid::text AS id`,
        ['Kunde/ä'],
      );
      expect(rows[0]?.id).toBe(derivedAggregateId('Kunde/ä'));
    } finally {
      await pool.close();
    }
  });
});
