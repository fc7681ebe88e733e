/** HTTP routes that every command serves. */
import { Agent, createServer, type OutgoingHttpHeaders, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, expect, test } from 'vitest';
import { until } from '../../wait.ts';
import { type FakeWorld, start } from './fake-world.ts';
import { commandOf, drained, untilDrain } from './probe-command.ts';

describe('shared HTTP server', () => {
  const serving = commandOf(
    async (context) => {
      context.metrics.counter('probe_total', 'Probes.').add(2);
      let up = false;
      context.readiness('store', () => {
        if (!up) throw new Error('store is cold');
        return true;
      });
      context.metrics.onCollect(() => {
        up = true;
      });
      context.setReady();
      await untilDrain(context);
      return 0;
    },
    {
      routes: () => [
        { method: 'GET', path: '/version', handler: () => ({ status: 200, body: 'mine' }) },
        {
          method: 'POST',
          path: '/things/{id}',
          handler: (request) => ({ status: 201, body: `${request.params['id']} ${request.body.length}` }),
        },
      ],
      http: () => ({
        bodyBytesMax: 4,
        fallbacks: { error: (status) => ({ status, body: `own ${status}` }) },
      }),
    },
  );

  /** Reads the line of stderr that names an address. */
  const lineOf = async (world: FakeWorld, line: RegExp): Promise<string> =>
    until(`a line like ${line}`, async () => line.exec(world.stderr())?.[1]);

  test('metrics and health are served only on -metrics-listen, and the command’s routes only on -listen', async () => {
    const { code, address, world } = start(serving, ['-listen=:0', '-metrics-listen=:0']);
    const url = await address();
    const metrics = await lineOf(world, /^metrics on (http:\/\/\S+)$/m);
    for (const path of ['/metrics', '/health', '/ready']) {
      expect([path, (await fetch(url + path)).status]).toEqual([path, 404]);
      expect([path, (await fetch(metrics + path)).status]).toEqual([path, 200]);
    }
    expect(await (await fetch(`${url}/version`)).text()).toBe('mine');
    expect(await (await fetch(`${metrics}/version`)).json()).toMatchObject({ command: 'probe' });
    expect((await fetch(`${metrics}/things/7`, { method: 'POST' })).status).toBe(404);
    world.signal('SIGTERM');
    expect(await code).toBe(0);
  });

  test('cross-site requests and connections over the limit are refused on -metrics-listen too', async () => {
    const { code, world } = start(serving, ['-listen=:0', '-metrics-listen=:0', '-connections-max=1']);
    const metrics = new URL(await lineOf(world, /^metrics on (http:\/\/\S+)$/m));
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const get = (
      path: string,
      by: Agent,
      headers: OutgoingHttpHeaders = {},
    ): Promise<[number | undefined, string]> =>
      new Promise((resolve, reject) => {
        const sent = request(new URL(path, metrics), { headers, agent: by }, (response) => {
          text(response).then((body) => resolve([response.statusCode, body]), reject);
        });
        sent.on('error', reject);
        sent.end();
      });
    expect((await get('/health', agent, { origin: 'https://evil.example' }))[0]).toBe(403);
    expect((await get('/health', agent))[0]).toBe(200);
    expect((await get('/health', new Agent()))[0]).toBe(503);
    const [, exposition] = await get('/metrics', agent);
    expect(exposition).toContain('http_connections_refused_total{limit="total"} 1');
    expect(exposition).toMatch(/^http_connections 1$/m);
    agent.destroy();
    world.signal('SIGTERM');
    expect(await code).toBe(0);
  });

  test('the server refuses connections of one client address above -connections-per-address, and counts them', async () => {
    const { code, address, world } = start(serving, ['-listen=:0', '-connections-per-address=1']);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const server = await address();
    const get = (by: Agent, path = '/health'): Promise<[number | undefined, string]> =>
      new Promise((resolve, reject) => {
        const sent = request(new URL(path, server), { agent: by }, (response) => {
          text(response).then((body) => resolve([response.statusCode, body]), reject);
        });
        sent.on('error', reject);
        sent.end();
      });
    expect((await get(agent))[0]).toBe(200);
    expect((await get(new Agent()))[0]).toBe(503);
    expect((await get(agent, '/metrics'))[1]).toContain('http_connections_refused_total{limit="address"} 1');
    agent.destroy();
    world.signal('SIGTERM');
    expect(await code).toBe(0);
  });

  test('a command without routes serves on -metrics-listen, and an additional -listen is refused', async () => {
    const bare = commandOf(drained);
    const { code, world } = start(bare, ['-metrics-listen=:0']);
    const metrics = await lineOf(world, /^metrics on (http:\/\/\S+)$/m);
    expect((await fetch(`${metrics}/health`)).status).toBe(200);
    expect(world.stderr()).not.toContain('listening on');
    world.signal('SIGTERM');
    expect(await code).toBe(0);
    const refused = start(bare, ['-listen=:0', '-metrics-listen=:0']);
    expect(await refused.code).toBe(2);
    expect(refused.world.stderr()).toContain(
      'serves nothing on -listen if -metrics-listen is given; leave -listen out',
    );
  });

  test('the command’s routes are served with its own limits and errors, in addition to the shared routes', async () => {
    const { code, address, world } = start(serving, ['-listen=:0']);
    const url = await address();
    expect(await (await fetch(`${url}/things/7`, { method: 'POST', body: 'abcd' })).text()).toBe('7 4');
    const large = await fetch(`${url}/things/7`, { method: 'POST', body: 'abcde' });
    expect([large.status, await large.text()]).toEqual([413, 'own 413']);
    expect(await (await fetch(`${url}/nowhere`)).text()).toBe('own 404');
    expect(await (await fetch(`${url}/version`)).text()).toBe('mine');
    expect(await (await fetch(`${url}/health`)).json()).toEqual({ status: 'up' });
    world.signal('SIGTERM');
    expect(await code).toBe(0);
  });

  test('/ready names the failing check with its reason, and changes with it', async () => {
    const { code, address, world } = start(serving, []);
    const url = await address();
    const cold = await fetch(`${url}/ready`);
    expect([cold.status, await cold.json()]).toEqual([
      503,
      {
        ready: false,
        draining: false,
        started: true,
        checks: [
          {
            name: 'store',
            ok: false,
            why: 'store is cold',
            age_ms: expect.any(Number),
            since_ms: expect.any(Number),
          },
        ],
      },
    ]);
    await (await fetch(`${url}/metrics`)).text();
    await expect.poll(async () => (await fetch(`${url}/ready`)).status).toBe(200);
    world.signal('SIGTERM');
    expect((await fetch(`${url}/ready`).catch(() => ({ status: 503 }))).status).toBe(503);
    await code;
  });

  test('/metrics has the metrics of the command, the shell and the process', async () => {
    const { code, address, world } = start(serving, []);
    const url = await address();
    await fetch(`${url}/things/1`, { method: 'POST', body: '' });
    const answer = await fetch(`${url}/metrics`);
    const text = await answer.text();
    expect(answer.headers.get('content-type')).toContain('text/plain; version=0.0.4');
    expect(text).toMatch(/^probe_total 2$/m);
    expect(text).toMatch(/^native_addon_loaded 0$/m);
    expect(text).toMatch(/^http_requests_total\{method="POST",route="\/things\/\{id\}",status="201"\} 1$/m);
    expect(text).toMatch(/^build_info\{version="[^"]+",command="probe",node="v\d+[^"]*"\} 1$/m);
    expect(text).toMatch(/^process_cpu_seconds_total \d/m);
    expect(text).toMatch(/^nodejs_eventloop_lag_seconds /m);
    world.signal('SIGTERM');
    await code;
  });

  test('/version names the version, the command and the mode', async () => {
    const { code, address, world } = start(commandOf(drained), ['-native=off']);
    const body = await (await fetch(`${await address()}/version`)).json();
    expect(body).toEqual({
      name: 'millrace',
      version: expect.stringMatching(/^\d+\.\d+\.\d+/),
      command: 'probe',
      node: process.version,
      native: 'off',
      http: 'node:net',
    });
    world.signal('SIGTERM');
    await code;
  });

  test('a busy port gives one line and exit code 3', async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as AddressInfo;
    const { code, world } = start(
      commandOf(() => Promise.resolve(0)),
      [`-listen=127.0.0.1:${port}`],
    );
    expect(await code).toBe(3);
    expect(world.stderr()).toContain(
      `error: 127.0.0.1:${port} is in use by another process; give another port with -listen`,
    );
    other.close();
  });

  test('a command that does not listen serves and logs nothing', async () => {
    const { code, world } = start(
      commandOf((context) => Promise.resolve(context.address === undefined ? 0 : 1), { listens: false }),
      [],
    );
    expect(await code).toBe(0);
    expect(world.stderr()).toBe('');
  });
});
