/** Access control of the engine's HTTP interface. */
import { beforeEach, describe, expect, it } from 'vitest';
import type { Gate } from '../../../src/access/gate.ts';
import { authUnavailable, BadCredentials } from '../../../src/access/refusal.ts';
import type { CredentialCheck } from '../../../src/access/request.ts';
import { type EngineQueries, engineRoutes } from '../../../src/engine/api/routes.ts';
import type { HttpResponse } from '../../../src/io/http/port.ts';
import { basicHeader, gateOf, peerOf, type RequestParts, requestOf } from '../access/access-kit.ts';

const RULES = ['basic:desk read windows', 'basic:shop read orders', 'mtls:CN=board read windows'].join('\n');
type Basic = NonNullable<Parameters<typeof gateOf>[1]>['basic'];

/** Replaces the password check: accepts the credentials `USER:right`. */
const basic = {
  identify(encoded: string): CredentialCheck {
    const [user = '', password] = Buffer.from(encoded, 'base64').toString().split(':');
    return {
      holdsGuess: true,
      run: async () => {
        if (password === 'right') return user;
        throw new BadCredentials('wrong user or password');
      },
    };
  },
} as unknown as Basic;

let queries: number;
beforeEach(() => {
  queries = 0;
});

const engine = {
  restored: true,
  columns: [],
  watermarkMode: 'partition',
  firedTo: 0,
  watermark() {
    queries++;
    return { watermark_ms: 7, lag_ms: 1, dropped_late: 0 };
  },
  windows: async () => {
    queries++;
    return { rows: [], next: undefined };
  },
  windowRange: async () => {
    queries++;
    return { rows: [], next: undefined };
  },
  lateEvents: async () => {
    queries++;
    return { rows: [], next: undefined };
  },
} as unknown as EngineQueries;

const PATHS = ['/windows', '/windows/{key}', '/late', '/watermark'];

async function ask(gate: Gate | undefined, path: string, parts: RequestParts = {}): Promise<HttpResponse> {
  const options = gate === undefined ? {} : { gate };
  const route = engineRoutes(() => engine, '1.2.3', options).find((one) => one.path === path);
  const request = { ...requestOf({ path, ...parts }), params: { key: '7' } };
  return ((await route?.admit?.(request)) ?? (await route?.handler(request))) as HttpResponse;
}

const codeOf = ({ status, body }: HttpResponse) => [status, JSON.parse(String(body)).code];
const gated = (over: Parameters<typeof gateOf>[1] = {}) =>
  gateOf(RULES, { logsAllowed: false, basic, mtls: true, ...over });

describe.each(PATHS)('access to GET %s of the engine', (path) => {
  it('a principal that may read windows gets the answer', async () => {
    const { gate, log } = gated();
    for (const parts of [{ authorization: basicHeader('desk', 'right') }, { peer: peerOf('CN=board') }])
      expect((await ask(gate, path, parts)).status).toBe(200);
    expect(queries).toBe(2);
    expect(log.lines.filter(({ message }) => message === 'audit: allowed')).toEqual([]);
  });

  it('a client without accepted credentials is answered 401 with a challenge, and nothing is read', async () => {
    const { gate } = gated();
    for (const parts of [{}, { authorization: basicHeader('desk', 'wrong') }]) {
      const refused = await ask(gate, path, parts);
      expect(codeOf(refused)).toEqual([401, 'unauthenticated']);
      expect(refused.headers?.['www-authenticate']).toContain('Basic');
    }
    expect(queries).toBe(0);
  });

  it('a principal without a rule for windows is answered 403, and nothing is read', async () => {
    const refused = await ask(gated().gate, path, { authorization: basicHeader('shop', 'right') });
    expect(codeOf(refused)).toEqual([403, 'forbidden']);
    expect(queries).toBe(0);
  });

  it('a client over its rate is answered 429, and a check that cannot run 503, both with Retry-After', async () => {
    const { gate } = gateOf(undefined, { clientRate: 1 });
    for (let burst = 0; burst < 2; burst++) expect((await ask(gate, path)).status).toBe(200);
    const limited = await ask(gate, path);
    expect(codeOf(limited)).toEqual([429, 'rate_limited']);
    expect(limited.headers?.['retry-after']).toMatch(/^\d+$/);
    const away = {
      identify: (): CredentialCheck => ({
        holdsGuess: true,
        run: () => Promise.reject(authUnavailable('too many checks wait', 9)),
      }),
    } as unknown as Basic;
    const unchecked = await ask(gated({ basic: away }).gate, path, {
      authorization: basicHeader('desk', 'right'),
    });
    expect(codeOf(unchecked)).toEqual([503, 'auth_unavailable']);
    expect(unchecked.headers?.['retry-after']).toBe('9');
  });

  it('every client gets the answer where there is no gate', async () => {
    expect((await ask(undefined, path)).status).toBe(200);
  });
});

describe('access to the savepoints of the engine', () => {
  const askFor = async (user: string): Promise<HttpResponse[]> => {
    const { gate } = gateOf(['basic:desk read windows', 'basic:ops admin windows'].join('\n'), {
      ...{ logsAllowed: false, basic },
    });
    const savepoints = {
      create: async () => ({ id: 'a', files: [{ path: 'x', bytes: 1 }] }),
      read: async () => Uint8Array.of(7),
      remove: async () => {},
    };
    const routes = engineRoutes(() => engine, '1.2.3', { gate, savepoints: () => savepoints });
    const paths = [
      ['POST', '/savepoints'],
      ['GET', '/savepoints/{id}/{file}'],
      ['DELETE', '/savepoints/{id}'],
    ];
    const answers: HttpResponse[] = [];
    for (const [method, path] of paths) {
      const route = routes.find((one) => one.method === method && one.path === path);
      const authorization = basicHeader(user, 'right');
      const request = {
        ...requestOf({ path: path as string, authorization }),
        params: { id: 'a', file: '0' },
      };
      answers.push(((await route?.admit?.(request)) ?? (await route?.handler(request))) as HttpResponse);
    }
    return answers;
  };

  it('a principal that may admin windows gets savepoints, one that may only read them is answered 403', async () => {
    expect((await askFor('ops')).map(({ status }) => status)).toEqual([201, 200, 204]);
    expect((await askFor('desk')).map(({ status }) => status)).toEqual([403, 403, 403]);
  });
});

describe('description of the engine', () => {
  it('GET /openapi.json needs no right and names the schemes and refusals of the other paths', async () => {
    const answer = await ask(gated().gate, '/openapi.json');
    expect(answer.status).toBe(200);
    const { paths, components } = JSON.parse(String(answer.body));
    for (const path of PATHS) {
      const { security, responses } = paths[path].get;
      expect(Object.keys(responses)).toEqual(expect.arrayContaining(['401', '403', '429', '503']));
      expect(security.flatMap(Object.keys)).toEqual(Object.keys(components.securitySchemes));
    }
    expect(paths['/openapi.json'].get.security).toBeUndefined();
  });
});
