/** Times of ISO 8601 in Flink SQL: the pattern accepts what the engine reads, and the expression
 *  has no form of its own. test/e2e/engine-flink.test.ts runs it in Flink. */
import { describe, expect, it } from 'vitest';
import { ISO_PATTERN, isoMillisSql } from '../../../../src/engine/flink/iso.ts';
import { isoMs } from '../../../../src/engine/source/input/iso.ts';

const isTime = (text: string): boolean => !Number.isNaN(isoMs(Buffer.from(text), 0, Buffer.byteLength(text)));
const PATTERN = new RegExp(ISO_PATTERN);

const DAYS = ['2026-01-31', '2024-02-29', '0001-01-01', '2026-1-31', '26-01-31', '20260131'];
const CLOCKS = ['12:00', '23:59:59', '00:00:00.5', '12:00:00,123456789', '12:00:00.', '12:00.5', '1:00'];
const WRONG_CLOCKS = ['24:00', '12:60', '12:00:60', `12:00:00.${'1'.repeat(19)}`, '12', ''];
const ZONES = ['Z', 'z', '+02:00', '-0530', '+23:59', '+24:00', '+02:60', '+02', '+2:00', '', 'ZZ', ' Z'];

describe('the pattern of ISO 8601 times in Flink SQL', () => {
  it('the pattern accepts exactly the forms that the engine reads', () => {
    const accepted = new Set<string>();
    for (const day of DAYS)
      for (const between of ['T', 't', ' ', '_', ''])
        for (const clock of [...CLOCKS, ...WRONG_CLOCKS])
          for (const zone of ZONES)
            for (const end of ['', '\n', 'Z', ' ']) {
              const text = `${day}${between}${clock}${zone}${end}`;
              expect(PATTERN.test(text), JSON.stringify(text)).toBe(isTime(text));
              if (PATTERN.test(text)) accepted.add(text);
            }
    // 3 days, 3 characters before the clock, 4 clocks, 5 zones.
    const ends = [...accepted].filter((text) => !/\s$/.test(text));
    expect(ends).toHaveLength(accepted.size);
    expect(accepted.size).toBe(3 * 3 * 4 * 5);
  });

  it('the pattern has no backslash and no quote, which SQL and Java read differently', () => {
    expect(ISO_PATTERN).not.toMatch(/[\\']/);
  });
});

describe('the milliseconds of ISO 8601 times in Flink SQL', () => {
  it('a text that is no time has no milliseconds, and a day that does not exist is null', () => {
    const sql = isoMillisSql('`at`');
    expect(sql).toContain(`CASE WHEN REGEXP(\`at\`, '${ISO_PATTERN}') THEN `);
    expect(sql).toMatch(/ END$/);
    expect(sql).toContain('TRY_CAST(SUBSTRING(`at`, 1, 10) AS DATE)');
    expect(sql).not.toMatch(/(?<!TRY_)CAST\((?!86400000)/);
  });

  it('an offset is subtracted with its sign, and a comma begins a fraction as a dot does', () => {
    const sql = isoMillisSql('`at`');
    expect(sql).toContain("CASE WHEN REGEXP(`at`, '-[0-9]{2}:?[0-9]{2}$') THEN 60000 ELSE -60000 END");
    expect(sql).toContain("SUBSTRING(REGEXP_EXTRACT(`at`, '[.,]([0-9]+)', 1) || '00', 1, 3)");
  });
});
