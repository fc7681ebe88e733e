/** Tests the property tests: plants each fault into the compiled rules, one at a time, and expects
 *  the random pairs to detect it. Without a fault the pairs must detect nothing. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { projectRoot } from '../repository/root.ts';

const run = promisify(execFile);
const PAIRS_MAX = 3_000;
const HUNT_MS_MAX = 600_000;

interface Fault {
  readonly what: string;
  readonly format: 'AVRO' | 'PROTOBUF';
  readonly module: string;
  readonly from: string;
  readonly to: string;
}

const avro = (module: string, what: string, from: string, to: string): Fault => ({
  what,
  format: 'AVRO',
  module: `compatibility/${module}.js`,
  from,
  to,
});
const proto = (module: string, what: string, from: string, to: string): Fault => ({
  ...avro(module, what, from, to),
  format: 'PROTOBUF',
});

const FAULTS: readonly Fault[] = [
  avro(
    'avro/union',
    'an int read as a float counts as exact',
    "float: 'rounds', double: 'exact'",
    "float: 'exact', double: 'exact'",
  ),
  avro('avro/union', 'a long read as a double counts as exact', "double: 'rounds'", "double: 'exact'"),
  avro('avro/union', 'bytes count as text', "'not always text' }", "'exact' }"),
  avro('avro/union', 'a branch is not found by its alias', 'this.alias.get(name) ??', ''),
  avro(
    'avro/union',
    'a branch is promoted although the reader has the same type',
    'if (same !== undefined ||',
    'if (',
  ),
  avro(
    'avro/checker',
    'an enum without default accepts any symbol with loss',
    'reader.defaultSymbol === undefined',
    'false',
  ),
  avro(
    'avro/checker',
    'a symbol replaced by a default counts as exact',
    "'lossy', 'AVRO_ENUM_SYMBOL_DEFAULTED'",
    "'note', 'AVRO_ENUM_SYMBOL_DEFAULTED'",
  ),
  avro('avro/checker', 'a fixed may shrink', 'reader.size !== writer.size', 'reader.size > writer.size'),
  avro(
    'avro/checker',
    'scales of decimals are not compared',
    'r.precision === w.precision && (r.scale ?? 0) === (w.scale ?? 0)',
    'r.precision === w.precision',
  ),
  avro('avro/checker', 'names of types are not compared', "match === 'none'", "match === 'nothing'"),
  avro(
    'avro/checker',
    'items of arrays are not compared',
    "reader.kind === 'array' &&",
    "reader.kind === 'arrays' &&",
  ),
  avro(
    'avro/checker',
    'values that can never be written are compared',
    'if (!this.never.has(writer))',
    'if (true)',
  ),
  avro(
    'avro/checker',
    'a default that does not fit is accepted',
    'if (misfit !== undefined)',
    'if (misfit === null)',
  ),
  avro(
    'avro/checker',
    'a value that a rename loses counts as exact',
    'else if (lost !== undefined)',
    'else if (lost === null)',
  ),
  avro(
    'avro/fields',
    'two fields may read one written field',
    'if (other !== undefined)',
    'if (other === null)',
  ),
  avro(
    'avro/fields',
    'a field may match two written fields',
    'if (names !== undefined)',
    'if (names === null)',
  ),
  proto(
    'protobuf/values',
    'a uint32 fits an int32',
    "uint32: { family: 'plain integers', wire: 'varint', range: UINT32 }",
    "uint32: { family: 'plain integers', wire: 'varint', range: INT32 }",
  ),
  proto(
    'protobuf/values',
    'zigzag integers count as plain integers',
    "sint32: { family: 'zigzag integers'",
    "sint32: { family: 'plain integers'",
  ),
  proto('protobuf/values', 'bytes count as text', "writer.type === 'bytes' ?", "writer.type === 'bites' ?"),
  proto('protobuf/values', 'a closed enum keeps every number', 'missing.length === 0 ?', 'true ?'),
  proto(
    'protobuf/field',
    'a packed run is read by a single field',
    'writer.packed && !reader.repeated',
    'false',
  ),
  proto('protobuf/field', 'presence is not compared', 'reader.presence === writer.presence', 'true'),
  proto(
    'protobuf/field',
    'an optional field satisfies a required one',
    '!reader.required || writer.required',
    '!reader.required || writer.presence',
  ),
  proto(
    'protobuf/field',
    'groups and messages are treated alike',
    'reader.delimited === writer.delimited',
    'true',
  ),
  proto(
    'protobuf/field',
    'the last of several values counts as all of them',
    'if (!isMany(writer))',
    'if (true)',
  ),
  proto(
    'protobuf/checker',
    'a name may change its number',
    'other === undefined || this.isNever(field)',
    'true',
  ),
  proto(
    'protobuf/checker',
    'a number may get the name of another number',
    'match.name !== field.name && this.moved(pair, match, field)',
    'false',
  ),
  proto(
    'protobuf/checker',
    'several fields of a oneof may occur together',
    'if (other === undefined)',
    'if (true)',
  ),
  proto(
    'protobuf/checker',
    'a message may vanish',
    'if (match === undefined)\n                this.removed(message, route);',
    'if (match === undefined);',
  ),
];

async function hunted(format: string, fault: Fault | null): Promise<string> {
  const args = [
    join(projectRoot, 'test/property/faults/hunt.mjs'),
    join(projectRoot, 'dist'),
    format,
    String(fault === null ? 300 : PAIRS_MAX),
    JSON.stringify(fault),
  ];
  return (await run(process.execPath, args, { timeout: HUNT_MS_MAX })).stdout;
}

describe('planted faults', () => {
  it.each(['AVRO', 'PROTOBUF'])(
    'random pairs find no fault in the unchanged rules of %s',
    async (format) => {
      expect(await hunted(format, null)).toBe('');
    },
    HUNT_MS_MAX,
  );

  it.concurrent.each(FAULTS)(
    'random pairs detect that $format $what',
    async (fault) => {
      expect(await hunted(fault.format, fault)).toMatch(/^[0-9]+$/);
    },
    HUNT_MS_MAX,
  );
});
