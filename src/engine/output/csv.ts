/** Text of CSV cells (RFC 4180). */

/** Quotes a cell where CSV needs it. */
export const csvCell = (text: string): string =>
  /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
