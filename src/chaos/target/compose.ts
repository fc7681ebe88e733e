/** Services of a compose file as processes of this machine. Containers are never started: command,
 *  environment and working folder are read, and images, networks and volumes have no meaning here.
 *
 *  Interpolation is that of compose, as far as it needs no file: `$NAME`, `${NAME}`,
 *  `${NAME:-default}`, `$$`. */
import type { ConfigNode } from './node.ts';

export interface ComposeService {
  /** Words, or a line that is split. Undefined: only its image knows it. */
  readonly command: readonly string[] | string | undefined;
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string | undefined;
}

const VARIABLE = /\$(?:(\$)|([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::-([^{}]*))?\})/g;

export function composeServices(
  services: ConfigNode,
  environment: Readonly<Record<string, string | undefined>>,
): ReadonlyMap<string, ComposeService> {
  return new Map(services.entries().map(([name, node]) => [name, serviceOf(node, environment)]));
}

function serviceOf(
  node: ConfigNode,
  environment: Readonly<Record<string, string | undefined>>,
): ComposeService {
  const fields = new Map(node.entries());
  const at = (name: string): ConfigNode | undefined => {
    const found = fields.get(name);
    return found === undefined || found.isAbsent ? undefined : found;
  };
  const text = (one: ConfigNode): string => interpolated(one, environment);
  const file = at('env_file');
  if (file !== undefined) throw file.wrong('is not read', 'list the variables under environment');
  const words = (one: ConfigNode | undefined): readonly string[] | string | undefined => {
    if (one === undefined) return undefined;
    return Array.isArray(one.value) ? one.items().map(text) : text(one);
  };
  const folder = at('working_dir');
  return {
    command: joined(words(at('entrypoint')), words(at('command'))),
    env: environmentOf(at('environment'), text, environment),
    cwd: folder === undefined ? undefined : text(folder),
  };
}

function joined(
  entry: readonly string[] | string | undefined,
  command: readonly string[] | string | undefined,
): readonly string[] | string | undefined {
  if (entry === undefined || command === undefined) return entry ?? command;
  if (typeof entry === 'string' && typeof command === 'string') return `${entry} ${command}`;
  const list = (one: readonly string[] | string): readonly string[] =>
    typeof one === 'string' ? one.split(/\s+/).filter((word) => word !== '') : one;
  return [...list(entry), ...list(command)];
}

/** Variables of the list form `NAME=value`, or of the mapping form. A name alone has the value of
 *  this process. */
function environmentOf(
  node: ConfigNode | undefined,
  text: (one: ConfigNode) => string,
  environment: Readonly<Record<string, string | undefined>>,
): Readonly<Record<string, string>> {
  if (node === undefined) return {};
  const pairs: Array<readonly [string, string]> = [];
  const inherit = (name: string): void => {
    const value = environment[name];
    if (value !== undefined) pairs.push([name, value]);
  };
  if (Array.isArray(node.value)) {
    for (const item of node.items()) {
      const line = text(item);
      const end = line.indexOf('=');
      if (end < 0) inherit(line);
      else pairs.push([line.slice(0, end), line.slice(end + 1)]);
    }
  } else
    for (const [name, value] of node.entries())
      if (value.isAbsent) inherit(name);
      else pairs.push([name, text(value)]);
  return Object.fromEntries(pairs);
}

function interpolated(node: ConfigNode, environment: Readonly<Record<string, string | undefined>>): string {
  const text = node.text();
  const filled = text.replace(
    VARIABLE,
    (_, dollar?: string, plain?: string, braced?: string, otherwise?: string) => {
      if (dollar !== undefined) return '\0';
      const value = environment[(plain ?? braced) as string] ?? '';
      return value === '' ? (otherwise ?? value) : value;
    },
  );
  if (filled.includes('${'))
    throw node.wrong(
      'has an interpolation that is not read',
      'use $NAME, or braces with NAME or NAME:-default',
    );
  return filled.replaceAll('\0', '$');
}
