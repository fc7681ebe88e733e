/** Checks that answers match an OpenAPI document. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect } from 'vitest';

export interface DescribedAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: Buffer;
}

/** Headers of HTTP itself, which the description does not list. */
const ALWAYS = new Set(['content-type', 'content-length', 'date', 'connection', 'allow', 'keep-alive']);

/** Checks an answer against the served description; an answer that it does not describe fails. */
export class Described {
  private readonly document: Record<string, unknown>;
  private readonly ajv = new Ajv2020({ strict: false, validateFormats: false });

  constructor(document: Record<string, unknown>) {
    this.document = document;
    this.ajv.addSchema(document, 'api');
  }

  private at(...path: readonly string[]): unknown {
    let found: unknown = this.document;
    for (const part of path) found = (found as Record<string, unknown> | undefined)?.[part];
    return found;
  }

  private valid(value: unknown, ...path: readonly string[]): void {
    const pointer = path
      .map((part) => part.replaceAll('~', '~0').replaceAll('/', '~1'))
      .map(encodeURIComponent);
    const validate = this.ajv.compile({ $ref: `api#/${pointer.join('/')}` });
    expect(validate(value) ? [] : validate.errors, `${path.join(' ')} ${JSON.stringify(value)}`).toEqual([]);
  }

  check(method: string, path: string, answer: DescribedAnswer): void {
    const name = Object.keys((this.document['paths'] ?? {}) as object).find((pattern) =>
      new RegExp(`^${pattern.replaceAll(/\{[^}]+\}/g, '[^/]+')}$`).test(path),
    );
    const operation = ['paths', name ?? '', method === 'HEAD' ? 'get' : method.toLowerCase()];
    // The document describes unknown paths and methods in prose.
    if (this.at(...operation) === undefined) return;
    const response = [...operation, 'responses', String(answer.status)];
    expect(this.at(...response), `${method} ${path} ${answer.status}`).toBeDefined();
    const headers = (this.at(...response, 'headers') ?? {}) as Record<string, unknown>;
    for (const header of Object.keys(headers)) {
      const value = answer.headers[header.toLowerCase()];
      if (value !== undefined) this.valid(value, ...response, 'headers', header, 'schema');
    }
    const described = new Set(Object.keys(headers).map((header) => header.toLowerCase()));
    for (const header of Object.keys(answer.headers))
      expect(described.has(header) || ALWAYS.has(header), `${header} is described`).toBe(true);
    if (method === 'HEAD') return;
    const type = String(answer.headers['content-type'] ?? '').split(';', 1)[0] as string;
    if (type.endsWith('json'))
      this.valid(JSON.parse(answer.body.toString('utf8')), ...response, 'content', type, 'schema');
  }
}
