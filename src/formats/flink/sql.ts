/** Spelling of Flink SQL: identifiers, texts, options of a table. */

/** A name between backquotes. */
export const quotedName = (name: string): string => `\`${name.replaceAll('`', '``')}\``;

/** A text between single quotes. Flink SQL has no escapes but the doubled quote. */
export const quotedText = (text: string): string => `'${text.replaceAll("'", "''")}'`;

/** Options of a table by name; undefined values are left out. */
export type TableOptions = Readonly<Record<string, string | undefined>>;

/** A definition of a table. @param lines its columns, watermark and key */
export function tableText(
  name: string,
  lines: readonly string[],
  options: TableOptions,
  isTemporary = false,
): string {
  const given = Object.entries(options).filter((entry): entry is [string, string] => entry[1] !== undefined);
  return [
    `CREATE ${isTemporary ? 'TEMPORARY ' : ''}TABLE ${quotedName(name)} (`,
    lines.map((line) => `  ${line}`).join(',\n'),
    ') WITH (',
    given.map(([option, value]) => `  ${quotedText(option)} = ${quotedText(value)}`).join(',\n'),
    ')',
  ].join('\n');
}
