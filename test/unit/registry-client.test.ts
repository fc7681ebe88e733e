import { describe, expect, it } from 'vitest';
import { Metrics } from '../../src/core/metrics.ts';
import {
  isRegistryAway,
  RegistryClient,
  registryError,
  type TransportAnswer,
} from '../../src/registry/index.ts';

const SCHEMA = JSON.stringify({ type: 'record', name: 'R', fields: [] });
const ok = (document: unknown): TransportAnswer => ({ status: 200, body: JSON.stringify(document) });
const notFound: TransportAnswer = {
  status: 404,
  body: '{"error_code":40403,"message":"Schema 9 not found"}',
};

function setUp(answers: (path: string, attempt: number) => TransportAnswer | Error) {
  const asked: string[] = [];
  const metrics = new Metrics();
  let nowMs = 0;
  const client = new RegistryClient({
    transport: {
      async request(method, path) {
        asked.push(`${method} ${path}`);
        await new Promise((resolve) => setTimeout(resolve, 1));
        const answer = answers(path, asked.length);
        if (answer instanceof Error) throw answer;
        return answer;
      },
    },
    clock: { wallNowMs: () => nowMs, monotonicMs: () => nowMs },
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
    metric,
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

describe('the read cache', () => {
  it('asks once for an id, however many want it at once and later', async () => {
    const { client, asked, metric } = setUp(() => ok({ schema: SCHEMA, schemaType: 'AVRO' }));
    await Promise.all(Array.from({ length: 100 }, () => client.schemaById(7)));
    for (let i = 0; i < 900; i++) await client.schemaById(7);
    expect(asked).toEqual(['GET /schemas/ids/7']);
    expect(metric('registry_client_requests_total')).toEqual({ 'schema_by_id 200': 1 });
    client.countHits('read', 1_000_000);
    expect(metric('schema_cache_hit_ratio')['id_to_schema']).toBeGreaterThan(0.9998);
  });

  it('believes an unknown id for a while, then asks again', async () => {
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
    ['a page of somebody else', { status: 404, body: '<html>not here</html>' }],
    ['200 of somebody else', { status: 200, body: 'hello' }],
    ['a schema without text', ok({ schemaType: 'AVRO' })],
  ])('%s is no fact about an id: it is asked again', async (_what, answer) => {
    let broken = true;
    const { client } = setUp(() => (broken ? answer : ok({ schema: SCHEMA })));
    expect(await client.schemaById(1).catch(isRegistryAway)).toBe(true);
    broken = false;
    expect(await code(client.schemaById(1))).toBe('done');
  });

  it('retries a registry that comes back', async () => {
    const { client, asked } = setUp((_path, attempt) =>
      attempt < 3 ? { status: 503, body: '' } : ok({ schema: SCHEMA }),
    );
    await client.schemaById(1);
    expect(asked).toHaveLength(3);
  });

  it('a schema it cannot read is incompatible, not unavailable', async () => {
    const { client } = setUp((path) =>
      ok(path.endsWith('/1') ? { schema: '{}', schemaType: 'JSON' } : { schema: '{"type":"nonsense"}' }),
    );
    expect(await code(client.schemaById(1))).toBe('incompatible_schema');
    expect(await code(client.schemaById(2))).toBe('incompatible_schema');
  });
});

describe('the write cache', () => {
  it('registers a text once a subject', async () => {
    const { client, asked } = setUp(() => ok({ id: 5 }));
    const ids = await Promise.all(Array.from({ length: 50 }, () => client.register('a/b', 'AVRO', SCHEMA)));
    expect(new Set(ids)).toEqual(new Set([5]));
    await client.register('c', 'AVRO', SCHEMA);
    expect(asked).toEqual(['POST /subjects/a%2Fb/versions', 'POST /subjects/c/versions']);
  });

  it.each([409, 40901])('hands on a refusal with error_code %i and does not remember it', async (number) => {
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
  });
});
