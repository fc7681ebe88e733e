/** Avro object container files: what avsc wrote is read, in chunks of any size, and damaged files
 *  are refused. */
import { once } from 'node:events';
import avsc from 'avsc';
import { describe, expect, it } from 'vitest';
import { avroSequenceDecoder } from '../../../../src/formats/avro/codec/decoder.ts';
import { AvroContainer } from '../../../../src/formats/avro/container.ts';
import { type AvroSchema, parseSchema } from '../../../../src/formats/schema.ts';

const ROWS = 300;
const SCHEMA = {
  type: 'record',
  name: 'Row',
  fields: [
    { name: 'n', type: 'long' },
    { name: 'text', type: ['null', 'string'] },
  ],
};

async function written(codec: string): Promise<Buffer> {
  const type = avsc.Type.forSchema(SCHEMA as avsc.Schema);
  const encoder = new avsc.streams.BlockEncoder(type, { codec, blockSize: 400 });
  const parts: Buffer[] = [];
  encoder.on('data', (part: Buffer) => parts.push(part));
  for (let n = 0; n < ROWS; n++) encoder.write({ n, text: n % 3 === 0 ? null : `row ${n}` });
  encoder.end();
  await once(encoder, 'end');
  return Buffer.concat(parts);
}

async function* inChunks(bytes: Buffer, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function readAll(bytes: Buffer, chunk = 64): Promise<unknown[]> {
  const container = await AvroContainer.open(inChunks(bytes, chunk));
  const { tree } = parseSchema('AVRO', container.schema) as AvroSchema;
  const decode = avroSequenceDecoder(tree, tree);
  const values: unknown[] = [];
  for await (const block of container.blocks()) values.push(...decode(block.bytes, block.count));
  return values;
}

describe('Avro container files', () => {
  it.each([
    ['null', 1],
    ['null', 4096],
    ['deflate', 7],
    ['deflate', 65_536],
  ])('a file with codec %s is read in chunks of %i bytes', async (codec, chunk) => {
    const values = await readAll(await written(codec), chunk);
    expect(values).toEqual(
      Array.from({ length: ROWS }, (_, n) => ({ n: BigInt(n), text: n % 3 === 0 ? null : `row ${n}` })),
    );
  });

  it('a file that is cut anywhere is refused, or ends after a whole block', async () => {
    const whole = await written('null');
    const all = (await readAll(whole)).length;
    let refused = 0;
    for (let end = 0; end < whole.length; end += 13) {
      const got = await readAll(whole.subarray(0, end)).catch((thrown: unknown) => {
        expect(thrown).toMatchObject({ code: 'malformed_payload' });
        refused++;
        return [];
      });
      expect(got.length).toBeLessThan(all);
    }
    expect(refused).toBeGreaterThan(whole.length / 13 / 2);
  });

  it.each([
    ['another magic', (bytes: Buffer) => bytes.fill('X', 0, 1), 'does not begin with'],
    ['another sync marker', (bytes: Buffer) => bytes.fill(0xee, bytes.length - 16), 'sync marker'],
    [
      'another codec',
      (bytes: Buffer) => Buffer.from(bytes.toString('latin1').replace('deflate', 'deflatX'), 'latin1'),
      'has the codec "deflatX"',
    ],
    [
      'a block that is no deflate stream',
      (bytes: Buffer) => {
        const data = bytes.indexOf(bytes.subarray(bytes.length - 16)) + 16 + 4;
        return bytes.fill(0xff, data, data + 20);
      },
      'cannot be decompressed',
    ],
  ])('the container file is refused: %s', async (_name, damage, why) => {
    await expect(readAll(damage(await written('deflate')))).rejects.toThrow(why);
  });

  it('a length beyond the limit is refused before memory is allocated for it', async () => {
    const bytes = await written('null');
    const header = bytes.subarray(0, bytes.indexOf(bytes.subarray(bytes.length - 16)) + 16);
    const huge = Buffer.concat([header, Buffer.from([2, 0xfe, 0xff, 0xff, 0xff, 0xff, 0x0f])]);
    await expect(readAll(huge)).rejects.toThrow('the size of a block is');
  });
});
