/** Answers of Apache Avro on the JVM, avsc and Millrace's decoder for an event, in one form. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { expect } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { avroDecoder } from '../../src/formats/avro/codec/decoder.ts';
import type { AvroSchema } from '../../src/formats/schema.ts';
import { parseSchema } from '../../src/formats/schema.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { avscOf } from '../property/registry-avro-avsc-kit.ts';

export interface Case {
  readonly writer: string;
  readonly reader: string;
  readonly payloads: readonly Buffer[];
}

/** Returns the JVM's answer for each payload of each case. */
export async function javaAnswers(cases: readonly Case[]): Promise<string[][]> {
  const tool = (await import(join(packageRoot(), 'tools', 'oracles.mjs'))) as {
    oracleCommand: (name: string) => { readonly command: string; readonly args: readonly string[] };
  };
  const { command, args } = tool.oracleCommand('AvroOracle');
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  let out = '';
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    output += text;
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
  expect(await ended, output).toBe(0);
  const lines = out.split('\n').slice(0, -1);
  expect(lines.length).toBe(cases.length);
  return lines.map((line) => line.split(' '));
}

const hex = (text: string): string => Buffer.from(text, 'utf8').toString('hex');
const double = Buffer.alloc(8);

/** Prints a value in the form of the JVM's tool. */
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

export const parse = (text: string): AvroSchema => parseSchema('AVRO', text) as AvroSchema;

/** Returns Millrace's answer for each payload. */
export function testedAnswers({ writer, reader, payloads }: Case): string[] {
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

/** Returns avsc's answer for each payload; `?` if it refuses the schemas. */
export function avscAnswers({ writer, reader, payloads }: Case): string[] {
  const type = avscOf(reader);
  const written = avscOf(writer);
  let resolver: ReturnType<NonNullable<typeof type>['createResolver']> | undefined;
  try {
    if (type !== undefined && written !== undefined) resolver = type.createResolver(written);
  } catch {
    resolver = undefined;
  }
  return payloads.map((bytes) => {
    if (resolver === undefined) return '?';
    try {
      return print(type?.fromBuffer(bytes, resolver));
    } catch {
      return '!';
    }
  });
}
