/** `engine submit` without a cluster: what -explain prints, which calls are refused, and that no
 *  secret is shown. test/e2e/engine-flink.test.ts runs the statements. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { SchemaRegistry } from '../../src/registry/index.ts';
import { runEngine } from '../fixtures/engine.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';

const own = launcher();
let registry: string;
beforeAll(async () => {
  registry = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
  const { client } = new SchemaRegistry({ url: registry });
  const fields = [
    { name: 'user_id', type: 'string' },
    { name: 'at', type: { type: 'long', logicalType: 'timestamp-millis' } },
  ];
  const record = JSON.stringify({ type: 'record', name: 'Click', fields });
  await client.register('clicks-value', 'AVRO', record);
  await client.register('framed-value', 'JSON', '{"type":"object"}');
  await client.register('proto-value', 'PROTOBUF', 'syntax = "proto3"; message A { string user = 1; }');
});

const JOB = [
  ...['-brokers=kafka:9092', '-topic=orders', '-format=json', '-key=user_id:string', '-time=at:ms'],
  '-sink=postgres:postgres://me:db-secret@db/shop',
];
const submit = (...flags: readonly string[]) => runEngine(own, ['submit', ...withDefaults(JOB, flags)]);

describe('engine submit -explain', () => {
  it('-explain prints the jars, the notes and statements that Flink reads, without a secret', async () => {
    const secret = [
      ...['-broker-property=security.protocol=sasl_ssl', '-broker-property=sasl.mechanism=PLAIN'],
      ...['-broker-property=sasl.username=u', '-broker-property=sasl.password=kafka-secret'],
    ];
    const { code, stdout, stderr } = await submit('-explain', '-flink-name=night run', ...secret);
    expect(code, stderr).toBe(0);
    expect(stdout).toContain('--   org.apache.flink:flink-sql-connector-kafka:');
    expect(stdout).toMatch(/^-- -allowed-skew and -allowed-lateness are one delay/m);
    expect(stdout).toContain("'properties.security.protocol' = 'SASL_SSL'");
    expect(stdout).toContain("'password' = '***'");
    expect(stdout).toContain("SET 'pipeline.name' = 'night run'");
    expect(stdout).toMatch(/GROUP BY `user_id`, window_start, window_end;$/m);
    expect(stdout + stderr).not.toMatch(/db-secret|kafka-secret/);
  });

  it('a job file and the schema of the registry give kinds of keys and the time', async () => {
    const file = join(own.dir, 'job.yaml');
    const sink = 'sink: postgres:postgres://me@db/shop\nflink-table: clicks_flink\n';
    writeFileSync(
      file,
      `brokers: kafka:9092\ntopic: clicks\nregistry: ${registry}\nkey: user_id\n${sink}size: 1h\n`,
    );
    const { code, stdout, stderr } = await runEngine(own, ['submit', '-explain', `-job=${file}`, '-json']);
    expect(code, stderr).toBe(0);
    const { statements, jars } = JSON.parse(stdout);
    expect(jars).toContain('org.apache.flink:flink-sql-avro-confluent-registry:2.2.0');
    expect(statements.join('\n')).toContain("SET 'pipeline.name' = 'millrace clicks tumbling 1h'");
    expect(statements.join('\n')).toContain('TO_TIMESTAMP_LTZ(`at`, 3)');
    expect(statements.join('\n')).toContain("'table-name' = 'clicks_flink'");
  });
});

describe('refused calls', () => {
  it.each([
    ['no gateway', [], 'usage', /engine submit needs -flink/],
    ['a gateway that is no address', ['-flink=flink:8083'], 'bad_setting', /-flink is not an address/],
    [
      'a sink of this machine',
      ['-flink=http://127.0.0.1:1', '-sink=rocksdb'],
      'flink_unsupported',
      /-sink=rocksdb is no sink that a Flink job/,
    ],
    [
      'another sink',
      ['-explain', '-flink-sink=kafka:results'],
      'flink_unsupported',
      /-flink-sink=kafka is no sink/,
    ],
    [
      'windows with names',
      ['-explain', '-window=minute=tumbling:1m'],
      'flink_unsupported',
      /-window=minute=tumbling:1m names windows/,
    ],
    ['an offset', ['-explain', '-start=-5'], 'flink_unsupported', /-start=-5 is an offset/],
    [
      'an unknown property',
      ['-explain', '-broker-property=enable.ssl.certificate.verification=false'],
      'bad_value',
      /has no equal in the Java client/,
    ],
    ['repeated events', ['-explain', '-dedup=id'], 'flink_unsupported', /-dedup=id finds repeated events/],
  ])('the error of a call with %s names the setting', async (_, flags, code, message) => {
    const { code: exit, stderr } = await submit(...flags);
    expect(exit).toBe(2);
    expect(stderr).toMatch(message);
    expect(stderr).toContain(`[${code}]`);
  });

  it.each([
    ['framed', '-format=json', /-format=json is framed/],
    ['proto', '-format=avro', /-format=protobuf is framed with a schema id/],
  ])('framed records of the topic %s are refused', async (topic, format, message) => {
    const { code, stderr } = await submit('-explain', `-topic=${topic}`, `-registry=${registry}`, format);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
  });

  it.each([
    [['submit', 'restart'], /engine submit has no action "restart"/],
    [['submit', 'status'], /engine submit status needs -flink-rest/],
    [['export', 'status'], /engine export has no status/],
    [['-explain'], /-explain changes nothing without submit/],
    [['verify', '-against=flink'], /both are -sink/],
  ])('the call %j is refused', async (words, message) => {
    const { code, stderr } = await runEngine(own, words);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
  });

  it('a REST interface that does not answer is unreachable', async () => {
    const { code, stderr } = await runEngine(own, ['submit', 'status', '-flink-rest=http://127.0.0.1:1']);
    expect(code).toBe(3);
    expect(stderr).toMatch(
      /the REST interface of Flink at http:\/\/127\.0\.0\.1:1 cannot be reached.*\[flink_unreachable\]/,
    );
  });
});
