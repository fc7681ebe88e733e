/** Addresses between the brokers of a cluster: one for each pair and listener. */
import { expect, it } from 'vitest';
import { brokerLinks, type KafkaNode, serverProperties } from '../../../src/devstack/kafka/server.ts';

const nodes: readonly KafkaNode[] = [1, 2, 3].map((id) => ({
  ...{ id, name: `kafka-${id}`, port: 9000 + id, controllerPort: 9100 + id, internalPort: 9200 + id },
}));
const plain: readonly KafkaNode[] = nodes.map(({ internalPort: _, ...node }) => node);

const settingsOf = (all: readonly KafkaNode[]): ReadonlyMap<string, string> =>
  new Map(
    serverProperties(all[0] as KafkaNode, all, 'data')
      .trim()
      .split('\n')
      .map((line) => line.split(/=(.*)/s).slice(0, 2) as [string, string]),
  );

it('each pair of brokers has an address of its own for each of the two listeners', () => {
  const links = brokerLinks(nodes);
  expect(links).toHaveLength(12);
  expect(new Set(links.map(({ host, port }) => `${host}:${port}`)).size).toBe(12);
  expect(links.filter(({ client, server }) => client === 'kafka-1' && server === 'kafka-2')).toEqual([
    { client: 'kafka-1', server: 'kafka-2', host: '127.1.1.2', port: 9202 },
    { client: 'kafka-1', server: 'kafka-2', host: '127.1.1.2', port: 9102 },
  ]);
});

it('brokers with links know each other and their controllers by name, and listen on 127.0.0.1', () => {
  const settings = settingsOf(nodes);
  expect(settings.get('controller.quorum.voters')).toBe('1@kafka-1:9101,2@kafka-2:9102,3@kafka-3:9103');
  expect(settings.get('listeners')).toBe(
    'PLAINTEXT://127.0.0.1:9001,BROKERS://127.0.0.1:9201,CONTROLLER://127.0.0.1:9101',
  );
  expect(settings.get('advertised.listeners')).toBe(
    'PLAINTEXT://127.0.0.1:9001,BROKERS://kafka-1:9201,CONTROLLER://kafka-1:9101',
  );
  expect(settings.get('inter.broker.listener.name')).toBe('BROKERS');
});

it('brokers without links reach each other on 127.0.0.1', () => {
  const settings = settingsOf(plain);
  expect(settings.get('controller.quorum.voters')).toBe('1@127.0.0.1:9101,2@127.0.0.1:9102,3@127.0.0.1:9103');
  expect(settings.get('advertised.listeners')).toBe('PLAINTEXT://127.0.0.1:9001');
  expect(settings.get('listener.security.protocol.map')).toBe('PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT');
  expect(settings.get('inter.broker.listener.name')).toBe('PLAINTEXT');
});
