/** Registry clients of other projects over TLS, with a user name and a password, under access
 *  rules. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { hashPassword } from '../../src/access/password.ts';
import { certificate } from '../../src/devstack/certificates.ts';
import { type Client, clientsFolder, schemaText, startClient } from '../clients/kit.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';

const own = launcher();
const file = (name: string, text: string): string => {
  const path = join(own.dir, name);
  writeFileSync(path, text, { mode: 0o600 });
  return path;
};
const PASSWORD = 'pa:ss wörd';
let url: string;
let dir: string;
let ca: string;
const started: Client[] = [];
function client(name: Client['name'], user: string, password = PASSWORD): Client {
  const one = startClient(name, dir, url, { user, password, ca });
  started.push(one);
  return one;
}

beforeAll(async () => {
  const authority = certificate({ subject: [['CN', 'clients test']], authority: true });
  const server = certificate({
    subject: [['CN', 'registry']],
    issuer: authority,
    ips: ['127.0.0.1'],
    dnsNames: ['localhost'],
  });
  ca = file('ca.pem', authority.cert);
  const users = ['writer', 'reader'].map(async (user) => `${user}:${await hashPassword(PASSWORD)}`);
  const child = startRegistry(own, [
    '-store=memory',
    `-tls-cert=${file('server.pem', server.cert)}`,
    `-tls-key=${file('server.key', server.key)}`,
    `-auth-basic=${file('users', (await Promise.all(users)).join('\n'))}`,
    `-auth-rules=${file('rules', 'basic:writer read,write *\nbasic:reader read *')}`,
  ]);
  dir = await clientsFolder();
  url = await child.origin();
  url = url.replace('127.0.0.1', 'localhost');
});
afterAll(() => Promise.all(started.map((one) => one.close())));

interface Found {
  readonly id: number;
}

describe.each(['confluent', 'kafkajs', 'python'] as const)('%s', (name) => {
  const request = { subject: `${name}-value`, schemaType: 'AVRO', schema: schemaText('money.avsc') };
  const value = { cents: 5, currency: 'EUR' };

  it('a client registers and encodes with the right to write, and decodes with the right to read', async () => {
    const writer = client(name, 'writer');
    // @kafkajs sets a compatibility level if it finds none, which needs a right that this user
    // lacks. Another client registers the schema.
    const { id } = await client('confluent', 'writer').ask<Found>('register', request);
    expect((await writer.ask<Found>('latest', request)).id).toBe(id);
    const encoding = { schemaType: 'AVRO', topic: name, schema: { ...request }, schemaId: id, value };
    const { bytes } = await writer.ask<{ bytes: string }>('serialize', encoding);
    const reading = { schemaType: 'AVRO', topic: name, bytes };
    expect(await client(name, 'reader').ask('deserialize', reading)).toEqual(value);
  });

  it('a client gets its own error for 403 without the right, and for 401 with unknown credentials', async () => {
    const type = { confluent: 'RestError', kafkajs: 'ResponseError', python: 'SchemaRegistryError' }[name];
    const other = { ...request, subject: `${name}-other` };
    const forbidden = await client(name, 'reader').refused('register', other);
    expect(forbidden).toMatchObject({ type, status: 403 });
    const unknown = await client(name, 'reader', 'wrong').refused('latest', request);
    expect(unknown).toMatchObject({ type, status: 401 });
  });
});
