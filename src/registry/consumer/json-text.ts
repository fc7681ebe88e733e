/** JSON values of records: kept as their text, so that no digit of a number is lost. */
import { isUtf8 } from 'node:buffer';
import { valueAt } from '../../core/filter/compile.ts';
import { exactInteger } from '../../formats/json/number.ts';
import { type JsonNode, printJson, readJson } from '../../formats/json/text.ts';
import { registryError } from '../errors.ts';
import type { ValueForm } from './form.ts';

/** JSON document on one line. */
class JsonText {
  readonly line: string;
  private parsed: unknown;

  constructor(line: string) {
    this.line = line;
  }

  /** Plain value, with integers beyond 2^53 as bigint. */
  get plain(): unknown {
    this.parsed ??= plainOf(readJson(this.line, { comments: false, repeatedKeys: true }));
    return this.parsed;
  }
}

/** Form of the values that `jsonText` makes. */
export const JSON_FORM: ValueForm = {
  print: (value) => (value as JsonText).line,
  field: (value, steps) => valueAt((value as JsonText).plain, steps),
};

/** Reads the bytes of a JSON document.
 *  @throws malformed_payload */
export function jsonText(bytes: Buffer): JsonText {
  if (!isUtf8(bytes)) throw registryError('malformed_payload', 'the value is not UTF-8, so it is not JSON');
  const text = bytes.toString('utf8').trim();
  try {
    // The parser of the engine is fast, and its result is not used: it rounds numbers.
    JSON.parse(text);
    const isLine = !/[\n\r]/.test(text);
    return new JsonText(
      isLine
        ? text
        : printJson(readJson(text, { comments: false, repeatedKeys: true }), false, (node) => node.digits),
    );
  } catch (cause) {
    const { message } = cause as Error;
    throw registryError('malformed_payload', `the value is not JSON: ${message}`, { cause });
  }
}

function plainOf(node: JsonNode): unknown {
  switch (node.kind) {
    case 'null':
      return null;
    case 'number': {
      const number = Number(node.digits);
      return Number.isInteger(number) && !Number.isSafeInteger(number)
        ? (exactInteger(node.digits) ?? number)
        : number;
    }
    case 'boolean':
    case 'string':
      return node.value;
    case 'array':
      return node.items.map(plainOf);
    case 'object': {
      const members = [...node.members].map(([key, { value }]) => [key, plainOf(value)] as const);
      return Object.fromEntries(members);
    }
  }
}
