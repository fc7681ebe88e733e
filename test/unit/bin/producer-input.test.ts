/** Input of `millrace producer`. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { openInput } from '../../../src/bin/producer/input.ts';
import type { ProducerContext } from '../../../src/bin/producer/settings.ts';
import { parseSchema } from '../../../src/formats/schema.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-producer-input-'));
afterAll(() => rmSync(folder, { recursive: true }));

const context = {
  settings: { lines: 'value', 'on-error': 'fail', 'line-bytes': 1024 },
  onClose: () => {},
  drain: new AbortController().signal,
} as unknown as ProducerContext;

it.each(['missing.jsonl', 'missing.avro'])(
  'a missing input file %s is refused before any connection is made',
  async (name) => {
    const path = join(folder, name);
    await expect(openInput(context, path)).rejects.toMatchObject({
      code: 'bad_file',
      message: `-in=${path} cannot be read (ENOENT)`,
    });
  },
);

it('a folder as input is refused when it is read', async () => {
  const input = await openInput(context, folder);
  await expect(input.groups(parseSchema('AVRO', '"int"'), undefined).next()).rejects.toMatchObject({
    code: 'bad_file',
    message: `-in=${folder} cannot be read (EISDIR)`,
  });
});
