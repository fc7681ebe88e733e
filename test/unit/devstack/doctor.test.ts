import { describe, expect, it } from 'vitest';
import { coreError } from '../../../src/core/errors.ts';
import { askAll, fail, ok, renderFindings, warn } from '../../../src/doctor/check.ts';
import { judgeFeatures, judgeLimits, judgeLocks, judgeNode, judgeUws } from '../../../src/doctor/host.ts';
import { postgresChecks } from '../../../src/doctor/servers.ts';
import type { SqlDriver, SqlOptions } from '../../../src/io/postgres/sql/port.ts';

describe('doctor checks', () => {
  it('the doctor limits the time in which a database connects and answers', async () => {
    const asked: SqlOptions[] = [];
    const driver: SqlDriver = {
      name: 'test',
      connect: (options) => {
        asked.push(options);
        return Promise.reject(coreError('unreachable', 'no'));
      },
    };
    await askAll(postgresChecks(driver, 'postgres://127.0.0.1/none'));
    expect(asked.length).toBeGreaterThan(0);
    for (const { connectTimeoutMs, answerTimeoutMs } of asked) {
      expect(connectTimeoutMs).toBeGreaterThan(0);
      expect(answerTimeoutMs).toBe(connectTimeoutMs);
    }
  });

  it.each([
    ['18.20.0', 'fail'],
    ['20.18.3', 'fail'],
    ['20.19.0', 'ok'],
    ['22.0.0', 'ok'],
  ])('the doctor reports Node.js %s as %s', (version, verdict) => {
    expect(judgeNode(version, '115').verdict).toBe(verdict);
  });

  it('the doctor checks librdkafka by its compiled features', () => {
    expect(judgeFeatures('2.12.0', ['ssl', 'zstd', 'lz4', 'sasl', 'gzip']).verdict).toBe('ok');
    const lacking = judgeFeatures('2.12.0', ['ssl', 'gzip']);
    expect(lacking.verdict).toBe('fail');
    expect(lacking.found).toContain('without zstd, lz4, sasl');
  });

  it('the doctor warns if uWebSockets.js has no binary for this Node.js', () => {
    expect(judgeUws(() => ({})).verdict).toBe('ok');
    const answer = judgeUws(() => {
      throw coreError('addon_missing', 'uWebSockets.js does not load here (uws_linux_x64_137.node)');
    });
    expect(answer.verdict).toBe('warn');
    expect(answer.found).toContain('uws_linux_x64_137.node');
  });

  it('the doctor checks that flock(1) runs where the addon does not lock folders', () => {
    const asked: string[] = [];
    const present = (...words: readonly unknown[]): boolean => asked.push(String(words[0])) > 0;
    expect(judgeLocks('off', present).verdict).toBe('ok');
    expect(asked).toEqual(['flock']);
    expect(judgeLocks('off', () => false)).toMatchObject({ verdict: 'fail' });
    expect(judgeLocks('off').verdict).toBe('ok');
  });

  it.each([
    ['Max open files            1024                 1048576              files     \n', 'warn'],
    ['Max open files            4096                 4096                 files     \n', 'ok'],
    ['Max open files            unlimited            unlimited            files     \n', 'ok'],
    ['', 'warn'],
  ])('the doctor reports the open-file limits %j as %s', (text, verdict) => {
    expect(judgeLimits(text).verdict).toBe(verdict);
  });
});

describe('list of findings', () => {
  it('a check that throws becomes a failed finding with its advice', async () => {
    const findings = await askAll([
      { id: 'fine', ask: () => ok('all well') },
      { id: 'so-so', ask: () => warn('slow', 'wait') },
      { id: 'known', ask: () => Promise.reject(coreError('unreachable', 'no broker', { next: 'look' })) },
      {
        id: 'foreign',
        ask: () => {
          throw new Error('first line\nsecond line');
        },
      },
      { id: 'bad', ask: () => fail('broken', 'mend it') },
    ]);
    expect(findings.map((finding) => finding.verdict)).toEqual(['ok', 'warn', 'fail', 'fail', 'fail']);
    expect(findings[2]).toMatchObject({ found: 'no broker', next: 'look' });
    expect(renderFindings(findings).split('\n')).toEqual([
      'ok    fine     all well',
      'warn  so-so    slow; wait',
      'fail  known    no broker; look',
      'fail  foreign  first line; in a clone run bin/bootstrap, then ask again',
      'fail  bad      broken; mend it',
    ]);
  });
});
