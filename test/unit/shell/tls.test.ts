import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, test } from 'vitest';
import { findMillraceError } from '../../../src/core/errors.ts';
import { silentLogger } from '../../../src/core/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { certificate } from '../../../src/devstack/certificates.ts';
import { loadTls, type TlsSettings, watchTls } from '../../../src/shell/servers/tls.ts';

const dir = mkdtempSync(join(tmpdir(), 'millrace-tls-'));
afterAll(() => rmSync(dir, { recursive: true }));

function file(name: string, text: string): string {
  const path = join(dir, name);
  writeFileSync(path, text);
  return path;
}

const one = certificate({ subject: [['CN', 'one']], authority: true });
const other = certificate({ subject: [['CN', 'other']] });
const cert = file('cert.pem', one.cert);
const key = file('key.pem', one.key);
const otherKey = file('other-key.pem', other.key);
const garbage = file('garbage.pem', 'no PEM at all');
const huge = file('huge.pem', 'x'.repeat(1024 * 1024 + 1));

const settings = (over: Partial<TlsSettings>): TlsSettings => ({
  'tls-cert': undefined,
  'tls-key': undefined,
  'tls-client-ca': undefined,
  'tls-client-auth': 'required',
  ...over,
});

describe('TLS settings', () => {
  test('no TLS settings mean plain HTTP, and all of them mean TLS with client certificates', () => {
    expect(loadTls(settings({}))).toBeUndefined();
    expect(loadTls(settings({ 'tls-cert': cert, 'tls-key': key }))).toEqual({
      cert: one.cert,
      key: one.key,
      clientCertificateRequired: true,
    });
    const optional = { 'tls-client-ca': cert, 'tls-client-auth': 'optional' };
    expect(loadTls(settings({ 'tls-cert': cert, 'tls-key': key, ...optional }))).toMatchObject({
      clientCa: one.cert,
      clientCertificateRequired: false,
    });
  });

  test.each<[string, Partial<TlsSettings>, string]>([
    ['a certificate without its key', { 'tls-cert': cert }, '-tls-cert needs -tls-key'],
    ['a key without its certificate', { 'tls-key': key }, '-tls-key needs -tls-cert'],
    ['an authority alone', { 'tls-client-ca': cert }, '-tls-client-ca needs -tls-cert'],
    ['a missing file', { 'tls-cert': join(dir, 'none'), 'tls-key': key }, 'none cannot be read (ENOENT)'],
    ['a folder', { 'tls-cert': dir, 'tls-key': key }, 'cannot be read (EISDIR)'],
    ['a huge file', { 'tls-cert': huge, 'tls-key': key }, 'is larger than'],
    [
      'a garbage certificate',
      { 'tls-cert': garbage, 'tls-key': key },
      `-tls-cert=${garbage} holds no certificate`,
    ],
    ['a garbage key', { 'tls-cert': cert, 'tls-key': garbage }, `-tls-key=${garbage} holds no private key`],
    [
      'two files of two pairs',
      { 'tls-cert': cert, 'tls-key': otherKey },
      `-tls-key=${otherKey} is not the key`,
    ],
    [
      'a garbage authority',
      { 'tls-cert': cert, 'tls-key': key, 'tls-client-ca': garbage },
      `-tls-client-ca=${garbage} holds no certificate`,
    ],
  ])('the setting with %s is a usage error that names the flag', (_what, over, why) => {
    let thrown: unknown;
    try {
      loadTls(settings(over));
    } catch (error) {
      thrown = error;
    }
    const error = findMillraceError(thrown);
    expect(error?.toLine()).toContain(why);
    expect(error?.row.exit).toBe(2);
    expect(error?.next).toBeDefined();
  });
});

describe('watched TLS files', () => {
  const closers: Array<() => void> = [];
  afterEach(() => {
    for (const close of closers.splice(0)) close();
  });
  const watched = (name: string) => {
    const paths = { cert: file(`${name}-cert.pem`, one.cert), key: file(`${name}-key.pem`, one.key) };
    const metrics = new Metrics();
    const applied: string[] = [];
    watchTls(
      {
        settings: settings({ 'tls-cert': paths.cert, 'tls-key': paths.key }),
        log: silentLogger,
        metrics,
        onClose: (close) => void closers.push(close),
      },
      (tls) => void applied.push(tls.cert),
    );
    const counted = (outcome: string): number => {
      const reloads = metrics.counter('tls_reloads_total', '', ['outcome']);
      return reloads.value(reloads.series(outcome));
    };
    return { paths, applied, counted };
  };

  test('a changed certificate is applied, also when its key was written later than itself', async () => {
    const { paths, applied, counted } = watched('changed');
    writeFileSync(paths.cert, other.cert);
    await expect.poll(() => counted('failed')).toBe(1);
    expect(applied).toEqual([]);
    writeFileSync(paths.key, other.key);
    await expect.poll(() => applied).toEqual([other.cert]);
    expect(counted('done')).toBe(1);
  });

  test('SIGHUP applies the files without a change, and does nothing once the command has closed', () => {
    const { applied } = watched('signalled');
    process.emit('SIGHUP');
    expect(applied).toEqual([one.cert]);
    for (const close of closers.splice(0)) close();
    process.emit('SIGHUP');
    expect(applied).toEqual([one.cert]);
  });
});
