/** The decoder against Apache Avro on the JVM: the same value, or an error on both sides. Where the two, or avsc, differ,
 *  test/vectors/registry-avro-resolution.json records what each says, and why. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '../../src/bin/shell/package.ts';
import { findMillraceError } from '../../src/core/errors.ts';
import { parseSchema } from '../../src/registry/index.ts';
import type { AvroSchema } from '../../src/registry/schemas/schema.ts';
import { avroDecoder } from '../../src/registry/serde/avro-decoder.ts';
import { encodeAvro } from '../../src/registry/serde/avro-encoder.ts';
import { datumOf, spending } from '../property/registry-avro-decoder-kit.ts';
import { readerSchema, writerSchema } from '../property/registry-avro-pairs-kit.ts';

interface Case {
  readonly writer: string;
  readonly reader: string;
  readonly payloads: readonly Buffer[];
}

/** What the JVM says of each payload of each case. */
async function javaSays(cases: readonly Case[]): Promise<string[][]> {
  const tool = (await import(join(packageRoot(), 'tools', 'oracles.mjs'))) as {
    oracleCommand: (name: string) => { readonly command: string; readonly args: readonly string[] };
  };
  const { command, args } = tool.oracleCommand('AvroOracle');
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  let out = '';
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  const base64 = (bytes: string | Buffer): string => Buffer.from(bytes as string).toString('base64');
  child.stdin.end(
    cases
      .map(({ writer, reader, payloads }) => [writer, reader, ...payloads].map(base64).join(' '))
      .map((line) => `${line}\n`)
      .join(''),
  );
  expect(await ended, said).toBe(0);
  const lines = out.split('\n').slice(0, -1);
  expect(lines.length).toBe(cases.length);
  return lines.map((line) => line.split(' '));
}

const hex = (text: string): string => Buffer.from(text, 'utf8').toString('hex');
const double = Buffer.alloc(8);

/** A value in the form in which the JVM's side prints its own. */
function print(value: unknown): string {
  if (value === null || typeof value === 'boolean') return String(value);
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'string') return `s${hex(value)}`;
  if (typeof value === 'number') {
    double.writeDoubleBE(value);
    return Number.isNaN(value) ? '7ff8000000000000' : double.toString('hex');
  }
  if (Buffer.isBuffer(value)) return `b${value.toString('hex')}`;
  if (Array.isArray(value)) return `[${value.map((item) => `${print(item)},`).join('')}]`;
  const entries = new Map(Object.entries(value as object).map(([key, item]) => [hex(key), print(item)]));
  return `{${[...entries.keys()]
    .sort()
    .map((key) => `${key}:${entries.get(key)},`)
    .join('')}}`;
}

const parse = (text: string): AvroSchema => parseSchema('AVRO', text) as AvroSchema;

/** False for one that leaves out what it uses. */
function isSchema(text: string): boolean {
  try {
    parse(text);
    return true;
  } catch (thrown) {
    if (/is not defined before it/.test((thrown as Error).message)) return false;
    throw thrown;
  }
}

/** What we say of each payload. */
function weSay({ writer, reader, payloads }: Case): string[] {
  const decode = avroDecoder(parse(reader).tree, parse(writer).tree);
  return payloads.map((bytes) => {
    try {
      return print(decode(bytes, 0, bytes.length));
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (error === undefined || error.kind !== 'corrupt') throw thrown;
      return `!${error.code}`;
    }
  });
}

const PAIRS = 5_000;

describe('Apache Avro for the JVM', () => {
  it('reads what we read, and refuses what we refuse', async () => {
    const cases: Case[] = [];
    const numbers = fc.array(fc.nat(1_000_000), { minLength: 200, maxLength: 200 });
    for (const drawn of fc.sample(numbers, PAIRS * 2)) {
      const next = spending(drawn);
      const json = writerSchema(next);
      const reader = JSON.stringify(readerSchema(json, next));
      if (!isSchema(JSON.stringify(json)) || !isSchema(reader)) continue;
      const writer = parse(JSON.stringify(json));
      const payloads = Array.from({ length: 3 }, () => encodeAvro(writer.tree, datumOf(writer.tree, next)));
      cases.push({ writer: writer.text, reader, payloads });
      if (cases.length === PAIRS) break;
    }
    expect(cases.length).toBe(PAIRS);
    const java = await javaSays(cases);
    const differing: unknown[] = [];
    const seen = { values: 0, refused: 0, notText: 0 };
    cases.forEach((one, i) => {
      weSay(one).forEach((ours, k) => {
        const theirs = java[i]?.[k] as string;
        // Java makes a text of any bytes.
        if (ours === '!malformed_payload' && !theirs.startsWith('!')) {
          seen.notText++;
          return;
        }
        if (ours.startsWith('!')) seen.refused++;
        else seen.values++;
        const same = theirs.startsWith('!') ? ours.startsWith('!') : ours === theirs;
        if (!same) differing.push({ ...one, payloads: one.payloads[k]?.toString('hex'), ours, theirs });
      });
    });
    expect(differing.slice(0, 5)).toEqual([]);
    const all = PAIRS * 3;
    expect(seen.values).toBeGreaterThan(all * 0.5);
    expect(seen.refused).toBeGreaterThan(all * 0.05);
    expect(seen.notText).toBeLessThan(all * 0.02);
  });
});
