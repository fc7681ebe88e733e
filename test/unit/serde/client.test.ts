import { describe, expect, it } from 'vitest';
import { MillraceError } from '../../../src/core/errors.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { guidOf } from '../../../src/formats/guid.ts';
import { registryError } from '../../../src/registry/errors.ts';
import { isRegistryAway, RegistryClient } from '../../../src/serde/client.ts';
import type { TransportAnswer } from '../../../src/serde/transport.ts';
import { UNKNOWN_IDS_BURST } from '../../../src/serde/unknown-ids.ts';
import { SeededRandom } from '../../../src/sim/clock.ts';
import { realClock, turn } from '../../wait.ts';

const SCHEMA = JSON.stringify({ type: 'record', name: 'R', fields: [] });
const ok = (document: unknown): TransportAnswer => ({ status: 200, body: JSON.stringify(document) });
const notFound: TransportAnswer = {
  status: 404,
  body: '{"error_code":40403,"message":"Schema 9 not found"}',
};

function setUp(answers: (path: string, attempt: number) => TransportAnswer | Error) {
  const asked: string[] = [];
  const bodies: unknown[] = [];
  const metrics = new Metrics();
  let nowMs = 0;
  let inFlight = 0;
  let inFlightMax = 0;
  const client = new RegistryClient({
    transport: {
      async request(method, path, body) {
        asked.push(`${method} ${path}`);
        bodies.push(body);
        inFlightMax = Math.max(inFlightMax, ++inFlight);
        await turn();
        inFlight--;
        const answer = answers(path, asked.length);
        if (answer instanceof Error) throw answer;
        return answer;
      },
    },
    clock: { ...realClock, wallNowMs: () => nowMs, monotonicMs: () => nowMs },
    random: new SeededRandom(1),
    metrics,
    unknownForMs: 1000,
    retries: 2,
    retryDelayMs: 1,
  });
  const metric = (name: string): Record<string, number> =>
    Object.fromEntries(
      (metrics.snapshot().find((one) => one.name === name)?.samples ?? []).map((sample) => [
        Object.values(sample.labels).join(' '),
        sample.value as number,
      ]),
    );
  return {
    client,
    asked,
    bodies,
    metric,
    inFlightMax: () => inFlightMax,
    wait: (ms: number) => {
      nowMs += ms;
    },
  };
}

const code = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => 'done',
    (thrown: { code?: string }) => thrown.code,
  );

describe('schema read cache', () => {
  it('the client requests an id once, however many callers need it concurrently and later', async () => {
    const { client, asked, metric } = setUp(() => ok({ schema: SCHEMA, schemaType: 'AVRO' }));
    await Promise.all(Array.from({ length: 100 }, () => client.schemaById(7)));
    for (let i = 0; i < 900; i++) await client.schemaById(7);
    expect(asked).toEqual(['GET /schemas/ids/7']);
    expect(metric('registry_client_requests_total')).toEqual({ 'schema_by_id 200': 1 });
    client.countHits(1_000_000);
    expect(metric('schema_cache_hit_ratio')['id_to_schema']).toBeGreaterThan(0.9998);
  });

  it('the client caches an unknown id for a while, then requests it again', async () => {
    const { client, asked, wait } = setUp((_path, attempt) =>
      attempt === 1 ? notFound : ok({ schema: SCHEMA }),
    );
    expect(await code(client.schemaById(9))).toBe('schema_not_found');
    expect(await code(client.schemaById(9))).toBe('schema_not_found');
    expect(asked).toHaveLength(1);
    wait(1001);
    expect(await code(client.schemaById(9))).toBe('done');
    expect(asked).toHaveLength(2);
  });

  it.each<readonly [string, TransportAnswer | Error]>([
    ['no answer', registryError('registry_unavailable', 'ECONNREFUSED')],
    ['503', { status: 503, body: '' }],
    ['500 of a registry', { status: 500, body: '{"error_code":50001,"message":"store"}' }],
    ['429', { status: 429, body: '' }],
    ['a page of another server', { status: 404, body: '<html>not here</html>' }],
    ['a 200 of another server', { status: 200, body: 'hello' }],
    ['a schema without text', ok({ schemaType: 'AVRO' })],
  ])('the client requests an id again after %s', async (_what, answer) => {
    let broken = true;
    const { client } = setUp(() => (broken ? answer : ok({ schema: SCHEMA })));
    expect(await client.schemaById(1).catch(isRegistryAway)).toBe(true);
    broken = false;
    expect(await code(client.schemaById(1))).toBe('done');
  });

  it('the client retries an unavailable registry until it returns', async () => {
    const { client, asked } = setUp((_path, attempt) =>
      attempt < 3 ? { status: 503, body: '' } : ok({ schema: SCHEMA }),
    );
    await client.schemaById(1);
    expect(asked).toHaveLength(3);
  });

  it('an unreadable schema is incompatible and not unavailable, and is requested once', async () => {
    const { client, asked } = setUp((path) =>
      ok(path.endsWith('/1') ? { schema: '<x/>', schemaType: 'XML' } : { schema: '{"type":"nonsense"}' }),
    );
    for (let i = 0; i < 3; i++) {
      expect(await code(client.schemaById(1))).toBe('incompatible_schema');
      expect(await code(client.schemaById(2))).toBe('incompatible_schema');
    }
    expect(asked).toHaveLength(2);
  });

  it('the client reads a schema that only an older registry would have accepted', async () => {
    const old = '{"type":"record","name":"my-app.R","fields":[{"name":"a","type":"int","default":"x"}]}';
    const { client } = setUp(() => ok({ schema: old }));
    expect((await client.schemaById(1)).format).toBe('AVRO');
  });
});

describe('references', () => {
  const leaf = '{"type":"record","name":"n.Leaf","fields":[{"name":"x","type":"int"}]}';
  const using = (name: string, ...types: string[]): string =>
    JSON.stringify({
      type: 'record',
      name,
      fields: types.map((type, i) => ({ name: `f${i}`, type })),
    });
  const refer = (name: string, subject: string, version = 1): unknown => ({ name, subject, version });
  const registry: Readonly<Record<string, TransportAnswer>> = {
    '/schemas/ids/1': ok({
      schema: using('n.Top', 'n.Mid', 'n.Leaf'),
      references: [refer('n.Mid', 'mid/é'), refer('n.Leaf', 'leaf')],
    }),
    '/schemas/ids/2': ok({ schema: using('n.Other', 'n.Leaf'), references: [refer('n.Leaf', 'leaf')] }),
    '/schemas/ids/3': ok({ schema: using('n.Gone', 'n.X'), references: [refer('n.X', 'gone')] }),
    '/schemas/ids/4': ok({ schema: using('n.Circle', 'n.A'), references: [refer('n.A', 'a')] }),
    '/schemas/ids/5': ok({ schema: using('n.Other', 'n.Leaf'), references: [{ name: 1 }] }),
    '/schemas/ids/6': ok({ schema: using('n.Deep', 'n.Deep'), references: [refer('n.Deep', 'deep-0')] }),
    '/subjects/mid%2F%C3%A9/versions/1?deleted=true': ok({
      schema: using('n.Mid', 'n.Leaf'),
      references: [refer('n.Leaf', 'leaf')],
    }),
    '/subjects/leaf/versions/1?deleted=true': ok({ schema: leaf }),
    '/subjects/a/versions/1?deleted=true': ok({
      schema: using('n.A', 'n.B'),
      references: [refer('n.B', 'b')],
    }),
    '/subjects/b/versions/1?deleted=true': ok({
      schema: using('n.B', 'n.A'),
      references: [refer('n.A', 'a')],
    }),
  };
  const missing: TransportAnswer = { status: 404, body: '{"error_code":40401,"message":"no such subject"}' };
  const answerOf = (path: string): TransportAnswer => {
    const deep = /^\/subjects\/deep-(\d+)\//.exec(path)?.[1];
    if (deep !== undefined)
      return ok({ schema: '"int"', references: [refer('n.Deep', `deep-${Number(deep) + 1}`)] });
    return registry[path] ?? missing;
  };

  it('references are fetched once each, however many schemas refer to them concurrently and later', async () => {
    const { client, asked } = setUp(answerOf);
    const [top] = await Promise.all([
      client.schemaById(1),
      client.schemaById(2),
      client.schemaById(1),
      client.schemaById(2),
    ]);
    await client.schemaById(1);
    expect([...asked].sort()).toEqual(
      Object.keys(registry)
        .filter((path) => /ids\/[12]$|mid|leaf/.test(path))
        .map((path) => `GET ${path}`)
        .sort(),
    );
    expect(top.references.map(({ name }) => name)).toEqual(['n.Mid', 'n.Leaf']);
    expect(top.references[0]?.references[0]?.text).toBe(leaf);
  });

  it.each([
    [3, /"n\.X" \(subject gone, version 1\) is missing/],
    [4, /leads back to itself/],
    [6, /nested deeper than 32/],
  ])('unresolvable references make id %i incompatible permanently', async (id, why) => {
    const { client, asked } = setUp(answerOf);
    await expect(client.schemaById(id)).rejects.toMatchObject({
      code: 'incompatible_schema',
      message: expect.stringMatching(why),
    });
    const count = asked.length;
    expect(await code(client.schemaById(id))).toBe('incompatible_schema');
    expect(asked).toHaveLength(count);
  });

  it('malformed references are a protocol error of the registry', async () => {
    const { client } = setUp(answerOf);
    expect(await code(client.schemaById(5))).toBe('registry_protocol');
  });

  it('references that cannot be fetched now are fetched later, and nothing else is fetched again', async () => {
    let broken = true;
    const { client, asked } = setUp((path) =>
      broken && path.includes('leaf') ? { status: 503, body: '' } : answerOf(path),
    );
    expect(await client.schemaById(1).catch(isRegistryAway)).toBe(true);
    broken = false;
    const before = asked.length;
    expect(await code(client.schemaById(1))).toBe('done');
    expect(asked.slice(before).sort()).toEqual([
      'GET /schemas/ids/1',
      'GET /subjects/leaf/versions/1?deleted=true',
    ]);
  });

  it('references are sent with a registration and distinguish two registrations of one text', async () => {
    const { client, asked, bodies } = setUp(() => ok({ id: 5 }));
    const one = [{ name: 'n.Leaf', subject: 'leaf', version: 1 }];
    const two = [{ name: 'n.Leaf', subject: 'leaf', version: 2 }];
    await client.register('s', 'AVRO', using('n.O', 'n.Leaf'), one);
    await client.register('s', 'AVRO', using('n.O', 'n.Leaf'), one);
    await client.register('s', 'AVRO', using('n.O', 'n.Leaf'), two);
    expect(asked).toHaveLength(2);
    expect(bodies.map((body) => (body as { references: unknown }).references)).toEqual([one, two]);
  });
});

const named = (name: string): string => JSON.stringify({ type: 'record', name, fields: [] });

describe('contexts', () => {
  const STAGING = '?subject=%3A.staging%3A';
  const byContext = (path: string): TransportAnswer =>
    ok({ schema: named(path.endsWith(STAGING) ? 'Staged' : 'Main') });

  it('an id is requested and cached with its context', async () => {
    const { client, asked } = setUp(byContext);
    for (let i = 0; i < 2; i++) {
      expect((await client.schemaById(1)).text).toBe(named('Main'));
      expect((await client.schemaById(1, '.staging')).text).toBe(named('Staged'));
    }
    const found = await client.schemasById(new Map([[1, 1]]), '.staging');
    expect(found.get(1)).toBe(client.cachedSchema(1, '.staging'));
    expect(client.cachedSchema(1)?.text).toBe(named('Main'));
    expect(asked).toEqual(['GET /schemas/ids/1', `GET /schemas/ids/1${STAGING}`]);
  });

  it('an id that one context lacks is requested in another context', async () => {
    const { client } = setUp((path) => (path.endsWith(STAGING) ? notFound : byContext(path)));
    await expect(client.schemaById(9, '.staging')).rejects.toMatchObject({
      code: 'schema_not_found',
      message: 'the registry knows no schema with id 9 in the context .staging',
    });
    expect((await client.schemaById(9)).text).toBe(named('Main'));
  });

  it.each([
    ['a subject of a context', ':.staging:orders-value', ':.staging:orders-value'],
    ['a subject whose answer has no name', ':.staging:orders-value', undefined],
    ['an alias of a subject of a context', 'orders-value', ':.staging:orders-value'],
  ])('the version of %s is kept under its id in that context', async (_what, subject, answered) => {
    const { client, asked } = setUp((path) =>
      path.startsWith('/subjects/')
        ? ok({ subject: answered, version: 1, id: 1, schema: named('Staged') })
        : byContext(path),
    );
    expect(await client.version(subject, '1')).toMatchObject({ subject, id: 1, context: '.staging' });
    expect((await client.schemaById(1, '.staging')).text).toBe(named('Staged'));
    expect(asked).toHaveLength(1);
    expect((await client.schemaById(1)).text).toBe(named('Main'));
  });

  it('references without a context of their own are those of the context of the schema', async () => {
    const using = (name: string, type: string): string =>
      JSON.stringify({ type: 'record', name, fields: [{ name: 'f', type }] });
    const answers: Readonly<Record<string, TransportAnswer>> = {
      [`/schemas/ids/1${STAGING}`]: ok({
        schema: using('Top', 'Mid'),
        references: [{ name: 'Mid', subject: 'mid', version: 1 }],
      }),
      '/subjects/%3A.staging%3Amid/versions/1?deleted=true': ok({
        subject: ':.staging:mid',
        schema: using('Mid', 'Leaf'),
        references: [{ name: 'Leaf', subject: ':.shared:leaf', version: 1 }],
      }),
      '/subjects/%3A.shared%3Aleaf/versions/1?deleted=true': ok({
        subject: ':.shared:leaf',
        schema: named('Leaf'),
      }),
    };
    const { client, asked } = setUp((path) => answers[path] ?? notFound);
    const { references } = await client.schemaById(1, '.staging');
    expect(references[0]?.references[0]?.text).toBe(named('Leaf'));
    const given = [{ name: 'Mid', subject: 'mid', version: 1 }];
    expect((await client.resolve(given, '.staging'))[0]?.text).toBe(using('Mid', 'Leaf'));
    expect(asked).toEqual(Object.keys(answers).map((path) => `GET ${path}`));
  });
});

describe('guids', () => {
  const metadata = { properties: { owner: 'shop' } };
  const ruleSet = { domainRules: [{ name: 'r', kind: 'CONDITION', type: 'CEL', expr: 'true' }] };
  const document = { schema: SCHEMA, schemaType: 'AVRO', metadata, ruleSet };
  const guid = guidOf({ format: 'AVRO', text: SCHEMA, references: [], metadata, ruleSet });
  const byGuid = `GET /schemas/guids/${guid}?referenceFormat=qualified`;

  it('a computed guid covers metadata and rules, and is confirmed', async () => {
    const { client, asked } = setUp(() => ok(document));
    expect(await client.guidOf(1, 's')).toBe(guid);
    expect(asked).toEqual(['GET /schemas/ids/1?subject=s', byGuid]);
  });

  it('a prefetched version with metadata and rules is cached by its guid', async () => {
    const { client } = setUp((path) =>
      path.endsWith('/versions') ? { status: 200, body: '[1]' } : ok({ ...document, version: 1, id: 1 }),
    );
    await client.prefetch('s');
    expect(client.cachedSchema(guid)?.text).toBe(SCHEMA);
  });

  it('a computed guid that the registry does not know is refused', async () => {
    const { client } = setUp((path) => (path.includes('guids') ? notFound : ok(document)));
    await expect(client.guidOf(1)).rejects.toMatchObject({
      code: 'schema_not_found',
      message: expect.stringContaining(`does not know the guid ${guid}`),
    });
  });

  it('a guid that a registry without guids cannot confirm is the computed one', async () => {
    const path404: TransportAnswer = { status: 404, body: '{"error_code":404,"message":"HTTP 404"}' };
    const { client, asked } = setUp((path) => (path.includes('guids') ? path404 : ok(document)));
    expect(await client.guidOf(1)).toBe(guid);
    expect(asked).toEqual(['GET /schemas/ids/1', byGuid]);
  });

  it('a guid in the answer of the registry needs no confirmation', async () => {
    const own = '00000000-0000-0000-0000-000000000001';
    const { client, asked } = setUp(() => ok({ ...document, guid: own }));
    expect(await client.guidOf(1)).toBe(own);
    expect(asked).toHaveLength(1);
  });

  it('unknown guids have the limits of unknown ids', async () => {
    const { client, asked, metric, inFlightMax } = setUp((path) =>
      path === '/schemas/ids/7' ? ok({ schema: SCHEMA }) : notFound,
    );
    const count = 1024;
    const records = new Map<number | string, number>(
      Array.from({ length: count }, (_, i) => [`00000000-0000-0000-0000-${String(i).padStart(12, '0')}`, 1]),
    );
    records.set(7, 1);
    const found = await client.schemasOf(records);
    expect(found.get(7)).toMatchObject({ text: SCHEMA });
    const failed = [...found.values()].filter((one) => one instanceof MillraceError);
    expect(failed).toHaveLength(count);
    expect(inFlightMax()).toBe(8);
    expect(asked).toHaveLength(1 + UNKNOWN_IDS_BURST);
    expect(metric('schema_lookups_skipped_total')).toEqual({ '': count - UNKNOWN_IDS_BURST });
    // A guid that was asked for is remembered, and several records make a guid likely.
    const [first] = records.keys();
    expect(await code(client.schemaByGuid(String(first)))).toBe('schema_not_found');
    const skipped = [...records.keys()].find((guid) => !asked.some((path) => path.includes(String(guid))));
    await client.schemasOf(new Map([[String(skipped), 2]]));
    expect(asked).toHaveLength(2 + UNKNOWN_IDS_BURST);
  });
});

describe('schema write cache', () => {
  it('the client registers a text once per subject', async () => {
    const { client, asked } = setUp(() => ok({ id: 5 }));
    const ids = await Promise.all(Array.from({ length: 50 }, () => client.register('a/b', 'AVRO', SCHEMA)));
    expect(new Set(ids)).toEqual(new Set([5]));
    await client.register('c', 'AVRO', SCHEMA);
    expect(asked).toEqual(['POST /subjects/a%2Fb/versions', 'POST /subjects/c/versions']);
  });

  it.each([409, 40901])(
    'the client reports a refusal with error_code %i and does not cache it',
    async (number) => {
      const { client, asked } = setUp(() => ({
        status: 409,
        body: JSON.stringify({ error_code: number, message: 'field "x"' }),
      }));
      const refused = client.register('a', 'AVRO', SCHEMA);
      await expect(refused).rejects.toMatchObject({
        code: 'incompatible',
        message: expect.stringContaining('field "x"'),
      });
      await expect(client.register('a', 'AVRO', SCHEMA)).rejects.toMatchObject({ code: 'incompatible' });
      expect(asked).toHaveLength(2);
    },
  );
});
