/** Names of the generated types: the short name of each type where it is unique in the file, else
 *  its full name. */
import type { Declaration } from './model.ts';

/** Words that cannot name a type. */
const KEYWORDS = `any as asserts async await bigint boolean break case catch class const constructor
continue debugger declare default delete do else enum export extends false finally for from function
get if implements import in infer instanceof interface is keyof let module namespace never new null
number object of package private protected public readonly require return satisfies set static string
super switch symbol this throw true try type typeof undefined unique unknown using var void while with
yield globalThis`.split(/\s+/);

/** Global types that generated files use, and that no type of a schema may hide. */
const GLOBALS = ['Buffer', 'Exclude', 'Record', 'Uint8Array'];

const IDENTIFIER = /^[A-Za-z_$][\w$]*$/;

/** Property name in a type: quoted where it is no identifier. */
export const isIdentifier = (name: string): boolean => IDENTIFIER.test(name);

function identifierOf(name: string): string {
  const plain = name.replace(/[^\w$]/gu, '_');
  return /^[A-Za-z_$]/.test(plain) ? plain : `_${plain}`;
}

/** Gives out names, each once. */
export class TypeNames {
  private readonly taken = new Set([...KEYWORDS, ...GLOBALS]);

  /** Reserves the wanted name, or one like it. */
  reserve(wanted: string): string {
    const base = identifierOf(wanted);
    let name = base;
    for (let i = 2; this.taken.has(name); i++) name = `${base}_${i}`;
    this.taken.add(name);
    return name;
  }

  /** Names of the declarations. */
  nameAll(declarations: readonly Declaration[]): ReadonlyMap<Declaration, string> {
    const counts = new Map<string, number>();
    for (const { shortName } of declarations) {
      const name = identifierOf(shortName);
      counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    const isUnique = ({ shortName }: Declaration): boolean => counts.get(identifierOf(shortName)) === 1;
    const names = new Map<Declaration, string>();
    // Unique short names first, so that no full name takes one of them.
    for (const one of declarations) if (isUnique(one)) names.set(one, this.reserve(one.shortName));
    for (const one of declarations) if (!isUnique(one)) names.set(one, this.reserve(one.fullName));
    return names;
  }
}
