/** Parameters as text. Clients infer the types of parameters in different ways: from the JavaScript
 *  value, from the type that the server expects, or by names of their own. All of them send a text
 *  unchanged to a parameter of type text. So an adapter declares each parameter as text, and the
 *  cast of the statement converts it on the server. */
import type { TransactionValue } from '../database/transaction.ts';

const PLACEHOLDER = /\$(\d+)/;
const EVERY_PLACEHOLDER = /\$(\d+)/g;

/** PostgreSQL's text format of a value; null stays null. */
function textOf(value: TransactionValue): string | null {
  if (value === null) return null;
  if (typeof value === 'string') return value;
  if (typeof value === 'number' || typeof value === 'bigint') return String(value);
  if (value instanceof Uint8Array)
    return `\\x${Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('hex')}`;
  return arrayLiteral(value);
}

function arrayLiteral(values: readonly TransactionValue[]): string {
  const parts = values.map((value) => {
    if (Array.isArray(value)) return arrayLiteral(value);
    const text = textOf(value);
    return text === null ? 'NULL' : `"${text.replace(/["\\]/g, '\\$&')}"`;
  });
  return `{${parts.join(',')}}`;
}

/** Numbered parameters ($1), each declared as text. */
export function numbered(
  text: string,
  params: readonly TransactionValue[],
): { readonly text: string; readonly values: Array<string | null> } {
  return { text: text.replace(EVERY_PLACEHOLDER, '$$$1::text'), values: params.map(textOf) };
}

/** Positional parameters: value i belongs between part i and part i + 1. A parameter that the
 *  statement uses twice has two values. */
export function positional(
  text: string,
  params: readonly TransactionValue[],
): { readonly parts: string[]; readonly values: Array<string | null> } {
  const parts: string[] = [];
  const values: Array<string | null> = [];
  for (const [index, piece] of text.split(PLACEHOLDER).entries()) {
    if (index % 2 === 1) values.push(textOf(params[Number(piece) - 1] as TransactionValue));
    else parts.push(index === 0 ? piece : `::text${piece}`);
  }
  return { parts, values };
}

/** Row of a statement of the library: texts and nulls. */
export type TextRow = Readonly<Record<string, unknown>>;
