/** `millrace gen ddl -flink` with a registry process: columns, the reader's schema, and what is
 *  refused. test/e2e/engine-flink.test.ts reads and writes such tables in Flink. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { SchemaRegistry } from '../../src/registry/index.ts';
import { runGen } from '../fixtures/gen.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';

const own = launcher();
let url: string;
beforeAll(async () => {
  url = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
});

const ddl = (...flags: readonly string[]) => runGen(own, ['ddl', '-flink', '-brokers=kafka:9092', ...flags]);
const register = (subject: string, format: 'AVRO' | 'PROTOBUF' | 'JSON', text: string) =>
  new SchemaRegistry({ url }).client.register(subject, format, text);
const record = (...fields: readonly object[]): string =>
  JSON.stringify({ type: 'record', name: 'Order', fields });

describe('a table over an Avro subject', () => {
  it('the columns are those of the schema, which the table names word for word', async () => {
    const text = record({ name: 'id', type: 'long' }, { name: 'note', type: ['null', 'string'] });
    const id = await register('orders-value', 'AVRO', text);
    const { code, stdout, stderr } = await ddl(`-registry=${url}`, '-subject=orders-value');
    expect(code, stderr).toBe(0);
    expect(stdout).toContain(`-- Records of subject orders-value, version 1, schema id ${id}.`);
    expect(stdout).toContain('CREATE TABLE `orders` (\n  `id` BIGINT NOT NULL,\n  `note` STRING\n) WITH (\n');
    expect(stdout).toContain(`'avro-confluent.schema' = '${text}'`);
    expect(stdout).toContain("'topic' = 'orders'");
    expect(stdout).not.toContain('For reading only');
  });

  it('a field that Flink cannot write makes the table one for reading, and the file says why', async () => {
    const at = { name: 'at', type: { type: 'long', logicalType: 'timestamp-micros' } };
    await register('events-value', 'AVRO', record(at));
    const out = join(own.dir, 'events.sql');
    const { code } = await ddl(`-registry=${url}`, '-subject=events-value', '-table=e', `-out=${out}`);
    expect(code).toBe(0);
    const text = readFileSync(out, 'utf8');
    expect(text).toContain('-- at: microseconds since the epoch\n');
    expect(text).toContain('-- For reading only: at (timestamp-micros) is read in its plain form.\n');
    expect(text).toContain('"fields":[{"name":"at","type":"long"}]');
  });
});

describe('tables that Flink does not have', () => {
  it.each<readonly [string, 'AVRO' | 'PROTOBUF' | 'JSON', string, RegExp]>([
    [
      'protobuf',
      'PROTOBUF',
      'syntax = "proto3"; message A { int32 a = 1; }',
      /ddl-protobuf is Protobuf framed with a schema id/,
    ],
    ['json', 'JSON', '{"type":"object"}', /ddl-json is JSON Schema framed with a schema id/],
    ['text', 'AVRO', '"string"', /ddl-text has values that are no records/],
    [
      'union',
      'AVRO',
      record({ name: 'u', type: ['int', 'string'] }),
      /ddl-union has the field u: it is a union of several types/,
    ],
  ])('a subject of %s is refused with the reason', async (name, format, text, message) => {
    await register(`ddl-${name}`, format, text);
    const { code, stderr } = await ddl(`-registry=${url}`, `-subject=ddl-${name}`);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
  });

  it.each([
    [['-topic=t'], /gen ddl needs a schema/],
    [['-column=a=INT'], /gen ddl needs -topic/],
    [['-topic=t', "-column=a=INT'; DROP TABLE x"], /is not a type of Flink SQL/],
    [['-subject=none', '-schema-version=one'], /-schema-version=one is not a version/],
  ])('the call %j is refused', async (flags, message) => {
    const { code, stderr } = await ddl(...flags);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
  });

  it('a language is needed', async () => {
    const { code, stderr } = await runGen(own, ['ddl', '-topic=t', '-column=a=INT', '-brokers=k:1']);
    expect(code).toBe(2);
    expect(stderr).toMatch(/gen ddl needs a language/);
  });
});

it('columns of plain JSON keep their types, with commas too', async () => {
  const { code, stdout, stderr } = await ddl(
    '-topic=clicks',
    '-column=user.id=BIGINT',
    '-column=price=DECIMAL(10, 2)',
    '-column=place=ROW<`lat` DOUBLE, `lon` DOUBLE>',
  );
  expect(code, stderr).toBe(0);
  expect(stdout).toContain(
    'CREATE TABLE `clicks` (\n  `user.id` BIGINT,\n  `price` DECIMAL(10, 2),\n  `place` ROW<`lat` DOUBLE, `lon` DOUBLE>\n) WITH (',
  );
  expect(stdout).toContain("'format' = 'json'");
});

it('a table on a secured cluster has its properties, and names the secrets that it leaves out', async () => {
  const { code, stdout, stderr } = await ddl(
    ...['-topic=clicks', '-column=a=INT', '-broker-property=security.protocol=sasl_ssl'],
    ...['-broker-property=sasl.mechanism=SCRAM-SHA-256', '-broker-property=sasl.username=ann'],
    '-broker-property=sasl.password=kafka-secret',
  );
  expect(code, stderr).toBe(0);
  expect(stdout).toContain("'properties.security.protocol' = 'SASL_SSL'");
  expect(stdout).toContain("'properties.sasl.mechanism' = 'SCRAM-SHA-256'");
  expect(stdout).toContain("'properties.sasl.jaas.config' = '***'");
  expect(stdout).toContain('-- Replace *** by the values of sasl.jaas.config.');
  expect(stdout + stderr).not.toContain('kafka-secret');
});
