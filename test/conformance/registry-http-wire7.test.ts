/** -wire=7: the bodies of releases up to 7.9. Java clients up to 5.4 fail on any unknown property.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LogSink, OpenReport } from '../../src/registry/store/log.ts';
import { MemoryLog } from '../../src/registry/store/log.ts';
import { Conformance, field, record } from './registry-http-kit.ts';

const AVRO = record('Order', field('id', 'string'));
const ITEM = record('Item', field('sku', 'string'));
const BASKET = record('Basket', field('item', 'Item'));
const REFERENCES = [{ name: 'Item', subject: 'item', version: 1 }];
const METADATA = { properties: { owner: 'team' } };
const PROTO = 'syntax = "proto3";\n\nmessage Order {\n  string id = 1;\n}\n';
const JSON_SCHEMA = '{"type":"object"}';

/** Log that another registry wrote: its records have a property that is unknown here. */
class MigratedLog extends MemoryLog {
  override async open(sink?: LogSink): Promise<OpenReport> {
    const key = Buffer.from(JSON.stringify({ keytype: 'SCHEMA', subject: 'order', version: 1, magic: 1 }));
    const value = { subject: 'order', version: 1, id: 1, md5: 'x', schema: AVRO, deleted: false };
    sink?.apply([{ key, value: Buffer.from(JSON.stringify(value)) }]);
    return { records: 1, tornBytes: 0 };
  }
}

const version = (subject: string, id: number, rest: object): object => ({ subject, version: 1, id, ...rest });
const typed = {
  proto: { schemaType: 'PROTOBUF', schema: PROTO },
  json: { schemaType: 'JSON', schema: JSON_SCHEMA },
};
const basket = { references: REFERENCES, metadata: METADATA, schema: BASKET };

type Row = readonly [method: string, path: string, sent: object | undefined, answer: unknown];

const ROWS: readonly Row[] = [
  ['POST', '/subjects/order/versions', { schema: AVRO }, { id: 1 }],
  ['POST', '/subjects/order/versions', { schema: AVRO, schemaType: 'AVRO' }, { id: 1 }],
  ['POST', '/subjects/proto/versions', typed.proto, { id: 3 }],
  ['POST', '/subjects/order', { schema: AVRO }, version('order', 1, { schema: AVRO })],
  ['POST', '/subjects/proto', typed.proto, version('proto', 3, typed.proto)],
  ['POST', '/subjects/json', typed.json, version('json', 4, typed.json)],
  ['POST', '/subjects/basket', basket, version('basket', 5, basket)],
  ['GET', '/subjects/order/versions/1', undefined, version('order', 1, { schema: AVRO })],
  ['GET', '/subjects/order/versions/latest', undefined, version('order', 1, { schema: AVRO })],
  ['GET', '/subjects/proto/versions/1', undefined, version('proto', 3, typed.proto)],
  ['GET', '/subjects/basket/versions/1', undefined, version('basket', 5, basket)],
  ['GET', '/schemas/ids/1', undefined, { schema: AVRO }],
  ['GET', '/schemas/ids/1?subject=order', undefined, { schema: AVRO }],
  ['GET', '/schemas/ids/1?subject=order&fetchMaxId=true', undefined, { schema: AVRO, maxId: 5 }],
  ['GET', '/schemas/ids/1?fetchMaxId=true', undefined, { schema: AVRO, maxId: 5 }],
  ['GET', '/schemas/ids/3', undefined, typed.proto],
  ['GET', '/schemas/ids/3?subject=proto', undefined, typed.proto],
  ['GET', '/schemas/ids/4', undefined, typed.json],
  ['GET', '/schemas/ids/5', undefined, basket],
  ['GET', '/schemas/ids/5?subject=basket', undefined, basket],
  [
    'GET',
    '/contexts/.default/schemas/ids/99',
    undefined,
    { error_code: 40403, message: 'Schema 99 not found' },
  ],
  ['GET', '/schemas?subjectPrefix=order', undefined, [version('order', 1, { schema: AVRO })]],
  ['GET', '/schemas?subjectPrefix=json', undefined, [version('json', 4, typed.json)]],
  ['GET', '/config', undefined, { compatibilityLevel: 'BACKWARD' }],
  ['GET', '/config/order?defaultToGlobal=true', undefined, { compatibilityLevel: 'BACKWARD' }],
  ['PUT', '/config/item', { compatibility: 'FULL' }, { compatibility: 'FULL' }],
  ['GET', '/config/item', undefined, { compatibilityLevel: 'FULL' }],
  ['GET', '/config/item?defaultToGlobal=true', undefined, { compatibilityLevel: 'FULL' }],
  ['DELETE', '/config/item', undefined, { compatibilityLevel: 'FULL' }],
  ['GET', '/mode', undefined, { mode: 'READWRITE' }],
];

let api: Conformance;
let own: Conformance;

beforeAll(async () => {
  api = await Conformance.start({ wire: 7 }, { log: new MigratedLog() });
  own = await Conformance.start({}, { log: new MigratedLog() });
  for (const one of [api, own]) {
    await one.register('item', ITEM);
    await one.register('proto', PROTO, { schemaType: 'PROTOBUF' });
    await one.register('json', JSON_SCHEMA, { schemaType: 'JSON' });
    await one.register('basket', BASKET, { references: REFERENCES, metadata: METADATA });
  }
});
afterAll(async () => {
  await api.close();
  await own.close();
});

describe('registry with -wire=7', () => {
  it.each(ROWS)(
    'a registry with -wire=7 answers as releases up to 7.9: %s %s',
    async (method, path, sent, answer) => {
      expect((await api.call(method, path, { body: sent })).body).toEqual(answer);
    },
  );

  it('a policy setting is shown at the scope where it was set', async () => {
    await api.call('PUT', '/config/order', { body: { verdictPolicy: 'STRICT' } });
    expect((await api.call('GET', '/config/order')).body).toEqual({ verdictPolicy: 'STRICT' });
    await api.call('DELETE', '/config/order');
    expect((await api.call('GET', '/config')).body).toEqual({ compatibilityLevel: 'BACKWARD' });
  });

  it('the policy of a migrated log is shown to programs that request it', async () => {
    for (const path of [
      '/config?verdictPolicy=true',
      '/config/order?defaultToGlobal=true&verdictPolicy=true',
    ])
      expect((await api.call('GET', path)).body).toEqual({
        compatibilityLevel: 'BACKWARD',
        verdictPolicy: 'STRICT',
      });
  });
});

describe('registry without -wire', () => {
  it.each(['/schemas/ids/1', '/subjects/order/versions/1', '/schemas/ids/1?subject=order'])(
    'a registry without -wire names the schema type in GET %s',
    async (path) => {
      expect((await own.call('GET', path)).body).toMatchObject({ schemaType: 'AVRO', schema: AVRO });
    },
  );
  it('a migrated log shows no policy that was never set', async () => {
    expect((await own.call('GET', '/config')).body).toEqual({ compatibilityLevel: 'BACKWARD' });
  });
});
