/** Value of a target file with its place, for errors that name it. */
import { coreError } from '../../core/errors.ts';
import { nearest } from '../../core/settings.ts';

export class ConfigNode {
  /** Place in the file: `load.url`. */
  readonly at: string;
  readonly value: unknown;

  constructor(value: unknown, at: string) {
    this.value = value;
    this.at = at;
  }

  get isAbsent(): boolean {
    return this.value === undefined || this.value === null;
  }

  get isMap(): boolean {
    return typeof this.value === 'object' && this.value !== null && !Array.isArray(this.value);
  }

  wrong(why: string, next: string): Error {
    return coreError('bad_value', `${this.at} ${why}`, { next });
  }

  /** Values of a mapping. @throws bad_value for a name that is not known */
  fields<const K extends string>(known: readonly K[]): Readonly<Record<K, ConfigNode>> {
    const map = this.entries();
    for (const [name, node] of map)
      if (!(known as readonly string[]).includes(name)) {
        const near = nearest(name, known);
        throw node.wrong(
          'is not known',
          near === undefined ? `there are ${known.join(', ')}` : `did you mean ${near}?`,
        );
      }
    const all = new Map(map);
    return Object.fromEntries(
      known.map((name) => [name, all.get(name) ?? this.child(name, undefined)]),
    ) as Record<K, ConfigNode>;
  }

  /** Names and values of a mapping; empty where it is absent. @throws bad_value */
  entries(): ReadonlyArray<readonly [string, ConfigNode]> {
    if (this.isAbsent) return [];
    if (!this.isMap) throw this.wrong('is no mapping', 'write names with a colon, each on its line');
    return Object.entries(this.value as Record<string, unknown>).map(([name, value]) => [
      name,
      this.child(name, value),
    ]);
  }

  /** Elements of a list; empty where it is absent. @throws bad_value */
  items(): readonly ConfigNode[] {
    if (this.isAbsent) return [];
    if (!Array.isArray(this.value)) throw this.wrong('is no list', 'write each element after a dash');
    return (this.value as readonly unknown[]).map(
      (value, index) => new ConfigNode(value, `${this.at}[${index}]`),
    );
  }

  /** A text; a number or a truth value is its text. @throws bad_value */
  text(): string {
    const { value } = this;
    if (this.isAbsent) throw this.wrong('is missing', 'see docs/how-to/chaos-your-service.md');
    if (typeof value === 'number' || typeof value === 'boolean') return String(value);
    if (typeof value !== 'string') throw this.wrong('is no text', 'quote it');
    return value;
  }

  optionalText(): string | undefined {
    return this.isAbsent ? undefined : this.text();
  }

  flag(): boolean {
    if (this.isAbsent) return false;
    if (typeof this.value !== 'boolean') throw this.wrong('is neither true nor false', 'write true or false');
    return this.value;
  }

  /** Texts by name. */
  texts(): Readonly<Record<string, string>> {
    return Object.fromEntries(this.entries().map(([name, node]) => [name, node.text()]));
  }

  private child(name: string, value: unknown): ConfigNode {
    return new ConfigNode(value, this.at === '' ? name : `${this.at}.${name}`);
  }
}
