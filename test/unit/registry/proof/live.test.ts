/** Evidence for a finding: positions in the user's texts, a decoded event, and the decoded
 *  value. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { parseSchema, type Schema } from '../../../../src/formats/schema.ts';
import { checkPair, compareHistory, compareWith } from '../../../../src/registry/compatibility/modes.ts';
import { counterexampleOf } from '../../../../src/registry/proof/counterexample.ts';
import { type ExplainedFinding, explain } from '../../../../src/registry/proof/explain.ts';
import { trialsOf, tryAll } from '../../../../src/registry/proof/live.ts';
import { plainJson, sameValue } from '../../../../src/registry/proof/same.ts';
import { readerUnjudged } from '../../../../src/serde/codec.ts';

/** Without a time limit, the search does not depend on the load of the machine. */
const UNLIMITED_MS = Number.POSITIVE_INFINITY;

const avro = (json: unknown): Schema => parseSchema('AVRO', JSON.stringify(json));
const order = (...fields: readonly unknown[]): Schema => avro({ type: 'record', name: 'Order', fields });
const proto = (body: string): Schema =>
  parseSchema('PROTOBUF', `syntax = "proto3";\npackage shop;\nmessage Order {\n${body}\n}\n`);

describe('equality of values', () => {
  it.each<[unknown, unknown, boolean]>([
    [0, -0, false],
    [-0, -0, true],
    [Number.NaN, Number.NaN, true],
    [1n, 1, false],
    [null, undefined, false],
    [{ a: 1, b: 2n }, { b: 2n, a: 1 }, true],
    [{ a: undefined }, {}, false],
    [{ a: 1 }, { a: 1, b: 2 }, false],
    [{ b: 1 }, { a: 1 }, false],
    [[1, [2]], [1, [2]], true],
    [[1], [1, 2], false],
    [[], {}, false],
    [{ 0: 1 }, [1], false],
    [Buffer.from('a'), Uint8Array.from([97]), true],
    [Buffer.from('a'), Buffer.from('b'), false],
    [Buffer.from('a'), 'a', false],
    [Buffer.from('a'), { 0: 97 }, false],
    ['a', 'a', true],
    [Object.create({ a: 1 }), { a: 1 }, false],
  ])('the values %o and %o are compared as a reader sees them', (one, other, same) => {
    expect(sameValue(one, other)).toBe(same);
    expect(sameValue(other, one)).toBe(same);
  });

  it('values are shown as JSON without rounding', () => {
    const value = {
      l: 2n ** 63n - 1n,
      b: Buffer.from([0xff, 0x41, 0x22]),
      d: [-0, Number.NaN],
      t: 'ä"',
      n: null,
    };
    expect(plainJson(value)).toBe(
      '{"l":9223372036854775807,"b":"\\u00ffA\\u0022","d":[-0.0,"NaN"],"t":"ä\\"","n":null}',
    );
  });
});

describe('trial of all events', () => {
  it('the worst outcome counts, with its smallest event', () => {
    const writer = order({ name: 'a', type: 'long' }, { name: 'b', type: 'bytes' });
    const text = order({ name: 'a', type: 'double' }, { name: 'b', type: 'string' });
    const fails = tryAll(text, writer, { limit: 100 });
    expect(fails.outcome).toBe('FAIL');
    // The shortest sequence that is not UTF-8 has two bytes.
    expect(fails.worst?.witness.bytes.length).toBe(4);
    const rounds = tryAll(order({ name: 'a', type: 'double' }), writer, { limit: 100 });
    expect(rounds.outcome).toBe('LOSSY');
    expect(tryAll(order({ name: 'b', type: 'bytes' }), writer, { limit: 100 }).outcome).toBe('OK');
    expect(fails.trials).toBe(rounds.trials);
  });

  it('different formats and JSON Schemas have no events to try', () => {
    const json = parseSchema('JSON', '{"type":"object"}');
    for (const [reader, writer] of [
      [order(), proto('string id = 1;')],
      [json, json],
    ] as const)
      expect(tryAll(reader, writer, { limit: 10 })).toEqual({ outcome: 'OK', trials: 0 });
  });

  it('a message that the reader lacks fails each of its events', () => {
    const writer = parseSchema('PROTOBUF', 'syntax = "proto3"; message A { string a = 1; } message B {}');
    const reader = parseSchema('PROTOBUF', 'syntax = "proto3"; message A { string a = 1; }');
    const outcomes = new Map<string, Set<string>>();
    for (const { outcome, witness } of trialsOf(reader, writer, { limit: 100 })) {
      const key = witness.path.join();
      outcomes.set(key, (outcomes.get(key) ?? new Set()).add(outcome));
    }
    expect(outcomes).toEqual(
      new Map([
        ['0', new Set(['OK'])],
        ['1', new Set(['FAIL'])],
      ]),
    );
  });
});

describe('counterexample', () => {
  const writer = order(
    { name: 'id', type: 'string' },
    { name: 'e', type: { type: 'enum', name: 'E', symbols: ['A', 'B'] } },
  );

  it('a counterexample has bytes that the decoder refuses at the named place', () => {
    const reader = order(
      { name: 'id', type: 'string' },
      { name: 'e', type: { type: 'enum', name: 'E', symbols: ['A'] } },
    );
    const [finding] = checkPair(reader, writer);
    expect(finding?.rule).toBe('AVRO_ENUM_SYMBOL_MISSING');
    const shown = finding && counterexampleOf(finding, reader, writer, UNLIMITED_MS);
    expect(shown).toMatchObject({
      outcome: 'FAIL',
      json: '{"id":"","e":"B"}',
      hex: '0002',
      bytes: 2,
      at: 1,
      alone: false,
    });
    const bytes = Buffer.from(shown?.hex ?? '', 'hex');
    expect(() => readerUnjudged(reader, writer, [])(bytes, 0, bytes.length)).toThrow(shown?.got);
  });

  it('a counterexample of a loss shows the lost value and the promised one', () => {
    const reader = order(
      { name: 'id', type: 'string' },
      { name: 'e', type: { type: 'enum', name: 'E', symbols: ['A'], default: 'A' } },
    );
    const [finding] = checkPair(reader, writer);
    expect(finding && counterexampleOf(finding, reader, writer, UNLIMITED_MS)).toMatchObject({
      outcome: 'LOSSY',
      json: '{"id":"","e":"B"}',
      at: undefined,
      got: '{"id":"","e":"A"}',
      promised: '{"id":"","e":"A"}',
    });
  });

  it('a counterexample shows its own finding if another finding breaks each event first', () => {
    const reader = order(
      { name: 'region', type: 'string' },
      { name: 'e', type: { type: 'enum', name: 'E', symbols: ['A'] } },
    );
    const findings = checkPair(reader, writer).filter(({ severity }) => severity === 'fail');
    const shown = findings.map((finding) => [
      finding.path,
      counterexampleOf(finding, reader, writer, UNLIMITED_MS),
    ]);
    expect(shown).toEqual([
      ['Order.region', expect.objectContaining({ alone: false, got: expect.stringContaining('region') })],
      ['Order.e', expect.objectContaining({ alone: true, got: expect.stringMatching(/symbol B/) })],
    ]);
  });

  it('a counterexample is truncated if the event is long', () => {
    const wide = order(...Array.from({ length: 800 }, (_, i) => ({ name: `field_${i}`, type: 'int' })), {
      name: 'n',
      type: 'int',
    });
    const reader = order({ name: 'n', type: 'string' });
    const [finding] = checkPair(reader, wide).filter(({ severity }) => severity === 'fail');
    const shown = finding && counterexampleOf(finding, reader, wide, UNLIMITED_MS);
    expect(shown?.bytes).toBe(801);
    expect(shown?.hex).toBe(`${'00'.repeat(512)}…`);
    expect(shown?.json.length).toBe(2_001);
    expect(shown?.at).toBe(800);
  });

  it('a note has no counterexample', () => {
    const reader = order({ name: 'id', type: 'string' });
    const notes = checkPair(reader, writer);
    expect(notes.map(({ severity }) => severity)).toEqual(['note']);
    for (const note of notes) expect(counterexampleOf(note, reader, writer)).toBeUndefined();
  });
});

describe('explanation', () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });

  const only = (list: readonly ExplainedFinding[]): ExplainedFinding => {
    expect(list.length).toBe(1);
    return list[0] as ExplainedFinding;
  };

  it('an explanation shows both texts in the order of the direction', () => {
    const before = parseSchema(
      'AVRO',
      '{"type": "record", "name": "Order", "fields": [\n  {"name": "qty", "type": "int"}\n]}',
    );
    const after = parseSchema(
      'AVRO',
      '{"type": "record", "name": "Order", "fields": [\n\n    {"name": "qty",\n     "type": {"type": "array",\n "items": "int"}}\n]}',
    );
    const [backward, forward] = compareWith(after, 'FULL', [{ version: 4, schema: before }]);
    const one = only(explain(backward!, after, before));
    expect(one.explanation.writer).toMatchObject({ source: 'version 4', line: 2 });
    expect(one.explanation.reader).toMatchObject({ source: 'proposed' });
    expect(one.explanation.reader?.text).toContain('{"type": "array", "items": "int"}');
    const other = only(explain(forward!, after, before, { proposed: 'order.avsc', other: 'main' }));
    expect(other.explanation.reader?.source).toBe('main');
    expect(other.explanation.writer?.source).toBe('order.avsc');
    expect(other.explanation.counterexample?.outcome).toBe('FAIL');
  });

  it('an explanation shows its event on a machine that stalls between any two steps', () => {
    const before = order({ name: 'qty', type: 'int' });
    const after = order({ name: 'qty', type: 'string' });
    let now = 0;
    vi.spyOn(performance, 'now').mockImplementation(() => (now += 3_600_000));
    const { explanation } = only(
      explain({ version: 1, direction: 'BACKWARD', findings: checkPair(after, before) }, after, before),
    );
    expect(explanation.counterexample?.outcome).toBe('FAIL');
  });

  it('an explanation follows references and truncates long texts', () => {
    const withItem = (size: number, doc: string): Schema => {
      const text = JSON.stringify({ type: 'fixed', name: 'shop.Item', size, doc });
      const reference = { name: 'shop.Item', subject: 'item', version: 1, format: 'AVRO', text } as const;
      return parseSchema(
        'AVRO',
        '{"type":"record","name":"Order","fields":[{"name":"item","type":"shop.Item"}]}',
        { references: [{ ...reference, references: [] }] },
      );
    };
    const before = withItem(4, 'x'.repeat(300));
    const after = withItem(8, '');
    const { explanation } = only(
      explain({ version: 1, direction: 'BACKWARD', findings: checkPair(after, before) }, after, before),
    );
    expect(explanation.reader).toEqual({
      source: 'reference shop.Item',
      line: 1,
      column: 1,
      text: '{"type":"fixed","name":"shop.Item","size":8,"doc":""}',
    });
    expect(explanation.writer?.source).toBe('reference shop.Item');
    expect(explanation.writer?.text).toMatch(/^\{"type":"fixed".*x…$/);
    expect(explanation.writer?.text.length).toBe(101);
    expect(explanation.counterexample?.hex).toBe('00000000');
  });

  it('a reused number is explained by the new meaning of its old events', () => {
    const ever = [proto('  string id = 1;\n  string phone = 2;'), proto('  string id = 1;')];
    const after = proto('  string id = 1;\n  string mail = 2;');
    const versions = ever.map((schema, i) => ({ version: i + 1, schema }));
    const [comparison] = compareHistory(after, versions);
    const all = explain(comparison!, after, ever[1], {}, { ever });
    const one = all.find(({ finding }) => finding.rule === 'PROTO_NUMBER_REUSED');
    expect(one?.explanation).toMatchObject({
      reader: { source: 'proposed', line: 5, column: 3, text: 'string mail = 2;' },
      writer: { line: 5, column: 3, text: 'string phone = 2;' },
      counterexample: { outcome: 'OK', json: '{"phone":"a"}', hex: '120161', got: '{"id":"","mail":"a"}' },
    });
  });

  it('an explanation offers a fix', () => {
    const before = order({ name: 'id', type: 'string' });
    const after = order({ name: 'id', type: 'string' }, { name: 'region', type: 'string' });
    const one = only(
      explain({ version: 1, direction: 'BACKWARD', findings: checkPair(after, before) }, after, before),
    );
    expect(one.fix?.edits.length).toBeGreaterThan(0);
  });
});
