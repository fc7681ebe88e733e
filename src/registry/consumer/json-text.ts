/** JSON values of records: kept as their text, so that no digit of a number is lost. */
import { isUtf8 } from 'node:buffer';
import { valueAt } from '../../core/filter/compile.ts';
import { plainJson } from '../../formats/json/plain.ts';
import { printJson, readJson } from '../../formats/json/text.ts';
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
    this.parsed ??= plainJson(this.line);
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
