/** Keys of events in paths, queries and answers of the engine's HTTP interface. */
import { engineError } from '../errors.ts';
import { type KeyType, keyOfText, keyValues, partNames, typeText, valueText } from '../keys/type.ts';
import { quoted } from './parameters.ts';

/** Form in which the engine shows its keys. */
export interface ShownKeys {
  /** True if keys are signed integers; false: unsigned. */
  readonly hasSignedKeys: boolean;
  /** Type of the keys; undefined: they are integers. */
  readonly keyType?: KeyType | undefined;
}

/** Key of a query: the 64 bits of an integer, or canonical bytes. */
export interface AskedKey {
  readonly accountId: bigint;
  readonly key?: Uint8Array;
}

/** Reads a key as the engine shows it. @throws bad_account */
export function readKey(text: string, { hasSignedKeys, keyType }: ShownKeys): AskedKey {
  if (keyType === undefined) return { accountId: readInteger(text, hasSignedKeys) };
  const key = keyOfText(keyType, text);
  if (key !== undefined) return { accountId: 0n, key };
  throw engineError('bad_account', `the key is not of the type ${typeText(keyType)}: ${quoted(text)}`);
}

/** Returns the 64 bits of an integer key. @throws bad_account */
function readInteger(text: string, isSigned: boolean): bigint {
  if (/^-?\d{1,20}$/.test(text)) {
    const id = BigInt(text);
    const bits = BigInt.asUintN(64, id);
    if (id === (isSigned ? BigInt.asIntN(64, id) : bits)) return bits;
  }
  const kind = isSigned ? 'a signed' : 'an unsigned';
  throw engineError('bad_account', `account_id is not ${kind} 64-bit number: ${quoted(text)}`);
}

/** Members of an answer that show a key: `account_id` of an integer, else `key`, which is the text
 *  of a key of one part and an object with the texts of several parts. */
export function keyJson(
  { accountId, key }: { readonly accountId: bigint; readonly key?: Uint8Array | undefined },
  { hasSignedKeys, keyType }: ShownKeys,
) {
  if (keyType === undefined || key === undefined)
    return { account_id: String(hasSignedKeys ? BigInt.asIntN(64, accountId) : accountId) };
  const texts = keyValues(keyType, key).map(valueText);
  if (texts.length === 1) return { key: texts[0] };
  return { key: Object.fromEntries(partNames(keyType).map((name, at) => [name, texts[at]])) };
}
