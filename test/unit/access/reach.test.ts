/** The reach of an access rule: through ids, guids and references into subjects, and through an
 *  alias to its target. */
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/core/log.ts';
import { registryRoutes } from '../../../src/registry/api/routes.ts';
import { MemoryLog } from '../../../src/registry/store/log.ts';
import { Registry } from '../../../src/registry/store/registry.ts';
import { realClock } from '../../wait.ts';
import { gateOf, peerOf } from './access-kit.ts';

const text = (name: string, type = 'string'): string =>
  JSON.stringify({ type: 'record', name, fields: [{ name: 'f', type }] });

/** Registry with rules. A certificate names the caller; without a certificate the caller is
 *  anonymous. */
async function setUp(rules: string) {
  const { gate, log } = gateOf(rules, { mtls: true });
  const registry = await Registry.open(new MemoryLog(), silentLogger, { clock: realClock });
  const routes = registryRoutes(() => registry, { gate });
  const patterns = routes
    .map(({ method, path, handler }) => ({
      method,
      handler,
      literals: path.split('/').filter((part) => !part.startsWith('{')).length,
      names: [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1] as string),
      test: new RegExp(`^${path.replaceAll('.', '\\.').replace(/\{\w+\}/g, '([^/]+)')}$`),
    }))
    .sort((a, b) => b.literals - a.literals);
  const ask = async (user: string, line: string, body?: object) => {
    const [method, target] = line.split(' ') as [string, string];
    const [path, query] = target.split('?') as [string, string | undefined];
    const found = patterns.find((one) => one.method === method && one.test.test(path));
    if (found === undefined) throw new Error(`no route for ${line}`);
    const values = found.test.exec(path)?.slice(1).map(decodeURIComponent) ?? [];
    const response = await found.handler({
      method,
      path,
      params: Object.fromEntries(found.names.map((name, i) => [name, values[i] as string])),
      query: new URLSearchParams(query),
      header: (name) => (name === 'content-type' ? ['application/json'] : []),
      body: Buffer.from(body === undefined ? '' : JSON.stringify(body)),
      signal: new AbortController().signal,
      remoteAddress: '192.0.2.1',
      ...(user === '' ? {} : { peer: peerOf(`CN=${user}`) }),
    });
    return { status: response.status, body: JSON.parse(Buffer.from(response.body ?? '').toString()) };
  };
  return { registry, ask, log };
}

describe('schema id', () => {
  const RULES = 'anonymous read public-*\nmtls:CN=bob all :*:*\nmtls:CN=eve read :*:orders-*';

  it('an id does not reveal a subject that the caller may not read', async () => {
    const { registry, ask } = await setUp(RULES);
    await registry.register('secret', { text: text('A') }, {});
    await registry.register('public-a', { text: text('A') }, {});
    await registry.register('unrelated', { text: text('B') }, {});
    const of = async (user: string, subject: string) =>
      (await ask(user, `GET /schemas/ids/1?subject=${subject}`)).body as object;
    const without = await of('', 'no-such');
    expect(without).not.toHaveProperty('subject');
    // A subject that uses the id, a subject that does not, and an unknown subject are
    // indistinguishable.
    expect(await of('', 'secret')).toEqual(without);
    expect(await of('', ':.:secret')).toEqual(without);
    expect(await of('', 'unrelated')).toEqual(without);
    expect(await of('', 'public-a')).toEqual({ ...without, subject: 'public-a', version: 1 });
    expect(await of('bob', 'secret')).toEqual({ ...without, subject: 'secret', version: 1 });
    expect((await ask('', 'GET /schemas/ids/1/subjects?subject=secret')).body).toEqual(['public-a']);
    expect((await ask('', 'GET /schemas/ids/1/versions?subject=secret')).body).toEqual([
      { subject: 'public-a', version: 1 },
    ]);
  });

  it('an alias does not lead an id to a subject that the caller may not read', async () => {
    const { registry, ask } = await setUp(RULES);
    await registry.register('secret', { text: text('A') }, {});
    await registry.register('public-a', { text: text('A') }, {});
    await registry.register(':.lab:secret', { text: text('Lab') }, {});
    await registry.setConfig('public-x', { alias: 'secret' });
    await registry.setConfig('public-y', { alias: ':.lab:secret' });
    const plain = await ask('', 'GET /schemas/ids/1');
    expect(plain.status).toBe(200);
    for (const subject of ['public-x', 'public-y'])
      expect(await ask('', `GET /schemas/ids/1?subject=${subject}`)).toEqual(plain);
    expect((await ask('bob', 'GET /schemas/ids/1?subject=public-y')).body).toMatchObject({
      subject: ':.lab:secret',
    });
  });

  it('an id of another context is subject to the rules of that context', async () => {
    const { registry, ask } = await setUp(RULES);
    await registry.register(':.a:orders-1', { text: text('InA') }, {});
    await registry.register(':.b:orders-1', { text: text('InB') }, {});
    await registry.register(':.b:secret', { text: text('InB') }, {});
    const get = (user: string, subject: string, more = '') =>
      ask(user, `GET /schemas/ids/1${more}?subject=${encodeURIComponent(subject)}&fetchMaxId=true`);
    for (const subject of [':.a:', ':.a:orders-1', ':.b:secret', 'secret', 'orders-1'])
      expect((await get('', subject)).status).toBe(401);
    expect((await get('eve', ':.b:orders-1')).body).toMatchObject({
      subject: ':.b:orders-1',
      version: 1,
      maxId: 1,
    });
    const inB = (await get('eve', ':.b:secret')).body as object;
    expect(inB).toMatchObject({ schema: text('InB'), maxId: 1 });
    expect(inB).not.toHaveProperty('subject');
    // Without a context, all contexts are searched, but only the readable subjects.
    expect((await get('bob', 'secret')).body).toMatchObject({ schema: text('InB') });
    for (const more of ['', '/subjects', '/versions'])
      expect(await get('eve', 'secret', more)).toEqual(await get('eve', 'no-such', more));
    expect((await get('eve', 'secret')).body).toMatchObject({ schema: text('InA') });
  });
});

describe('guid', () => {
  it('a guid shows only the ids and contexts that the caller may read', async () => {
    const { registry, ask } = await setUp(
      'mtls:CN=eve read :.b:orders-*\nmtls:CN=eve read :.a:orders-*\nmtls:CN=bob all :*:*',
    );
    const references = [{ name: 'P', subject: 'part', version: 1 }];
    for (const [context, type] of [
      [':.a:', 'string'],
      [':.b:', 'long'],
    ] as const) {
      await registry.register(`${context}part`, { text: text('P', type) }, {});
      const subject = context === ':.a:' ? ':.a:secret' : ':.b:orders-1';
      await registry.register(subject, { text: text('R', 'P'), references }, {});
    }
    const { guid } = registry.schema(2, ':.b:');
    expect(registry.schema(2, ':.a:').guid).toBe(guid);
    expect((await ask('bob', `GET /schemas/guids/${guid}/ids`)).body).toHaveLength(2);
    expect((await ask('eve', `GET /schemas/guids/${guid}/ids`)).body).toEqual([{ context: '.b', id: 2 }]);
    const seen = await ask('eve', `GET /schemas/guids/${guid}?referenceFormat=qualified`);
    expect(seen.body).toMatchObject({ references: [{ subject: ':.b:part' }] });
    const resolved = await ask('eve', `GET /schemas/guids/${guid}?format=resolved`);
    expect((resolved.body as { schema: string }).schema).toContain('long');
  });
});

describe('referring schemas', () => {
  it('the ids of referring schemas are shown to callers that may read them', async () => {
    const { registry, ask } = await setUp('mtls:CN=eve read orders-*\nmtls:CN=bob all :*:*');
    await registry.register('orders-part', { text: text('P') }, {});
    const references = [{ name: 'P', subject: 'orders-part', version: 1 }];
    await registry.register('orders-1', { text: text('R', 'P'), references }, {});
    await registry.register('secret', { text: text('S', 'P'), references }, {});
    const path = 'GET /subjects/orders-part/versions/1/referencedby';
    expect((await ask('bob', path)).body).toEqual([2, 3]);
    expect((await ask('eve', path)).body).toEqual([2]);
    await registry.deleteSubject('secret', false);
    await registry.deleteSubject('orders-1', false);
    expect((await ask('eve', path)).body).toEqual([]);
    expect((await ask('eve', `${path}?deleted=true`)).body).toEqual([2]);
  });
});

describe('alias', () => {
  const RULES =
    'mtls:CN=alice all orders-*\nmtls:CN=carol all orders-*\nmtls:CN=carol read secret\nmtls:CN=bob all :*:*';
  const schema = { schema: text('A', 'long') };
  const READS: ReadonlyArray<readonly [string, object?]> = [
    ['GET /subjects/orders-b/versions'],
    ['GET /subjects/orders-b/versions/1'],
    ['GET /subjects/orders-b/versions/7'],
    ['GET /subjects/orders-b/versions/1/schema'],
    ['GET /subjects/orders-b/versions/1/referencedby'],
    ['GET /subjects/orders-b/metadata?key=a&value=b'],
    ['POST /subjects/orders-b', schema],
    ['POST /compatibility/subjects/orders-b/versions?verbose=true', schema],
    ['POST /compatibility/subjects/orders-b/versions/1?verbose=true', schema],
  ];
  const WRITES: ReadonlyArray<readonly [string, object?]> = [
    ['POST /subjects/orders-b/versions', schema],
    ['DELETE /subjects/orders-b/versions/1'],
    ['DELETE /subjects/orders-b'],
    ['DELETE /subjects/orders-b?permanent=true'],
  ];

  async function aliased() {
    const made = await setUp(RULES);
    await made.registry.register('secret', { text: text('A') }, {});
    const set = await made.ask('bob', 'PUT /config/orders-b', { alias: 'secret' });
    expect(set.status).toBe(200);
    return made;
  }

  it.each([...READS, ...WRITES].map(([line, body]) => ({ line, body })))(
    'an alias refuses $line without the same right on its target',
    async ({ line, body }) => {
      const { ask, registry } = await aliased();
      expect(await ask('alice', line, body)).toMatchObject({ status: 403, body: { error_code: 40301 } });
      // A caller without the right on the alias itself learns nothing more than before.
      expect((await ask('', line, body)).status).toBe(401);
      expect(registry.versions('secret', 'no')).toHaveLength(1);
      expect([401, 403]).not.toContain((await ask('bob', line, body)).status);
    },
  );

  it('an alias requires the right of each operation separately', async () => {
    const { ask } = await aliased();
    for (const [line, body] of READS) expect((await ask('carol', line, body)).status).not.toBe(403);
    for (const [line, body] of WRITES) {
      const operation = line.startsWith('POST') ? 'write' : 'delete';
      expect(await ask('carol', line, body)).toMatchObject({
        status: 403,
        body: { message: `mtls:CN=carol is not allowed to ${operation} secret` },
      });
    }
  });

  it('references of an alias are read in the context of its target', async () => {
    const { ask, registry } = await setUp('mtls:CN=eve all orders-*\nmtls:CN=eve all :.lab:x');
    await registry.register(':.lab:orders-part', { text: text('P') }, {});
    await registry.register('orders-part', { text: text('P') }, {});
    await registry.setConfig('orders-b', { alias: ':.lab:x' });
    const body = {
      schema: text('R', 'P'),
      references: [{ name: 'P', subject: 'orders-part', version: 1 }],
    };
    expect((await ask('eve', 'POST /subjects/orders-b/versions', body)).status).toBe(403);
  });

  it('the settings of an alias need their own right, and the log names the changed subject', async () => {
    const { ask, log } = await aliased();
    expect((await ask('alice', 'GET /config/orders-b')).body).toEqual({ alias: 'secret' });
    expect((await ask('bob', 'DELETE /subjects/orders-b')).status).toBe(200);
    const changed = log.lines.filter(({ message }) => message === 'audit: allowed');
    expect(changed.map(({ fields }) => [fields['operation'], fields['subject']])).toEqual([
      ['admin', 'orders-b'],
      ['admin', 'secret'],
      ['delete', 'orders-b'],
      ['delete', 'secret'],
    ]);
    expect((await ask('alice', 'PUT /config/orders-b', { alias: '' })).status).toBe(200);
    expect((await ask('alice', 'GET /subjects/orders-b/versions')).status).toBe(404);
  });
});
