/** Texts of the input's flags, and which changes a run may resume with. */
import { describe, expect, it } from 'vitest';
import {
  checkDefinition,
  hasSignedKeys,
  type InputDefinition,
  inputChanges,
  keySpec,
  keyText,
  timeSpec,
} from '../../../../src/engine/source/input/definition.ts';
import { openedInput } from './input-kit.ts';

describe('texts of the input', () => {
  it('keys are fields with a range, or record keys with a form', () => {
    const texts = [
      'id',
      'customer.id',
      'customer.id:u64',
      'id:i64',
      '@key',
      '@key:long',
      '@key:int',
      '@key:text',
      '@key:string',
      'country:string,user.id',
      'id:uuid',
      'a:bytes,b:u64,c:i64',
    ];
    expect(texts.map((text) => keyText(keySpec(text)))).toEqual(texts);
    expect(timeSpec('a.b:us')).toEqual({ from: 'field', path: ['a', 'b'], unit: 'us' });
    expect(timeSpec('@timestamp')).toEqual({ from: 'record' });
  });

  it.each([
    [{ key: '' }, /-key= is not the path of a field/],
    [{ key: 'a..b' }, /not the path/],
    [{ key: 'a[0]' }, /\[\] behind the name of one list/],
    [{ key: 'a,,b' }, /not the path/],
    [{ key: 'a,@key' }, /not the path/],
    [{ key: 'a,b,a:string' }, /names a field twice/],
    [{ key: Array.from({ length: 17 }, (_, i) => `f${i}`).join() }, /names 17 fields.*at most 16/],
    [{ key: '@offset' }, /-key=@offset is not a key/],
    [{ key: '@key:u64' }, /is not a key/],
    [{ key: 'id:guid' }, /not the path/],
    [{ time: '@offset' }, /is not a time/],
    [{ time: 'at:min' }, /not the path/],
    [{ value: '@key' }, /-value=@key is not the path/],
    [{ where: 'a = ' }, /the filter is not valid at character 5/],
    [{ where: '@key = 1' }, /-where cannot read @key/],
    [{ where: 'a[0] = 1' }, /-where cannot read a\[0\]/],
    [{ format: 'binary256', value: 'v' }, /-value has no meaning for events of the fixed layout/],
  ] as const)('the definition %j is refused with what to give', (asked, message) => {
    const check = () => checkDefinition({ format: 'undecided', ...asked });
    expect(check).toThrow();
    try {
      check();
    } catch (error) {
      expect((error as { toLine(): string }).toLine()).toMatch(message);
    }
  });

  it('framed formats need a registry', () => {
    expect(() => openedInput({ format: 'avro' })).toThrow(/need the registry/);
    expect(() => openedInput({ format: 'protobuf' })).toThrow(/need the registry/);
  });

  it('keys have a sign unless their range says otherwise', () => {
    const signed = (format: InputDefinition['format'], key?: string) =>
      hasSignedKeys({ format, ...(key === undefined ? {} : { key }) });
    expect(signed('avro', 'id')).toBe(true);
    expect(signed('json', '@key:text')).toBe(true);
    expect(signed('protobuf', 'id:u64')).toBe(false);
    expect(signed('binary256')).toBe(false);
  });
});

describe('a definition of a checkpoint', () => {
  const changed = (saved: InputDefinition, asked: Partial<InputDefinition>) =>
    inputChanges(saved, { format: 'undecided', ...asked }).map(({ flag }) => flag);
  const inferred: InputDefinition = {
    ...{ format: 'avro', key: '@key:long', time: 'at', inferred: ['format', 'key', 'time'] },
  };
  const given: InputDefinition = { format: 'json', key: 'id:i64', time: 'at:ms', value: 'v', where: 'a = 1' };

  it('kinds of key fields may be left out or given, in their order', () => {
    const tuple: InputDefinition = { format: 'json', key: 'country:string,id', time: '@timestamp' };
    expect(changed(tuple, { format: 'json', key: 'country,id', time: '@timestamp' })).toEqual([]);
    expect(changed(tuple, { format: 'json', key: 'country,id:i64', time: '@timestamp' })).toEqual([]);
    expect(changed(tuple, { format: 'json', key: 'country:bytes,id', time: '@timestamp' })).toEqual(['key']);
    expect(changed(tuple, { format: 'json', key: 'id,country', time: '@timestamp' })).toEqual(['key']);
    expect(changed(tuple, { format: 'json', key: 'country', time: '@timestamp' })).toEqual(['key']);
  });

  it('inferred settings may be left out or given, and given ones must be given again', () => {
    expect(changed(inferred, {})).toEqual([]);
    expect(changed(inferred, { format: 'avro', key: '@key', time: 'at' })).toEqual([]);
    expect(changed(inferred, { key: '@key:text', time: 'sent', value: 'v' })).toEqual([
      'key',
      'time',
      'value',
    ]);
    expect(changed(given, { ...given, key: 'id' })).toEqual([]);
    expect(changed(given, {})).toEqual(['format', 'key', 'time', 'value', 'where']);
    expect(changed(given, { ...given, where: 'a = 2', format: 'avro' })).toEqual(['format', 'where']);
  });

  it('a definition that was never decided allows every setting', () => {
    expect(changed({ format: 'undecided' }, given)).toEqual([]);
  });
});
