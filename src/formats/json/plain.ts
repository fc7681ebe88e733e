/** JSON texts as plain values, without a change of any integer. */
import { exactInteger } from './number.ts';
import { type JsonNode, readJson } from './text.ts';

/** Digits in a row from which on an integer may be beyond 2^53. */
const MANY_DIGITS = /\d{16}/;

/** Value of a JSON text; integers beyond 2^53 are bigint.
 *  @param parsed result of JSON.parse
 *  @throws SyntaxError for a text that is not JSON */
export function plainJson(text: string, parsed: unknown = JSON.parse(text)): unknown {
  return MANY_DIGITS.test(text) ? plainOf(readJson(text, { comments: false, repeatedKeys: true })) : parsed;
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
