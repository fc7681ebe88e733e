/** Bytes in ProtoJSON: base64 in the standard or URL-safe alphabet, with or without padding. */

const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/;

/** Undefined for a text that is not base64. */
export function bytesOfBase64(text: string): Buffer | undefined {
  const digits = text.replace(/=+$/, '').length;
  const isPadded = digits < text.length;
  if (!BASE64.test(text) || digits % 4 === 1 || (isPadded && text.length % 4 !== 0)) return undefined;
  return Buffer.from(text, 'base64');
}

export const base64Of = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64');
