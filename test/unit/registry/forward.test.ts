/** Forwarding of writes to the leader: which writes are forwarded, and which are retried. */
import { describe, expect, it } from 'vitest';
import { coreError, type MillraceError } from '../../../src/core/errors.ts';
import type { HttpClientDriver, HttpClientReply } from '../../../src/io/http/client-port.ts';
import type { HttpRequest, HttpResponse } from '../../../src/io/http/port.ts';
import {
  type ForwardTransport,
  ForwardTrust,
  forwardToLeader,
  forwardTransport,
  signForwarded,
  writeAtLeader,
} from '../../../src/registry/api/forward.ts';
import { registryError } from '../../../src/registry/errors.ts';
import type { LogRole, RegistryLog } from '../../../src/registry/store/log.ts';
import { VirtualClock } from '../../../src/sim/clock.ts';
import { realClock } from '../../wait.ts';

const url = 'http://leader:1';
const instance = 'leader-1';

class FakeLog implements RegistryLog {
  readonly name = 'fake';
  current: LogRole = { leader: false, url, instance };
  caughtUp = 0;
  open = () => Promise.reject(new Error('not used'));
  append = () => Promise.reject(new Error('not used'));
  async catchUp(): Promise<void> {
    this.caughtUp++;
  }
  /** Role after this many more calls of `role`. */
  next: { calls: number; readonly role: LogRole } | undefined;
  role(): LogRole {
    if (this.next !== undefined && this.next.calls-- === 0) this.current = this.next.role;
    return this.current;
  }
  async close(): Promise<void> {}
}

type Sent = Parameters<ForwardTransport['send']>[1] & { readonly url: string };

function transportOf(answers: Array<HttpClientReply | Error | (() => Promise<HttpClientReply>)>) {
  const sent: Sent[] = [];
  const transport: ForwardTransport = {
    async send(to, request) {
      sent.push({ ...request, url: to });
      const answer = answers.shift();
      if (answer === undefined) throw new Error('more requests than answers');
      if (answer instanceof Error) throw answer;
      return typeof answer === 'function' ? answer() : answer;
    },
    close() {},
  };
  return { transport, sent };
}

const reply = (status: number, body: unknown, from = instance): HttpClientReply => ({
  status,
  headers: {
    'x-millrace-instance': from,
    'content-type': 'application/json',
    connection: 'keep-alive',
    'content-length': '9',
    'x-kept': 'y',
  },
  body: Buffer.from(JSON.stringify(body)),
});
const refusedConnection = () => coreError('unreachable', 'no reply', { details: { reason: 'ECONNREFUSED' } });
const brokenConnection = () => coreError('unreachable', 'no reply', { details: { reason: 'ECONNRESET' } });

function requestOf(over: Partial<HttpRequest> & { headers?: Record<string, string[]> } = {}): HttpRequest {
  const headers = over.headers ?? { 'content-type': ['application/json'], authorization: ['Basic eDp5'] };
  return {
    method: 'POST',
    path: '/subjects/a%2Fb/versions',
    params: {},
    query: new URLSearchParams('normalize=true&x=%20'),
    header: (name) => headers[name.toLowerCase()] ?? [],
    body: Buffer.from('{"schema":"\\"int\\""}'),
    signal: new AbortController().signal,
    remoteAddress: '127.0.0.1',
    ...over,
  } as HttpRequest;
}

describe('write at a follower', () => {
  it('a write at a follower goes to the leader unchanged, and the answer returns unchanged', async () => {
    const log = new FakeLog();
    const { transport, sent } = transportOf([reply(200, { id: 1 })]);
    const answer = await forwardToLeader(log, transport, requestOf(), realClock);
    expect(answer?.status).toBe(200);
    expect(answer?.headers).toEqual({ 'content-type': 'application/json', 'x-kept': 'y' });
    expect(Buffer.from(answer?.body as Uint8Array).toString()).toBe('{"id":1}');
    expect(sent).toEqual([
      {
        url,
        method: 'POST',
        path: '/subjects/a%2Fb/versions?normalize=true&x=+',
        headers: { 'x-forward': 'true', 'content-type': 'application/json', authorization: 'Basic eDp5' },
        body: '{"schema":"\\"int\\""}',
      },
    ]);
    expect(log.caughtUp).toBe(1);
  });

  it('a write under access rules is forwarded only to a listed address, and refused with advice otherwise', async () => {
    const targets: string[] = [];
    const driver: HttpClientDriver = {
      name: 'fake',
      open: ({ target }) => ({
        send: async () => {
          targets.push(target);
          return reply(200, { id: 1 });
        },
        close() {},
      }),
    };
    const forward = (to: string, allowed: readonly string[], authorities?: string) => {
      const log = new FakeLog();
      log.current = { leader: false, url: to, instance };
      const trust = new ForwardTrust(allowed, authorities !== undefined);
      return forwardToLeader(log, forwardTransport(driver, { trust, authorities }), requestOf(), realClock);
    };
    const leader = 'http://registry-1:8081';
    for (const allowed of [[leader], ['http://registry-1:*'], ['http://other:1', `${leader}/`]])
      expect((await forward(leader, allowed))?.status).toBe(200);
    expect((await forward('https://registry-1', [], 'authority'))?.status).toBe(200);
    const sent = targets.length;
    const wrong = [
      [leader, []],
      [leader, ['http://registry-1:8082']],
      [leader, ['https://registry-1:8081']],
      ['http://registry-1.evil.example:8081', ['http://registry-1:*']],
      ['http://registry-1@evil.example:8081', ['http://registry-1:*', leader]],
      // Any domain name has a certificate of some authority.
      ['https://evil.example', []],
      ['no address', [leader]],
    ] as const;
    for (const [to, allowed] of wrong) {
      const refused = await forward(to, allowed).catch((thrown: MillraceError) => thrown);
      expect(refused).toMatchObject({
        code: 'leader_untrusted',
        row: { http: 503 },
        next: expect.stringContaining('-forward-to'),
      });
    }
    expect(targets.length).toBe(sent);
  });

  it('a write at the leader is not forwarded', async () => {
    const log = new FakeLog();
    log.current = { leader: true };
    const { transport, sent } = transportOf([]);
    expect(await forwardToLeader(log, transport, requestOf(), realClock)).toBeUndefined();
    expect(sent).toEqual([]);
  });

  it('a write is never forwarded twice', async () => {
    const { transport, sent } = transportOf([]);
    const forwarded = requestOf({ headers: { 'x-forward': ['true'] } });
    await expect(forwardToLeader(new FakeLog(), transport, forwarded, realClock)).rejects.toMatchObject({
      code: 'leader_unknown',
    });
    expect(sent).toEqual([]);
  });

  it('a write is retried if the first attempt cannot have written anything', async () => {
    for (const first of [refusedConnection(), reply(500, { error_code: 50003, message: 'not me' })]) {
      const { transport, sent } = transportOf([first, reply(200, { id: 2 })]);
      const answer = await forwardToLeader(
        new FakeLog(),
        transport,
        requestOf({ method: 'DELETE' }),
        realClock,
      );
      expect(answer?.status).toBe(200);
      expect(sent.length).toBe(2);
    }
  });

  it('a write is retried after a lost answer only if it is idempotent', async () => {
    const again = transportOf([brokenConnection(), reply(200, { id: 3 })]);
    expect((await forwardToLeader(new FakeLog(), again.transport, requestOf(), realClock))?.status).toBe(200);
    const once = transportOf([brokenConnection()]);
    await expect(
      forwardToLeader(new FakeLog(), once.transport, requestOf({ method: 'DELETE' }), realClock),
    ).rejects.toMatchObject({ code: 'forwarding_failed', row: { number: 50003 } });
    expect(once.sent.length).toBe(1);
  });

  it('a forwarded write does not wait for a leader that was replaced', async () => {
    const log = new FakeLog();
    const never = () => new Promise<HttpClientReply>(() => {});
    const { transport, sent } = transportOf([never, reply(200, { id: 4 })]);
    log.next = { calls: 3, role: { leader: false, url: 'http://next:1', instance } };
    expect((await forwardToLeader(log, transport, requestOf(), realClock))?.status).toBe(200);
    expect(sent.map((one) => one.url)).toEqual([url, 'http://next:1']);
  });

  it('a follower returns the refusal of the leader', async () => {
    const log = new FakeLog();
    const { transport } = transportOf([reply(409, { error_code: 409, message: 'no' })]);
    expect((await forwardToLeader(log, transport, requestOf(), realClock))?.status).toBe(409);
    expect(log.caughtUp).toBe(0);
  });

  it('a write whose body is not UTF-8 is refused', async () => {
    const { transport, sent } = transportOf([]);
    const bad = requestOf({ body: Buffer.from([0xff, 0xfe]) });
    await expect(forwardToLeader(new FakeLog(), transport, bad, realClock)).rejects.toMatchObject({
      code: 'malformed_request',
    });
    expect(sent).toEqual([]);
  });

  it('a write waits for a leader if none is elected yet', async () => {
    const log = new FakeLog();
    log.current = { leader: false, url: undefined };
    log.next = { calls: 3, role: { leader: false, url, instance } };
    const { transport } = transportOf([reply(200, { id: 5 })]);
    expect((await forwardToLeader(log, transport, requestOf(), realClock))?.status).toBe(200);
  });
});

describe('foreign answers', () => {
  const foreign = (status: number): HttpClientReply => ({
    status,
    headers: { 'content-type': 'text/html' },
    body: Buffer.from('<html></html>'),
  });

  it('an answer of a server that is no registry is refused, and nothing was written', async () => {
    for (const status of [200, 302, 404]) {
      const log = new FakeLog();
      const { transport, sent } = transportOf([foreign(status)]);
      await expect(forwardToLeader(log, transport, requestOf(), realClock)).rejects.toMatchObject({
        code: 'forwarding_failed',
        message: `no registry of this topic answers at ${url}, the address that the leader announces (HTTP ${status})`,
        row: { number: 50003 },
        next: expect.stringMatching(/^nothing was written/),
      });
      expect(sent.length).toBe(1);
      expect(log.caughtUp).toBe(0);
    }
  });

  it('an answer that may come from another registry leaves the outcome unknown, and a deletion is not retried', async () => {
    for (const answer of [foreign(502), reply(200, [1], 'other-registry')]) {
      const { transport, sent } = transportOf([answer]);
      await expect(
        forwardToLeader(new FakeLog(), transport, requestOf({ method: 'DELETE' }), realClock),
      ).rejects.toMatchObject({ code: 'forwarding_failed', next: expect.stringMatching(/is not known$/) });
      expect(sent.length).toBe(1);
    }
  });

  it('a write with an unverified answer is repeated at a newly announced leader if the write is idempotent', async () => {
    const log = new FakeLog();
    const { transport, sent } = transportOf([
      reply(200, { id: 1 }, 'other-registry'),
      reply(200, { id: 7 }, 'next'),
    ]);
    log.next = { calls: 3, role: { leader: false, url, instance: 'next' } };
    const answer = await forwardToLeader(log, transport, requestOf(), realClock);
    expect(Buffer.from(answer?.body as Uint8Array).toString()).toBe('{"id":7}');
    expect(sent.length).toBe(2);
  });

  it('an instance signs its answers to another instance, including errors', async () => {
    const answers: HttpResponse[] = [{ status: 200 }, { status: 409, headers: { 'x-kept': 'y' } }];
    const routes = answers.flatMap((answer, i) => [
      { method: 'GET', path: `/${i}`, handler: () => answer },
      { method: 'PUT', path: `/${i}`, handler: async () => answer },
    ]);
    const forwarded = requestOf({ headers: { 'x-forward': ['true'] } });
    for (const [i, { handler }] of signForwarded(routes, () => 'me').entries()) {
      const given = answers[i >> 1] as HttpResponse;
      expect(await handler(forwarded)).toEqual({
        ...given,
        headers: { ...given.headers, 'x-millrace-instance': 'me' },
      });
      expect(await handler(requestOf())).toEqual(given);
    }
  });
});

describe('refusal by the gate', () => {
  it('a refusal by the gate is signed if the request was forwarded', async () => {
    const answer: HttpResponse = { status: 401, body: 'x' };
    const handler = (): HttpResponse => ({ status: 200 });
    const routes = [
      { method: 'POST', path: '/', admit: () => answer, handler },
      { method: 'PUT', path: '/', admit: async () => undefined, handler },
    ];
    const [refused, admitted] = signForwarded(routes, () => 'me');
    const forwarded = requestOf({ headers: { 'x-forward': ['true'] } });
    expect(await refused?.admit?.(forwarded)).toEqual({
      ...answer,
      headers: { 'x-millrace-instance': 'me' },
    });
    expect(await refused?.admit?.(requestOf())).toEqual(answer);
    expect(await admitted?.admit?.(forwarded)).toBe(undefined);
  });
});

describe('write at a deposed leader', () => {
  const lost = registryError('not_leader', 'lost it');
  const kept: HttpResponse = { status: 200 };

  it('a write that was not stored goes to the next leader', async () => {
    const log = new FakeLog();
    log.current = { leader: true };
    const { transport, sent } = transportOf([reply(200, { id: 6 })]);
    const answer = await writeAtLeader(log, transport, requestOf(), realClock, async () => {
      log.current = { leader: false, url, instance };
      throw lost;
    });
    expect(answer.status).toBe(200);
    expect(sent.length).toBe(1);
  });

  it('a write is retried as often as leadership moves during an election', async () => {
    const log = new FakeLog();
    log.current = { leader: true };
    const { transport } = transportOf([]);
    let called = 0;
    const answer = await writeAtLeader(
      log,
      transport,
      requestOf({ method: 'DELETE' }),
      realClock,
      async () => {
        if (++called <= 5) throw lost;
        return kept;
      },
    );
    expect(answer).toBe(kept);
    expect(called).toBe(6);
  });

  it('a write is refused if leadership never settles', async () => {
    const log = new FakeLog();
    log.current = { leader: true };
    const { transport } = transportOf([]);
    const clock = new VirtualClock();
    let called = 0;
    const answer = writeAtLeader(log, transport, requestOf(), clock, async () => {
      called++;
      throw lost;
    });
    await expect(clock.run(answer)).rejects.toBe(lost);
    expect(clock.monotonicMs()).toBeLessThan(21_000);
    expect(called).toBeGreaterThan(10);
    expect(called).toBeLessThan(300);
  });

  it('a write waits for a leader once, also when it loses the leadership meanwhile', async () => {
    const log = new FakeLog();
    log.current = { leader: false, url: undefined };
    const { transport } = transportOf([]);
    const clock = new VirtualClock();
    clock.after(19_000, () => {
      log.current = { leader: true };
    });
    const answer = writeAtLeader(log, transport, requestOf(), clock, async () => {
      log.current = { leader: false, url: undefined };
      throw lost;
    });
    await expect(clock.run(answer)).rejects.toMatchObject({ code: 'leader_unknown' });
    expect(clock.monotonicMs()).toBeLessThan(21_000);
  });

  it('a write with an unknown outcome is retried only if it is idempotent', async () => {
    const log = new FakeLog();
    log.current = { leader: true };
    const { transport } = transportOf([]);
    const unknown = registryError('store_unknown', 'who knows');
    for (const [method, calls] of [
      ['PUT', 2],
      ['DELETE', 1],
    ] as const) {
      let called = 0;
      const answer = writeAtLeader(log, transport, requestOf({ method }), realClock, async () => {
        if (called++ === 0) throw unknown;
        return kept;
      });
      if (calls === 2) expect(await answer).toBe(kept);
      else await expect(answer).rejects.toBe(unknown);
      expect(called).toBe(calls);
    }
  });

  it('a forwarded write with an unknown outcome is reported as retriable if it is idempotent', async () => {
    const unknown = registryError('store_unknown', 'who knows');
    for (const [method, code] of [
      ['PUT', 'leader_unknown'],
      ['DELETE', 'store_unknown'],
    ] as const) {
      const log = new FakeLog();
      log.current = { leader: true };
      const { transport } = transportOf([]);
      const answer = writeAtLeader(
        log,
        transport,
        requestOf({ method, headers: { 'x-forward': ['true'] } }),
        realClock,
        async () => {
          log.current = { leader: false, url, instance };
          throw unknown;
        },
      );
      await expect(answer).rejects.toMatchObject({ code });
    }
  });

  it('a write that another instance forwarded is not forwarded further', async () => {
    const log = new FakeLog();
    log.current = { leader: true };
    const { transport } = transportOf([]);
    const request = requestOf({ headers: { 'x-forward': ['TRUE'] } });
    await expect(
      writeAtLeader(log, transport, request, realClock, async () => {
        throw lost;
      }),
    ).rejects.toBe(lost);
  });
});
