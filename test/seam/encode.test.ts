/** Calls the encode functions of the addon with arguments that a caller can get wrong. */
import { expect, it } from 'vitest';
import { ColumnBatch } from '../../src/core/columns/batch.ts';
import { EncodedFrames } from '../../src/core/columns/frames.ts';
import { COLUMN_STATE } from '../../src/core/layout/layouts.gen.ts';
import { compileEncode } from '../../src/formats/avro/columns/encode.ts';
import { parse } from '../differential/avro-columns-kit.ts';
import { type RawFunction, raw, thrownBy } from './kit.ts';

const WRONG_TYPE = { name: 'TypeError', code: 'ERR_INVALID_ARG_TYPE' };
const { program } = compileEncode(parse({ type: 'array', items: 'string' }).tree);
const call = (name: string, ...args: readonly unknown[]): unknown => (raw[name] as RawFunction)(...args);
const opened = (): unknown =>
  call('codecOpenAvroEncoder', program.code, program.tables, program.schema.table);

/** New valid arguments of codecEncode: one row with an empty list. */
function valid(handle: unknown): unknown[] {
  const batch = ColumnBatch.create(program.schema, 1);
  batch.state[COLUMN_STATE.ROW_COUNT] = 1;
  batch.state[COLUMN_STATE.HEAD] = 1;
  const into = EncodedFrames.create(1, undefined, 1024);
  const { buffer, offsets, status, errorColumn, state } = into;
  const columns = [batch.buffer, batch.state, 0, 1];
  return [handle, ...columns, new Uint8Array(5), false, buffer, offsets, status, errorColumn, state];
}

it('codecEncode accepts valid arguments, and refuses a foreign value in every place', () => {
  const handle = opened();
  expect(call('codecEncode', ...valid(handle))).toBe(1);
  expect(thrownBy(() => call('codecEncode', ...valid(handle).slice(1)))).toEqual(WRONG_TYPE);
  for (let place = 0; place < valid(handle).length; place++)
    for (const foreign of [undefined, null, 'text', {}, new Float64Array(4), 7n]) {
      const args = valid(handle);
      // Any view may be a batch or a buffer of frames; one that is too small is another error.
      if ((place === 1 || place === 7) && ArrayBuffer.isView(foreign)) continue;
      args[place] = foreign;
      expect(
        thrownBy(() => call('codecEncode', ...args)),
        `${place}`,
      ).toEqual(WRONG_TYPE);
    }
});

it('codecEncode refuses columns and frames whose sizes do not belong together', () => {
  const handle = opened();
  const codeWith = (place: number, value: unknown): string | undefined => {
    const args = valid(handle);
    args[place] = value;
    return thrownBy(() => call('codecEncode', ...args))?.code;
  };
  const state = valid(handle)[2] as Uint32Array;
  const changed = (word: number, value: number): Uint32Array => {
    const other = state.slice();
    other[word] = value;
    return other;
  };
  expect(codeWith(1, new ArrayBuffer(8))).toBe('layout_mismatch');
  expect(codeWith(2, state.slice(1))).toBe('layout_mismatch');
  for (let word = COLUMN_STATE.HEAD; word < state.length; word++)
    expect([undefined, 'layout_mismatch'], `${word}`).toContain(codeWith(2, changed(word, 0xffff_fff8)));
  expect(codeWith(2, changed(COLUMN_STATE.HEAD, 0xffff_fff8))).toBe('layout_mismatch');
  expect(codeWith(4, 2)).toBe('out_of_range');
  expect(codeWith(5, new Uint8Array(2000))).toBe('out_of_range');
  expect(codeWith(8, new Uint32Array(3))).toBe('layout_mismatch');
  expect(codeWith(8, Uint32Array.of(5000, 0))).toBe('layout_mismatch');
  expect(codeWith(11, Uint32Array.of(1, 0))).toBe('out_of_range');
});

it('a closed encoder, and a handle of another kind, encode nothing', () => {
  const handle = opened();
  call('codecCloseEncoder', handle);
  call('codecCloseEncoder', handle);
  expect(thrownBy(() => call('codecEncode', ...valid(handle)))?.code).toBe('closed');
  const decoder = call('codecOpenProtobuf', Int32Array.of(1, 0, 0, -1, 0, 0, 0), new Int32Array(0));
  expect(thrownBy(() => call('codecEncode', ...valid(decoder)))).toEqual(WRONG_TYPE);
  expect(thrownBy(() => call('codecOpenAvroEncoder', program.code, program.tables))).toEqual(WRONG_TYPE);
});
