/** arrow-avro (Rust) as a contestant: a program that reads the frames of a case from a file. */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { checkValues, type SerdeCase, type Wanted } from './case.ts';

const run = promisify(execFile);
const OUTPUT_BYTES_MAX = 64 << 20;

/** Nanoseconds of CPU for one record. */
export type Measure = (timeMs: number) => Promise<number>;

type Mode = 'rows' | 'decode' | 'encode';

/** Contestants of arrow-avro for an Avro case, each already compared with the exact decoder.
 *  @param dir folder for the files of the case; the caller removes it
 *  @throws bad_value if the program reads other values */
export async function arrowSides(
  one: SerdeCase,
  program: string,
  dir: string,
): Promise<Readonly<Record<string, Measure>>> {
  const file = (name: string): string => join(dir, `${one.shape.name}-${name}`);
  writeFileSync(file('writer'), one.texts.writer);
  writeFileSync(file('reader'), one.texts.reader);
  writeFileSync(file('frames'), Buffer.concat(one.frames));
  const call = async (mode: Mode, wanted: Wanted, fields: string, timeMs: number): Promise<string> => {
    const schemas = [file('writer'), wanted === 'reader' ? file('reader') : '-'];
    const words = [mode, String(one.id), ...schemas, fields, file('frames'), String(timeMs)];
    return (await run(program, words, { maxBuffer: OUTPUT_BYTES_MAX })).stdout;
  };
  const timed =
    (mode: Mode, wanted: Wanted, fields = '-'): Measure =>
    async (timeMs) =>
      Number(await call(mode, wanted, fields, timeMs));
  const names = (JSON.parse(one.texts.writer) as { fields: { name: string }[] }).fields.map(
    ({ name }) => name,
  );
  const two = one.shape.twoFields.map((at) => names[at] as string);
  const checks = [
    { name: 'arrow-avro, decode', wanted: 'writer', fields: '-', kept: undefined },
    { name: 'arrow-avro, decode with a reader schema', wanted: 'reader', fields: '-', kept: undefined },
    {
      name: 'arrow-avro, decode two fields',
      wanted: 'writer',
      fields: one.shape.twoFields.join(),
      kept: two,
    },
  ] as const;
  for (const { name, wanted, fields, kept } of checks) {
    const lines = (await call('rows', wanted, fields, 0)).trimEnd().split('\n');
    const rows = lines.map((line) => JSON.parse(line) as unknown);
    checkValues(name, one, wanted, rows, kept);
  }
  const decoding = checks.map(({ name, wanted, fields }) => [name, timed('decode', wanted, fields)] as const);
  return { ...Object.fromEntries(decoding), 'arrow-avro, encode': timed('encode', 'writer') };
}
