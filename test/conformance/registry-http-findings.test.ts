/** Answer of a compatibility check: the messages that clients parse, and findings for programs. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Conformance, field, record } from './registry-http-kit.ts';

let api: Conformance;
beforeEach(async () => {
  api = await Conformance.start();
});
afterEach(() => api.close());

const R_INT = record('R', field('a', 'int'));
const R_STRING = record('R', field('a', 'string'));
const R_FLOAT = record('R', field('a', 'float'));
const PATH = '/compatibility/subjects/s/versions';

interface Verdict {
  readonly is_compatible: boolean;
  readonly messages?: readonly string[];
  readonly findings?: ReadonlyArray<Readonly<Record<string, unknown>>>;
}
const check = async (schema: string, more: object = {}, query = '?verbose=true'): Promise<Verdict> =>
  (await api.call('POST', PATH + query, { body: { schema, ...more } })).body as Verdict;

describe('policy PROVEN', () => {
  it('a refusal shows both texts, an event that breaks and a fix', async () => {
    await api.register('s', R_INT);
    const proposed = record('R', field('a', 'int'), field('b', 'string'));
    const verdict = await check(proposed);
    expect(verdict.is_compatible).toBe(false);
    expect(verdict.messages?.[0]).toMatch(/^\{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE'/);
    const [finding] = verdict.findings ?? [];
    expect(finding).toMatchObject({
      rule: 'AVRO_READER_FIELD_WITHOUT_DEFAULT',
      severity: 'fail',
      direction: 'BACKWARD',
      version: 1,
      reader: { source: 'proposed', line: 1, column: proposed.indexOf('{"name":"b"') + 1 },
      counterexample: { outcome: 'FAIL', hex: expect.stringMatching(/^[0-9a-f]*$/) },
      fix: { edits: [expect.objectContaining({ text: expect.stringContaining('default') })] },
    });
  });

  it('a refusal of a Protobuf schema shows both texts, an event that breaks and a fix', async () => {
    const proto = (body: string): string => `syntax = "proto3";\nmessage M {\n  ${body}\n}\n`;
    await api.register('s', proto('int32 a = 1;'), { schemaType: 'PROTOBUF' });
    const verdict = await check(proto('string a = 1;'), { schemaType: 'PROTOBUF' });
    expect(verdict.findings?.find(({ direction }) => direction === 'BACKWARD')).toMatchObject({
      rule: 'PROTO_TYPE_CHANGED',
      severity: 'fail',
      reader: { line: 3 },
      // The stored text has an empty line before the field.
      writer: { line: 4, source: 'version 1' },
      counterexample: { outcome: 'FAIL' },
    });
  });

  it('a lossy change is accepted with a message, or refused if the subject rejects losses', async () => {
    await api.register('s', R_INT);
    const lossy = await check(R_FLOAT);
    expect(lossy).toMatchObject({
      is_compatible: true,
      messages: [expect.stringMatching(/^lossy: /)],
      findings: [{ rule: 'AVRO_PROMOTION_ROUNDS', severity: 'lossy', counterexample: { outcome: 'LOSSY' } }],
    });
    await api.call('PUT', '/config/s', { body: { lossy: 'REJECT' } });
    expect(await check(R_FLOAT)).toMatchObject({ is_compatible: false, findings: [{ severity: 'lossy' }] });
  });

  it('a verdict has no messages without verbose or without findings', async () => {
    await api.register('s', R_INT);
    expect(await check(R_STRING, {}, '')).toEqual({ is_compatible: false });
    expect(await check(R_INT)).toEqual({ is_compatible: true });
  });

  it('the size of an answer is bounded, however many findings there are', async () => {
    const wide = (type: string): string =>
      record('W', ...Array.from({ length: 900 }, (_, i) => field(`field_${i}`, type)));
    await api.call('PUT', '/config/s', { body: { compatibility: 'FULL_TRANSITIVE' } });
    await api.register('s', wide('int'));
    const response = await api.call('POST', `${PATH}?verbose=true`, { body: { schema: wide('string') } });
    const { findings } = response.body as Verdict;
    expect(findings).toHaveLength(100);
    expect(response.text.length).toBeLessThan(256 * 1024);
  });
});

describe('policy STRICT', () => {
  beforeEach(() => api.call('PUT', '/config', { body: { verdictPolicy: 'STRICT' } }));

  it('STRICT reports exactly the findings that the existing registries report', async () => {
    await api.register('s', R_INT);
    expect(await check(R_STRING)).toEqual({
      is_compatible: false,
      messages: [
        "{errorType:'TYPE_MISMATCH', description:'The type (path '/fields/0/type') of a field in the new schema does not match with the old schema', additionalInfo:'reader type: STRING not compatible with writer type: INT'}",
        '{oldSchemaVersion: 1}',
        `{oldSchema: '${R_INT}'}`,
        "{validateFields: 'false', compatibility: 'BACKWARD'}",
      ],
    });
    expect(await check(R_FLOAT)).toEqual({ is_compatible: true });
  });

  it('a refused registration reports the same message', async () => {
    await api.register('s', R_INT);
    const answer = await api.call('POST', '/subjects/s/versions', { body: { schema: R_STRING } });
    expect(answer.body).toEqual({
      error_code: 409,
      message: expect.stringMatching(
        /^Schema being registered is incompatible with an earlier schema for subject "s", details: \[\{errorType:'TYPE_MISMATCH', description:'The type \(path '\/fields\/0\/type'\) of a field in the new schema does not match with the old schema'/,
      ),
    });
  });

  it('STRICT applies to a subject, its context or all subjects, and the settings show it', async () => {
    await api.call('PUT', '/config/s', { body: { verdictPolicy: 'PROVEN' } });
    const config = async (path: string): Promise<unknown> => (await api.call('GET', path)).body;
    expect(await config('/config')).toEqual({ compatibilityLevel: 'BACKWARD', verdictPolicy: 'STRICT' });
    expect(await config('/config/s')).toEqual({ verdictPolicy: 'PROVEN' });
    expect(await config('/config/t?defaultToGlobal=true')).toMatchObject({ verdictPolicy: 'STRICT' });
    const decimal = (scale: number): string =>
      record('R', field('a', { type: 'bytes', logicalType: 'decimal', precision: 9, scale }));
    for (const subject of ['s', 't']) await api.register(subject, decimal(2));
    const verdicts = await Promise.all(
      ['s', 't'].map((subject) =>
        api.call('POST', `/compatibility/subjects/${subject}/versions`, { body: { schema: decimal(3) } }),
      ),
    );
    expect(verdicts.map(({ body }) => body)).toEqual([{ is_compatible: false }, { is_compatible: true }]);
  });
});
