/** Request bodies that would be too expensive to parse are refused before the parser sees them. */
import { describe, expect, it } from 'vitest';
import type { HttpRequest } from '../../../src/io/http/port.ts';
import { readBody, readSchemaBody } from '../../../src/registry/api/bodies.ts';
import { bodyExcess } from '../../../src/registry/api/body-bound.ts';

const JSON_TYPE = 'application/vnd.schemaregistry.v1+json';
const request = (text: string, type = JSON_TYPE): HttpRequest =>
  ({
    body: Buffer.from(text),
    header: (name: string) => (name === 'content-type' ? [type] : []),
  }) as unknown as HttpRequest;
const excess = (text: string): string | undefined => bodyExcess(Buffer.from(text));

describe('request body limits', () => {
  it('a body may nest 200 brackets, and no more', () => {
    const nested = (depth: number): string => `${'[{"a":'.repeat(depth / 2)}1${'}]'.repeat(depth / 2)}`;
    expect(excess(nested(200))).toBeUndefined();
    expect(excess(nested(202))).toMatch(/deeper than 200 \(the limit body-nesting\)/);
    expect(excess('['.repeat(1_900_000))).toMatch(/deeper than 200/);
  });

  it('a body may have 150000 brackets, commas and colons, and no more', () => {
    const list = (items: number): string => `[${'0,'.repeat(items - 1)}0]`;
    expect(excess(list(150_000))).toBeUndefined();
    expect(excess(list(150_001))).toMatch(/more than 150000 .* \(the limit body-tokens\)/);
    expect(excess(`[${'[],'.repeat(80_000)}[]]`)).toMatch(/body-tokens/);
  });

  it.each([
    ['brackets in a string', JSON.stringify({ schema: '['.repeat(200_000) })],
    ['escaped quotes in a string', JSON.stringify({ schema: '"['.repeat(200_000) })],
    ['a backslash at the end of a string', `{"a":"\\\\","b":"${'['.repeat(1_000)}"}`],
    ['a string that is not closed', `"${'['.repeat(1_000)}`],
    ['brackets one after the other', '[]'.repeat(10_000)],
  ])('a body is not refused for %s', (_what, text) => {
    expect(excess(text)).toBeUndefined();
  });
});

describe('refusal of an excessive body', () => {
  const deep = `${'['.repeat(1_000)}${']'.repeat(1_000)}`;

  it('an excessive schema body gets 422 with the limit and advice', () => {
    expect(() => readSchemaBody(request(deep))).toThrow(
      expect.objectContaining({
        code: 'invalid_schema',
        message: expect.stringMatching(
          /\(the limit body-nesting\); send the schema as a string in "schema"$/,
        ),
      }),
    );
  });

  it('an excessive settings body gets 400 with the limit', () => {
    expect(() => readBody(request(`{"a":${deep}}`))).toThrow(
      expect.objectContaining({
        code: 'malformed_request',
        message: expect.stringContaining('body-nesting'),
      }),
    );
  });

  it('a raw text is subject only to the limits of schemas', () => {
    expect(readSchemaBody(request(deep, 'application/octet-stream'))).toEqual({ format: 'AVRO', text: deep });
  });
});
