import { describe, expect, test } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { silentLogger } from '../../src/core/log.ts';
import type { HttpServerOptions } from '../../src/io/http/port.ts';
import { addressText, checkedHeader } from '../../src/io/http/uws/head.ts';
import { loadUws } from '../../src/io/http/uws/load.ts';
import { uwsDriver } from '../../src/io/http/uws/server.ts';
import { uwsLoads } from '../http-driver.ts';
import { httpContract } from './http.contract.ts';
import { get } from './http-harness.ts';
import { RawClient } from './raw-client.ts';

describe(uwsDriver.name, () => {
  if (uwsLoads) {
    httpContract(uwsDriver);
    // The backend knows nine methods and routes no other, so the driver cannot answer 405. When a
    // release does answer, remove the exception: `rare_forms` then no longer includes methods.
    test('uWebSockets.js itself closes the connection of a method that it does not know, before any callback', async () => {
      const uws = loadUws();
      const seen: string[] = [];
      const app = uws.App().any('/*', (response, request) => {
        seen.push(request.getCaseSensitiveMethod());
        response.end('served');
      });
      const token = await new Promise<object | false>((resolve) => app.listen('127.0.0.1', 0, resolve));
      expect(token).not.toBe(false);
      try {
        const port = uws.us_socket_local_port(token as object);
        for (const method of ['QUERY', 'BREW']) {
          const client = await RawClient.open(port);
          expect([await client.send(get('/').replace('GET', method)).outcome(), client.unread]).toEqual([
            'ended',
            '',
          ]);
        }
        const known = await RawClient.open(port);
        expect((await known.send(get('/')).answer()).status).toBe(200);
        known.close();
        expect(seen).toEqual(['GET']);
      } finally {
        app.close();
      }
    });
  } else
    test('the uWebSockets.js driver names an alternative if it has no binary for this machine and Node.js', async () => {
      const options: HttpServerOptions = {
        host: '127.0.0.1',
        port: 0,
        routes: [],
        bodyBytesMax: 1,
        headerBytesMax: 1,
        requestTimeoutMs: 1,
        keepAliveTimeoutMs: 1,
        log: silentLogger,
      };
      const error = await uwsDriver.listen(options).catch((thrown: unknown) => findMillraceError(thrown));
      expect(error).toMatchObject({ code: 'addon_missing', next: 'run with -http=net' });
    });
});

describe('uWebSockets.js driver', () => {
  const address = (...bytes: number[]): string => addressText(Uint8Array.from(bytes).buffer);

  test('addresses are formatted from their bytes', () => {
    expect(address(127, 0, 0, 1)).toBe('127.0.0.1');
    expect(address(...new Array<number>(15).fill(0), 1)).toBe('::1');
    expect(address(0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa)).toBe('2001:db8::a');
    expect(address(...new Array<number>(10).fill(0), 255, 255, 192, 0, 2, 7)).toBe('192.0.2.7');
    expect(address()).toBe('');
  });

  test('a response header is one line of Latin-1 or refused', () => {
    expect(checkedHeader('x-a', 'plain\ttext')).toBe('plain\ttext');
    expect(checkedHeader('x-a', 'é')).toEqual(Buffer.of(0xe9));
    for (const [name, value] of [
      ['x-a', 'a\r\nb: c'],
      ['x-a', 'a\nb'],
      ['x-a', 'a\0b'],
      ['x-a', '€'],
      ['x a', 'b'],
      ['x:a', 'b'],
      ['', 'b'],
    ] as const)
      expect(() => checkedHeader(name, value)).toThrow('cannot be sent');
  });
});
