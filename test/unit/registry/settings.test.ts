/** Invalid settings of the store are refused before a port is opened, for each store. */
import { describe, expect, it } from 'vitest';
import { command as exporting } from '../../../src/bin/registry/export.ts';
import { command as importing } from '../../../src/bin/registry/import.ts';
import { command as serving } from '../../../src/bin/registry.ts';
import { type FakeWorld, fakeWorld, start } from '../shell/fake-world.ts';

const LISTEN = '-listen=127.0.0.1:0';
const stopping = (world: FakeWorld): FakeWorld => {
  const write = world.screen.line.bind(world.screen);
  // A run that starts to serve has failed the test, so stop it.
  world.screen.line = (line) => {
    write(line);
    if (line.startsWith('listening')) setImmediate(() => world.signal('SIGTERM'));
  };
  return world;
};

const WRONG = [
  ['-store=redis:x', '-store=redis:x is not a store'],
  ['-store=kafka:', '-store=kafka: is not a store'],
  ['-advertise=foo', '-advertise=foo is not an http address'],
  ['-broker-property=foo', '-broker-property=*** is not name=value'],
  ['-schemas-topic=a b', '-schemas-topic=a b is not a name of a topic'],
  ['-schemas-topic=..', '-schemas-topic=.. is not a name of a topic'],
  ['-forward-to=registry-1:8081', '-forward-to=registry-1:8081 is not an address of an instance'],
  ['-forward-to=http://*:8081', '-forward-to=http://*:8081 is not an address of an instance'],
  ['-forward-ca=/nowhere/ca.pem', '-forward-ca=/nowhere/ca.pem cannot be read'],
] as const;

describe.each([
  ['registry', serving],
  ['registry export', exporting],
  ['registry import', importing],
])('%s', (_, command) => {
  it.each(WRONG)('the command refuses %s before it listens', async (flag, why) => {
    const { code, world } = start(command as typeof serving, [LISTEN, flag], stopping(fakeWorld()));
    expect(await code).toBe(2);
    expect(world.stderr()).toContain(`error: ${why}`);
    expect(world.stderr()).not.toContain('listening on');
  });
});
