/** A job as Flink SQL: whole scripts, the rewrites that keep the rules of the engine, and the
 *  settings that are refused by name. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { demandSayable, type OtherSettings } from '../../../../src/engine/flink/refuse.ts';
import { flinkScript } from '../../../../src/engine/flink/script.ts';
import type { Job } from '../../../../src/engine/job.ts';
import type { ResolvedReference } from '../../../../src/formats/content.ts';
import { type AvroSchema, parseSchema } from '../../../../src/formats/schema.ts';
import { packageRoot } from '../../../../src/shell/package.ts';
import { type Plan, planOf, SESSION, SLIDING, TUMBLING } from './plans.ts';

const JSON_INPUT = { format: 'json', key: 'user.id:u64', time: 'at:ms' } as const;
const AGGREGATE =
  'count,count(amount) as paid,sum(amount) as total,avg(amount) as mean,max(price:double) as most';

const WHOLE: ReadonlyArray<readonly [string, Plan]> = [
  [
    'avro-tumbling',
    {
      input: {
        aggregate: AGGREGATE,
        where: 'status = "PAID" and not amount > 1000 and customer.no in (1, null)',
      },
    },
  ],
  [
    'avro-sliding',
    { windows: SLIDING, input: { key: 'customer.country:string,customer.no:i64', value: 'amount' } },
  ],
  [
    'json-session',
    {
      windows: SESSION,
      input: {
        ...JSON_INPUT,
        aggregate: 'count,min(score:double) as least',
        where: 'user.kind != "bot" and score < 0.5',
      },
      isBounded: true,
      parallelism: undefined,
    },
  ],
];

const textOf = (plan: Plan): string => `${flinkScript(planOf(plan)).statements.join(';\n\n')};\n`;
const golden = (name: string): string =>
  readFileSync(join(packageRoot(), 'test', 'unit', 'engine', 'flink', 'golden', `${name}.sql`), 'utf8');
const statement = (plan: Plan, begin: string): string =>
  flinkScript(planOf(plan)).statements.find((one) => one.startsWith(begin)) as string;

describe('scripts of Flink SQL', () => {
  it.each(WHOLE)('the script %s has the text of its golden file', (name, plan) => {
    expect(textOf(plan)).toBe(golden(name));
  });

  it('the watermark is behind by skew, lateness and the millisecond that Flink fires early', () => {
    expect(statement({}, 'CREATE TEMPORARY TABLE `millrace_events`')).toContain(
      "AS `millrace_time` - INTERVAL '0 00:00:15.001' DAY(3) TO SECOND(3)",
    );
  });

  it('a session has a gap of one millisecond less, a later end and a further millisecond of delay', () => {
    const plan = { windows: SESSION };
    expect(statement(plan, 'CREATE TEMPORARY TABLE `millrace_events`')).toContain("'0 00:00:15.002'");
    expect(statement(plan, 'INSERT')).toContain("INTERVAL '0 00:00:29.999' DAY(3) TO SECOND(3)))");
    expect(statement(plan, 'INSERT')).toContain("(window_end + INTERVAL '0.001' SECOND(1, 3))");
    expect(statement(plan, 'CREATE TEMPORARY VIEW')).toContain(
      "`millrace_time` - INTERVAL '0.001' SECOND(1, 3) > CURRENT_WATERMARK(`millrace_time`)",
    );
  });

  it('a long interval has days', () => {
    const windows = { window: 'tumbling', sizeMs: 36 * 3_600_000 + 61_001 } as const;
    expect(statement({ windows }, 'INSERT')).toContain("INTERVAL '1 12:01:01.001' DAY(3)");
  });

  it('a value that is null is in no window, and a job without a value has zeros', () => {
    const value = { input: { value: 'amount' } };
    expect(statement(value, 'CREATE TEMPORARY VIEW')).toContain('AND `amount` IS NOT NULL');
    expect(statement(value, 'INSERT')).toContain('SUM(value_0)');
    expect(statement({}, 'INSERT')).toContain('COUNT(*),\n  CAST(0 AS BIGINT),\n  CAST(0 AS BIGINT)');
  });

  it.each([
    ['@key:long', '`millrace_key` BIGINT', '`millrace_key` AS `key`'],
    ['@key:int', '`millrace_key` INT', 'CAST(`millrace_key` AS BIGINT) AS `key`'],
    ['@key:string', '`millrace_key` STRING', '`millrace_key` AS `key`'],
    ['@key:text', '`millrace_key` STRING', 'TRY_CAST(`millrace_key` AS BIGINT) AS `key`'],
    ['@key:uuid', '`millrace_key` STRING', 'LOWER(`millrace_key`) AS `key`'],
  ])('a record key %s is a raw column', (key, column, selected) => {
    const events = statement({ input: { key } }, 'CREATE TEMPORARY TABLE `millrace_events`');
    expect(events).toContain(column);
    expect(events).toContain("'key.format' = 'raw'");
    expect(events).toContain("'value.fields-include' = 'EXCEPT_KEY'");
    expect(statement({ input: { key } }, 'CREATE TEMPORARY VIEW')).toContain(selected);
  });

  it.each([
    ['at:s', 'TO_TIMESTAMP_LTZ(`at` * 1000, 3)'],
    ['at:ms', 'TO_TIMESTAMP_LTZ(`at`, 3)'],
    ['at:us', 'TO_TIMESTAMP_LTZ(CASE WHEN `at` >= 0 THEN `at` / 1000 ELSE (`at` - 999) / 1000 END, 3)'],
    ['at:iso', "`at` STRING,\n  `millrace_time` AS COALESCE(TO_TIMESTAMP_LTZ(CASE WHEN REGEXP(`at`, '"],
    ['@timestamp', "`millrace_time` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'"],
  ])('the time %s becomes an attribute, and units are rounded down', (time, sql) => {
    const events = statement({ input: { ...JSON_INPUT, time } }, 'CREATE TEMPORARY TABLE `millrace_events`');
    expect(events).toContain(sql);
  });

  it('a record without a time, or with one that Flink SQL does not have, is in no window', () => {
    for (const input of [{}, { ...JSON_INPUT, time: 'at:iso' }]) {
      const view = statement({ input }, 'CREATE TEMPORARY VIEW');
      expect(view).toContain('AND `millrace_time` > TO_TIMESTAMP_LTZ(-62135596800000, 3)');
    }
  });

  it('a time of text may be compared as a text', () => {
    const input = { ...JSON_INPUT, time: 'at:iso', where: 'at >= "2026"' };
    expect(statement({ input }, 'CREATE TEMPORARY VIEW')).toContain("COALESCE(`at` >= '2026', FALSE)");
  });

  it('settings of Flink and a savepoint of Flink are set before the tables', () => {
    const { statements } = flinkScript(
      planOf({ from: 's3://b/sp-1', settings: { 'state.backend.type': 'rocksdb' } }),
    );
    expect(statements).toContain("SET 'execution.state-recovery.path' = 's3://b/sp-1'");
    expect(statements).toContain("SET 'state.backend.type' = 'rocksdb'");
    expect(statements.at(-1)).toMatch(/^INSERT INTO/);
  });

  it('quotes in names and values are doubled', () => {
    const plan = { input: { ...JSON_INPUT, where: '`o\'k` = "it\'s"' } };
    expect(statement(plan, 'CREATE TEMPORARY VIEW')).toContain("COALESCE(`o'k` = 'it''s', FALSE)");
  });
});

/** A schema whose types are of other subjects: `shop.Party` is named twice, and has a type of a
 *  further subject. */
function referring(): AvroSchema {
  const record = (name: string, fields: readonly object[]): string =>
    JSON.stringify({ type: 'record', name, namespace: 'shop', fields });
  const subject = (name: string, text: string, references: readonly ResolvedReference[] = []) =>
    ({ name, subject: name, version: 1, format: 'AVRO', text, references }) as const;
  const country = subject('shop.Country', record('Country', [{ name: 'code', type: 'string' }]));
  const party = subject(
    'shop.Party',
    record('Party', [
      { name: 'id', type: 'string' },
      { name: 'country', type: 'Country' },
    ]),
    [country],
  );
  const sale = record('Sale', [
    { name: 'seller', type: 'Party' },
    { name: 'buyer', type: ['null', 'shop.Party'] },
    { name: 'at', type: 'long' },
  ]);
  return parseSchema('AVRO', sale, { references: [party] }) as AvroSchema;
}

describe('a schema with references', () => {
  it.each([
    ['all fields', 'buyer.id:string', ['seller', 'buyer', 'at']],
    ['some fields', 'seller.id:string', ['seller', 'at']],
  ])('the text that Flink gets for %s defines every type once', (_, key, fields) => {
    const where = 'seller.country.code = "NL"';
    const registry = { url: 'http://registry:8081', options: {}, schema: referring() };
    const events = statement(
      { registry, input: { key, time: 'at:us', where } },
      'CREATE TEMPORARY TABLE `mill',
    );
    const text = /'value.avro-confluent.schema' = '(.*)'/.exec(events)?.[1] as string;
    // Flink parses the text alone.
    const { tree } = parseSchema('AVRO', text) as AvroSchema;
    expect(tree.kind === 'record' && tree.fields.map(({ name }) => name)).toEqual(fields);
    for (const name of ['Sale', 'Party', 'Country'])
      expect(text.match(new RegExp(`"name":"${name}"`, 'g')), text).toHaveLength(1);
    expect(events).toContain(
      '`seller` ROW<`id` STRING NOT NULL, `country` ROW<`code` STRING NOT NULL> NOT NULL> NOT NULL',
    );
  });
});

describe('a field of a record that may be null', () => {
  it('a field is null where a record around it is null, although its own type has no null', () => {
    const inner = { type: 'record', name: 'Inner', fields: [{ name: 'no', type: 'long' }] };
    const middle = { type: 'record', name: 'Middle', fields: [{ name: 'inner', type: ['null', inner] }] };
    const outer = { type: 'record', name: 'Outer', fields: [{ name: 'middle', type: middle }] };
    const fields = [
      { name: 'outer', type: ['null', outer] },
      { name: 'id', type: 'string' },
      { name: 'at', type: 'long' },
    ];
    const schema = parseSchema('AVRO', JSON.stringify({ type: 'record', name: 'R', fields })) as AvroSchema;
    const registry = { url: 'http://registry:8081', options: {}, schema };
    const input = { key: 'id:string', time: 'at:ms', where: 'outer.middle.inner.no is null' };
    expect(statement({ registry, input }, 'CREATE TEMPORARY VIEW')).toContain(
      '((CASE WHEN `outer` IS NOT NULL AND `outer`.`middle`.`inner` IS NOT NULL' +
        ' THEN `outer`.`middle`.`inner`.`no` END) IS NULL)',
    );
  });
});

describe('parts of a job that Flink SQL cannot say', () => {
  it.each<readonly [string, Plan, RegExp]>([
    [
      'a sketch of distinct values',
      { input: { aggregate: 'distinct(id)' } },
      /-aggregate=distinct\(id\) is a sketch/,
    ],
    ['a percentile', { input: { aggregate: 'p99(amount)' } }, /-aggregate=p99\(amount\) is a sketch/],
    [
      'a list of frequent values',
      { input: { aggregate: 'topk(id,5)' } },
      /-aggregate=topk\(id,5\) is a sketch/,
    ],
    [
      'the first value',
      { input: { aggregate: 'first(amount)' } },
      /-aggregate=first\(amount\) is decided by event time/,
    ],
    [
      'a sum of doubles',
      { input: { aggregate: 'sum(price:double)' } },
      /-aggregate=sum\(price:double\) has the same bits in any order/,
    ],
    [
      'a sum of decimals',
      { input: { aggregate: 'sum(price:decimal2)' } },
      /-aggregate=sum\(price\) is of decimals/,
    ],
    ['a mean of doubles', { input: { aggregate: 'avg(price:double)' } }, /-aggregate=avg\(price:double\)/],
    [
      'an integer aggregate of a text',
      { input: { aggregate: 'sum(id)' } },
      /-aggregate=id is STRING, and an integer is due/,
    ],
    ['a double as a key', { input: { key: 'price' } }, /-key=price is DOUBLE, which is no i64/],
    [
      'a union as a field',
      { input: { where: 'choice is null' } },
      /has the field choice, and it is a union of several types/,
    ],
    ['an ISO text of Avro', { input: { time: 'id:iso' } }, /-time=id is STRING in iso/],
    ['an open JSON key', { input: { ...JSON_INPUT, key: 'user' } }, /-key=user leaves its type open/],
    ['an open JSON time', { input: { ...JSON_INPUT, time: 'at' } }, /-time=at leaves its form open/],
    [
      'a JSON field of two types',
      { input: { ...JSON_INPUT, where: 'a = 1 or a = "x"' } },
      /-where=a compares the field with values of several types/,
    ],
    [
      'a JSON field that is an object too',
      { input: { ...JSON_INPUT, where: 'user = 1' } },
      /-where=user is a value for one setting and an object for another/,
    ],
    [
      'an order beside a text with high units',
      { input: { where: 'id < "\u{1f600}"' } },
      /-where=id orders texts/,
    ],
    [
      'an integer that a double rounds',
      { input: { where: 'price > 9007199254740993' } },
      /-where=price compares doubles with 9007199254740993/,
    ],
    [
      'a column that needs quotes',
      { input: { aggregate: 'count as Total' } },
      /-aggregate=Total is a column that PostgreSQL needs quotes for/,
    ],
    [
      'a column with a reserved name',
      { input: { aggregate: 'count as limit' } },
      /-aggregate=limit is a column/,
    ],
  ])('a job with %s is refused by name', (_, plan, message) => {
    expect(() => flinkScript(planOf(plan))).toThrow(
      expect.objectContaining({ code: 'flink_unsupported', message: expect.stringMatching(message) }),
    );
  });

  const others: OtherSettings = { windows: 1, 'late-topic': undefined, 'exit-at-end': false };
  it.each<readonly [string, Partial<Job>, Partial<OtherSettings>, string]>([
    ['several windows', {}, { windows: 2 }, 'window'],
    ['the fixed layout', { input: { format: 'binary256' } }, {}, 'format'],
    ['Protobuf', { input: { format: 'protobuf' } }, {}, 'format'],
    ['repeated events', { input: { format: 'avro', dedup: 'id' } }, {}, 'dedup'],
    ['a limit on the future', { maxFutureMs: 1000 }, {}, 'max-future'],
    ['a watermark from all partitions', { watermark: 'global' }, {}, 'watermark'],
    ['early results', { emit: 'updates' }, {}, 'emit'],
    ['late events', {}, { 'late-topic': 'late' }, 'late-topic'],
    ['open windows at the end', {}, { 'exit-at-end': true }, 'exit-at-end'],
    [
      'a slide that does not divide the size',
      { window: 'sliding', sizeMs: 2000, slideMs: 700 } as Partial<Job>,
      {},
      'slide',
    ],
    ['a gap of one millisecond', { window: 'session', gapMs: 1 } as Partial<Job>, {}, 'gap'],
    ['a window of three years', { sizeMs: 1100 * 86_400_000 } as Partial<Job>, {}, 'size'],
  ])('the error of a job with %s names the setting', (_, job, other, setting) => {
    const whole = { ...planOf({ windows: TUMBLING }).job, ...job } as Job;
    expect(() => demandSayable(whole, { ...others, ...other })).toThrow(
      expect.objectContaining({ code: 'flink_unsupported', details: { setting } }),
    );
  });

  it('a job without any of them is accepted', () => {
    for (const windows of [TUMBLING, SLIDING, SESSION])
      expect(() => demandSayable(planOf({ windows }).job, others)).not.toThrow();
  });
});
