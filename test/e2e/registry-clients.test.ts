/** Registry clients of other projects, as their users run them: register, look up, evolve, get a
 *  refusal, delete. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type Client,
  type ClientName,
  clientsFolder,
  compiled,
  descriptorSet,
  schemaText,
  startClient,
} from '../clients/kit.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';

const own = launcher();

interface Format {
  readonly schemaType: 'AVRO' | 'PROTOBUF';
  readonly money: string;
  readonly order: string;
  readonly evolved: string;
  readonly breaking: string;
  /** Name by which an order refers to the money schema. */
  readonly reference: string;
}

const FORMATS: readonly Format[] = [
  {
    schemaType: 'AVRO',
    money: schemaText('money.avsc'),
    order: schemaText('order-1.avsc'),
    evolved: schemaText('order-2.avsc'),
    breaking: schemaText('order-breaking.avsc'),
    reference: 'shop.common.Money',
  },
  {
    schemaType: 'PROTOBUF',
    money: schemaText('shop/money.proto'),
    order: schemaText('shop/order-1.proto'),
    evolved: schemaText('shop/order-2.proto'),
    breaking: schemaText('shop/order-breaking.proto'),
    reference: 'shop/money.proto',
  },
];

interface Found {
  readonly id: number;
  readonly version?: number;
  readonly schema?: string;
  readonly schemaType?: string;
  readonly references?: readonly object[];
}

/** Error number of an incompatible schema in each generation of the wire protocol. */
const WIRES = [
  { wire: '7', incompatible: 409 },
  { wire: '8', incompatible: 40901 },
] as const;

describe.each(WIRES)('wire $wire', ({ wire, incompatible }) => {
  const clients = new Map<ClientName, Client>();
  const client = (name: ClientName): Client => clients.get(name) as Client;
  let url: string;

  beforeAll(async () => {
    const store = join(own.dir, `store-${wire}`);
    mkdirSync(store, { recursive: true });
    const [dir, address] = await Promise.all([
      clientsFolder(),
      startRegistry(own, [`-store=file:${store}`, `-wire=${wire}`], `registry-${wire}`).ready(),
    ]);
    url = `http://${address}`;
    for (const name of ['confluent', 'kafkajs', 'python'] as const)
      clients.set(name, startClient(name, dir, url));
  });
  afterAll(() => Promise.all([...clients.values()].map((one) => one.close())));

  describe.each(FORMATS)('$schemaType', (format) => {
    const { schemaType } = format;

    describe.each(['confluent', 'python'] as const)('%s', (name) => {
      const subject = `${name}-${schemaType}-order`;
      const moneySubject = `${name}-${schemaType}-money`;
      const references = [{ name: format.reference, subject: moneySubject, version: 1 }];
      const of = (schema: string) => ({ subject, schemaType, schema, references });
      const money = { subject: moneySubject, schemaType, schema: format.money };

      it('a client registers a reference and a schema, and gets the same id again', async () => {
        const referred = await client(name).ask<Found>('register', money);
        const first = await client(name).ask<Found>('register', of(format.order));
        expect(first.id).not.toBe(referred.id);
        expect((await client(name).ask<Found>('register', of(format.order))).id).toBe(first.id);
        expect(await client(name).ask('versions', { subject })).toEqual([1]);
        expect(await client(name).ask('subjects', {})).toEqual(
          expect.arrayContaining([subject, moneySubject]),
        );
      });

      it('a client looks up by content, by id, by version and the latest', async () => {
        const { id, version } = await client(name).ask<Found>('lookup', of(format.order));
        expect(version).toBe(1);
        const byId = await client(name).ask<Found>('byId', { subject, id });
        const latest = await client(name).ask<Found>('latest', { subject });
        const exact = await client(name).ask<Found>('version', { subject, version: 1 });
        expect(latest).toMatchObject({ id, version: 1, references });
        expect(exact).toEqual(latest);
        expect(byId.schema).toBe(latest.schema);
        expect(byId.schema).toContain('Order');
        const refused = await client(name).refused('lookup', of(format.evolved));
        expect(refused).toMatchObject({ status: 404, code: 40403 });
      });

      it('a client registers a compatible version, and is refused an incompatible version', async () => {
        const level = await client(name).ask('setLevel', { subject, level: 'FULL' });
        expect(JSON.stringify(level)).toContain('FULL');
        expect(await client(name).ask('level', { subject })).toBe('FULL');
        expect(await client(name).ask('compatible', of(format.evolved))).toBe(true);
        await client(name).ask('register', of(format.evolved));
        expect(await client(name).ask('versions', { subject })).toEqual([1, 2]);
        expect(await client(name).ask('compatible', of(format.breaking))).toBe(false);
        const refused = await client(name).refused('register', of(format.breaking));
        expect(refused).toMatchObject({
          type: name === 'python' ? 'SchemaRegistryError' : 'RestError',
          status: 409,
          code: incompatible,
        });
        expect(refused.message).toMatch(/incompatible/i);
        const invalid = await client(name).refused('register', { ...of('not a schema'), references: [] });
        expect(invalid).toMatchObject({ status: 422, code: 42201 });
        expect(await client(name).ask('versions', { subject })).toEqual([1, 2]);
      });

      it('a client deletes softly and then permanently, but never a schema that another one refers to', async () => {
        const needed = await client(name).refused('deleteVersion', { subject: moneySubject, version: 1 });
        expect(needed).toMatchObject({ status: 422, code: 42206 });
        const early = await client(name).refused('deleteVersion', { subject, version: 2, permanent: true });
        expect(early).toMatchObject({ status: 404, code: 40407 });
        const { id } = await client(name).ask<Found>('latest', { subject });
        expect(await client(name).ask('deleteVersion', { subject, version: 2, permanent: false })).toBe(2);
        expect(await client(name).ask('versions', { subject })).toEqual([1]);
        const gone = await client(name).refused('version', { subject, version: 2 });
        expect(gone).toMatchObject({ status: 404, code: 40402 });
        expect(await client(name).ask('version', { subject, version: 2, deleted: true })).toMatchObject({
          id,
        });
        // Consumers can still decode the records of that version.
        expect((await client(name).ask<Found>('byId', { subject, id })).schema).toContain('note');
        expect(await client(name).ask('deleteVersion', { subject, version: 2, permanent: true })).toBe(2);
        expect(await client(name).refused('version', { subject, version: 2, deleted: true })).toMatchObject({
          status: 404,
        });
        expect(await client(name).ask('deleteSubject', { subject, permanent: false })).toEqual([1]);
        expect(await client(name).ask('deleteSubject', { subject, permanent: true })).toEqual([1]);
        const nothing = await client(name).refused('versions', { subject });
        expect(nothing).toMatchObject({ status: 404, code: 40401 });
        expect(await client(name).ask('deleteVersion', { subject: moneySubject, version: 1 })).toBe(1);
      });
    });

    describe('kafkajs', () => {
      const subject = `kafkajs-${schemaType}-order`;
      const moneySubject = `kafkajs-${schemaType}-money`;
      const references = [{ name: format.reference, subject: moneySubject, version: 1 }];
      const of = (schema: string) => ({ subject, schemaType, schema, references });

      it('the @kafkajs client registers with a reference, sets its level and looks up', async () => {
        await client('kafkajs').ask('register', { subject: moneySubject, schemaType, schema: format.money });
        const { id } = await client('kafkajs').ask<Found>('register', of(format.order));
        expect(await client('kafkajs').ask('register', of(format.order))).toEqual({ id });
        expect(await client('kafkajs').ask('latest', { subject })).toEqual({ id });
        expect(await client('kafkajs').ask('version', { subject, version: 1 })).toEqual({ id });
        // This client sets BACKWARD when it finds no level of the subject.
        expect(await client('python').ask('level', { subject })).toBe('BACKWARD');
        const other = await client('kafkajs').refused('register', { ...of(format.order), level: 'FULL' });
        expect(other.type).toBe('ConfluentSchemaRegistryCompatibilityError');
      });

      it('the @kafkajs client registers a new version, and is refused an incompatible version', async () => {
        const { id } = await client('kafkajs').ask<Found>('register', of(format.evolved));
        expect(await client('kafkajs').ask('latest', { subject })).toEqual({ id });
        const refused = await client('kafkajs').refused('register', of(format.breaking));
        expect(refused).toMatchObject({ type: 'ResponseError', status: 409 });
        expect(refused.message).toMatch(/incompatible/i);
        const unknown = await client('kafkajs').refused('latest', { subject: `${subject}-none` });
        expect(unknown).toMatchObject({ type: 'ResponseError', status: 404 });
      });
    });
  });

  it('the registry gives equal content one id, whichever client registers it', async () => {
    const ids = new Set<number>();
    for (const one of clients.values()) {
      const { id } = await one.ask<Found>('register', {
        subject: `shared-${one.name}`,
        schemaType: 'AVRO',
        schema: schemaText('money.avsc'),
      });
      ids.add(id);
    }
    expect(ids.size).toBe(1);
  });

  it('the registry treats a compiled descriptor like its source text', async () => {
    const topic = `compiled-${wire}`;
    const value = { cents: '5', currency: 'EUR' };
    const request = {
      schemaType: 'PROTOBUF',
      topic,
      set: descriptorSet('1'),
      message: 'shop.common.Money',
      value,
    };
    const first = await client('confluent').ask<{ bytes: string }>('serialize', request);
    const second = await client('python').ask<{ bytes: string }>('serialize', request);
    expect(second.bytes).toBe(first.bytes);
    const { id } = await client('python').ask<Found>('register', {
      subject: `${topic}-value`,
      schemaType: 'PROTOBUF',
      schema: schemaText('shop/money.proto'),
    });
    expect(id).toBe(Buffer.from(first.bytes, 'base64').readUInt32BE(1));
    expect(await client('python').ask('versions', { subject: `${topic}-value` })).toEqual([1]);
  });

  it('the registry has one normal form for a text and its compiled descriptor', async () => {
    const money = `normal-${wire}/money.proto`;
    await client('python').ask('register', {
      subject: money,
      schemaType: 'PROTOBUF',
      schema: schemaText('shop/money.proto'),
    });
    const references = [{ name: 'shop/money.proto', subject: money, version: 1 }];
    const ids: number[] = [];
    for (const schema of [schemaText('shop/order-1.proto'), compiled('1', 'shop/order.proto')]) {
      const request = { schemaType: 'PROTOBUF', schema, references, normalize: true };
      for (const name of ['python', 'confluent'] as const)
        ids.push((await client(name).ask<Found>('register', { ...request, subject: `normal-${wire}` })).id);
    }
    expect(new Set(ids).size).toBe(1);
  });

  it('the registry answers the other commands of the clients', async () => {
    const { id } = await client('python').ask<Found>('register', {
      subject: 'asked',
      schemaType: 'AVRO',
      schema: schemaText('money.avsc'),
    });
    expect(await client('python').ask('types', {})).toEqual(expect.arrayContaining(['AVRO', 'PROTOBUF']));
    expect(await client('python').ask('contexts', {})).toEqual(['.']);
    expect(await client('python').ask('users', { id })).toEqual(expect.arrayContaining([['asked', 1]]));
    expect(await client('python').ask('setMode', { subject: 'asked', mode: 'READONLY' })).toEqual(
      expect.stringContaining('READONLY'),
    );
    const frozen = await client('python').refused('register', {
      subject: 'asked',
      schemaType: 'AVRO',
      schema: schemaText('order-breaking.avsc').replaceAll('shop.common.Money', 'long'),
    });
    expect(frozen).toMatchObject({ status: 422, code: 42205 });
    const config = { compatibilityLevel: 'FULL', normalize: true };
    await client('confluent').ask('setConfig', {
      subject: 'asked-config',
      config: { compatibility: 'FULL', normalize: true },
    });
    expect(await client('confluent').ask('config', { subject: 'asked-config' })).toMatchObject(config);
    await client('confluent').ask('register', {
      subject: 'asked-metadata',
      schemaType: 'AVRO',
      schema: schemaText('money.avsc'),
      metadata: { properties: { owner: 'shop' } },
    });
    expect(
      await client('confluent').ask('withMetadata', {
        subject: 'asked-metadata',
        metadata: { owner: 'shop' },
      }),
    ).toMatchObject({ version: 1, metadata: { properties: { owner: 'shop' } } });
  });
});
