/** Decimals of every format on both sets of kernels, against the oracle of `engine verify` and
 *  against fractions of big integers: values, invalid records, and conditions. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { InputDefinition } from '../../src/engine/source/input/definition.ts';
import { RecordReader } from '../../src/engine/verify/records.ts';
import { runs } from '../tier.ts';
import { CONFLUENT, GOOGLE, proto, twos, valuesIn } from '../unit/engine/input/decimals-kit.ts';
import { avro, MemoryRegistry, openedInput, recordsOf, SIDES } from '../unit/engine/input/input-kit.ts';

/** A number: `whole` / 10^`places`. */
interface Numeric {
  readonly whole: bigint;
  readonly places: number;
}

const I64_MAX = 2n ** 63n - 1n;
const wholes = fc.oneof(
  fc.bigInt({ min: -1000n, max: 1000n }),
  fc.bigInt({ min: -(10n ** 24n), max: 10n ** 24n }),
  fc.constantFrom(I64_MAX, I64_MAX + 1n, -I64_MAX - 1n, -I64_MAX - 2n, I64_MAX * 100n, 10n ** 15n),
  fc.bigInt({ min: -(10n ** 6n), max: 10n ** 6n }).map((one) => one * 1000n),
);

const digitsOf = ({ whole, places }: Numeric): string => {
  const digits = String(whole < 0n ? -whole : whole).padStart(places + 1, '0');
  const point = digits.length - places;
  return `${whole < 0n ? '-' : ''}${digits.slice(0, point)}${places === 0 ? '' : `.${digits.slice(point)}`}`;
};
/** Texts of one number. */
const textOf = (one: Numeric, form: number): string => {
  const plain = digitsOf(one);
  if (form === 1) return `${digitsOf({ whole: one.whole, places: 0 })}e-${one.places}`;
  if (form === 2) return `${plain}${one.places === 0 ? '.' : ''}00`;
  return form === 3 ? `${plain}E+0` : plain;
};

/** Form of numbers in a format. */
interface Carrier {
  readonly format: 'avro' | 'protobuf' | 'json';
  /** Schema with the key k and the field v. @param places of a logical type */
  readonly schema?: (places: number) => string;
  /** Value of the field, or the JSON text of it. */
  readonly value: (one: Numeric, form: number) => unknown;
  /** Values that are no number. */
  readonly wrong: readonly unknown[];
  /** True: a condition must declare the field as a decimal. */
  readonly isDeclared: boolean;
  /** True: the places of a number are those of the type. */
  readonly hasPlaces: boolean;
}

const avroOf = (type: unknown): string =>
  avro({ name: 'k', type: 'long' }, { name: 'v', type: ['null', type] });
const WORDS = [
  '',
  'x',
  '-',
  '1.2.3',
  '1,5',
  ' 1',
  '1e',
  '1e99999',
  '1e-1001',
  '\u0661',
  'NaN',
  '+',
  '1'.repeat(1001),
];
const bytesCarrier = (size: number | undefined): Carrier => ({
  ...{ format: 'avro', isDeclared: false, hasPlaces: true },
  schema: (places) => {
    const more = { logicalType: 'decimal', precision: 28, scale: places };
    return avroOf(
      size === undefined ? { type: 'bytes', ...more } : { type: 'fixed', name: 'F', size, ...more },
    );
  },
  value: ({ whole }, form) => twos(whole, size ?? (form === 0 ? undefined : 12 + form)),
  wrong: size === undefined ? [Buffer.alloc(0), Buffer.alloc(700, 0x55), Buffer.alloc(513, 0x81)] : [],
});
const messages = (type: string): ((places: number) => string) => {
  const head = type.startsWith('google') ? GOOGLE : type.startsWith('confluent') ? CONFLUENT : '';
  return () => proto(head, `message M { int64 k = 1; ${type} v = 2; }`);
};
const text = { isDeclared: true, hasPlaces: false, value: textOf, wrong: WORDS } as const;
const CARRIERS: Readonly<Record<string, Carrier>> = {
  'Avro bytes': bytesCarrier(undefined),
  'Avro fixed of 12 bytes': bytesCarrier(12),
  'Avro fixed of 20 bytes': bytesCarrier(20),
  'Avro fixed of 40 bytes': bytesCarrier(40),
  'Avro strings': { ...text, format: 'avro', schema: () => avroOf('string') },
  'Protobuf strings': { ...text, format: 'protobuf', schema: messages('optional string') },
  'google.type.Decimal': {
    ...{ format: 'protobuf', schema: messages('google.type.Decimal'), isDeclared: false, hasPlaces: false },
    value: (one, form) => ({ value: textOf(one, form) }),
    wrong: WORDS.slice(1).map((value) => ({ value })),
  },
  'confluent.type.Decimal': {
    ...{
      format: 'protobuf',
      schema: messages('confluent.type.Decimal'),
      isDeclared: false,
      hasPlaces: false,
    },
    value: ({ whole, places }, form) => ({
      value: twos(whole, form === 0 ? undefined : 20),
      precision: 9,
      scale: places,
    }),
    wrong: [
      { value: Buffer.alloc(0), precision: 1, scale: 0 },
      { value: twos(1n), precision: 1, scale: 5000 },
    ],
  },
  'JSON numbers': {
    ...{ format: 'json', isDeclared: true, hasPlaces: false },
    value: (one, form) =>
      textOf(one, form)
        .replace(/\.(?=[eE]|$)/, '')
        .replace('.00', (part, at, all) => (/\.\d/.test(all.slice(at)) ? part : '')),
    wrong: ['true', '[]', '{}', '1e99999', `${'1'.repeat(1001)}`],
  },
  'JSON strings': {
    ...{ format: 'json', isDeclared: true, hasPlaces: false },
    value: (one, form) => JSON.stringify(textOf(one, form)),
    wrong: ['true', '[1]', '{"a":1}', ...WORDS.map((word) => JSON.stringify(word))],
  },
};

type Drawn =
  | { readonly kind: 'number'; readonly one: Numeric; readonly form: number }
  | { readonly kind: 'null' }
  | { readonly kind: 'wrong'; readonly at: number };
const drawn = (places: fc.Arbitrary<number>): fc.Arbitrary<Drawn> =>
  fc.oneof(
    {
      weight: 8,
      arbitrary: fc.record({
        kind: fc.constant('number' as const),
        one: fc.record({ whole: wholes, places }),
        form: fc.nat(3),
      }),
    },
    { weight: 1, arbitrary: fc.constant({ kind: 'null' as const }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('wrong' as const), at: fc.nat(50) }) },
  );

/** `one` in units of 10^-scale as 64 bits; undefined: it is not such a number. */
function unscaled({ whole, places }: Numeric, scale: number): bigint | undefined {
  const [top, bottom] = [whole * 10n ** BigInt(scale), 10n ** BigInt(places)];
  return top % bottom === 0n && BigInt.asIntN(64, top / bottom) === top / bottom ? top / bottom : undefined;
}

function framesOf(carrier: Carrier, registry: MemoryRegistry, places: number, values: readonly Drawn[]) {
  const { format, schema, wrong } = carrier;
  const id = schema === undefined ? 0 : registry.add(format === 'avro' ? 'AVRO' : 'PROTOBUF', schema(places));
  return values.map((value) => {
    const isNone = value.kind === 'null' || (value.kind === 'wrong' && wrong.length === 0);
    const v = isNone
      ? undefined
      : value.kind === 'number'
        ? carrier.value(value.one, value.form)
        : wrong[(value as { at: number }).at % wrong.length];
    if (format === 'json') return Buffer.from(`{"k":1${v === undefined ? '' : `,"v":${v}`}}`);
    return registry.frame(id, { k: 1n, v: format === 'avro' ? (v ?? null) : v });
  });
}

const record = (value: Buffer) => ({
  ...{ partition: 0, offset: 0n, timestampMs: 5000n, key: null },
  value,
});

const cases = Object.entries(CARRIERS).map(([name, carrier]) => [name, carrier] as const);

describe.each(cases)('decimals in %s', (_name, carrier) => {
  const { format } = carrier;
  const placesOf = fc.integer({ min: 0, max: 6 });
  const drawnValues = placesOf.chain((places) =>
    fc.record({
      places: fc.constant(places),
      values: fc.array(drawn(carrier.hasPlaces ? fc.constant(places) : placesOf), {
        minLength: 1,
        maxLength: 20,
      }),
    }),
  );
  const oracleOf = (job: InputDefinition, registry: MemoryRegistry): RecordReader =>
    new RecordReader(job, async (id) => registry.schemas[id - 1], undefined);

  it('values are exact, and other numbers and words make their record invalid', async () => {
    await fc.assert(
      fc.asyncProperty(drawnValues, fc.integer({ min: 0, max: 18 }), async ({ places, values }, scale) => {
        const registry = new MemoryRegistry();
        const frames = framesOf(carrier, registry, places, values);
        const aggregate = `sum(v:decimal${scale})`;
        const job: InputDefinition = { format, key: 'k:i64', time: '@timestamp', aggregate };
        const expected = values.map((value) => {
          if (value.kind === 'number') return unscaled(value.one, scale) ?? 'BAD_VALUE';
          return value.kind === 'null' || carrier.wrong.length === 0 ? null : 'BAD_VALUE';
        });
        const oracle = oracleOf(job, registry);
        const verified = await Promise.all(
          frames.map((frame) => oracle.events(record(frame)).then((events) => events?.[0])),
        );
        expect(verified.map((event) => (event === undefined ? 'BAD_VALUE' : event.cells[0]))).toEqual(
          expected,
        );
        for (const side of SIDES) {
          const { input } = openedInput({ format }, { side, registry });
          input.resume(job);
          expect(await valuesIn(input, recordsOf(frames)), side).toEqual(expected);
        }
      }),
      { numRuns: runs(150) },
    );
  });

  it('conditions hold exactly for the numbers of which they are true', async () => {
    const conditions = fc.record({
      sign: fc.constantFrom('=', '!=', '<', '<=', '>', '>='),
      whole: wholes,
      places: placesOf,
    });
    await fc.assert(
      fc.asyncProperty(drawnValues, conditions, async ({ places, values }, { sign, ...drawnLimit }) => {
        const registry = new MemoryRegistry();
        const frames = framesOf(carrier, registry, places, values);
        // Half of the conditions compare with one of the values.
        const first = values.find((value) => value.kind === 'number');
        const limit = first?.kind === 'number' && first.form < 2 ? first.one : drawnLimit;
        const where = `v${carrier.isDeclared ? ':decimal' : ''} ${sign} ${digitsOf(limit)}`;
        const job: InputDefinition = { format, key: 'k:i64', time: '@timestamp', where };
        const expected = values.map((value) => {
          if (value.kind !== 'number') return false;
          const { one } = value;
          const [a, b] = [one.whole * 10n ** BigInt(limit.places), limit.whole * 10n ** BigInt(one.places)];
          const order = { '=': a === b, '!=': a !== b, '<': a < b, '<=': a <= b, '>': a > b, '>=': a >= b };
          return order[sign];
        });
        const oracle = oracleOf(job, registry);
        const verified = await Promise.all(
          frames.map((frame) => oracle.events(record(frame)).then((events) => events?.[0])),
        );
        expect(verified.map((event) => event?.isFiltered === false)).toEqual(expected);
        for (const side of SIDES) {
          const { input } = openedInput({ format }, { side, registry });
          input.resume(job);
          const found = await valuesIn(input, recordsOf(frames));
          expect(
            found.map((one) => one !== 'FILTERED'),
            side,
          ).toEqual(expected);
        }
      }),
      { numRuns: runs(150) },
    );
  });
});
