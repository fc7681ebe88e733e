/** Target of `millrace chaos -target`: a user's processes, their load, and the query that finds
 *  violations. docs/how-to/chaos-your-service.md describes the file.
 *
 *  Invariant: a target that was read names only values that exist, so a mistyped name ends a run
 *  before anything is started. */
import { coreError } from '../../core/errors.ts';
import { type ComposeService, composeServices } from './compose.ts';
import { ConfigNode } from './node.ts';
import { namesIn, requireNames } from './template.ts';

export interface TargetProcess {
  readonly name: string;
  /** Words, or a line that is split into words. */
  readonly command: readonly string[] | string;
  /** Relative to the folder of the file. */
  readonly cwd: string | undefined;
  readonly env: Readonly<Record<string, string>>;
  /** http://…, https://… or tcp://host:port */
  readonly ready: string;
  /** True: an end that no fault planned fails the run. */
  readonly mustStay: boolean;
  /** Reaches PostgreSQL, or the brokers, through a proxy. */
  readonly usesPostgres: boolean;
  readonly usesBrokers: boolean;
  /** Processes that it calls through a proxy. */
  readonly peers: readonly string[];
}

export interface TargetLoad {
  readonly url: string;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** Process that receives the load through a proxy; undefined: the url names a host. */
  readonly process: string | undefined;
  /** True: two final answers to one key must have equal status and body. */
  readonly sameAnswers: boolean;
}

/** Two tables: each intent must have exactly one effect. */
export interface TablePair {
  readonly intents: TableKey;
  readonly effects: TableKey;
}

export interface TableKey {
  readonly table: string;
  readonly key: string;
}

export interface ChaosTarget {
  readonly processes: readonly TargetProcess[];
  /** Command lines that run to their end, one after the other, before the processes start. */
  readonly setup: readonly string[];
  readonly load: TargetLoad;
  readonly postgres: string | undefined;
  readonly brokers: string | undefined;
  readonly topics: ReadonlyArray<{ readonly topic: string; readonly partitions: number }>;
  /** Consumer groups whose lag is drained before the verdict. */
  readonly consumers: ReadonlyArray<{ readonly group: string; readonly topic: string }>;
  /** Tables that a full disk refuses rows of, and whose rows an idle transaction locks. */
  readonly tables: readonly string[];
  /** Query that returns one number of unfinished units. */
  readonly pending: string | undefined;
  /** Query whose rows are violations. */
  readonly reconcile: string | TablePair;
}

/** Values of a request, drawn from the seed. */
const REQUEST_VALUES = ['key', 'n', 'account', 'amount'] as const;
/** Names that a process may not have: they are parts of links, or other values. */
const RESERVED = ['load', 'postgres', 'kafka', 'network', 'setup', 'port', 'brokers', ...REQUEST_VALUES];
const PROCESS_NAME = /^[a-z][a-z0-9_]{0,30}$/;
const TABLE_NAME = /^[A-Za-z_]\w{0,62}(\.[A-Za-z_]\w{0,62})?$/;
const COLUMN_NAME = /^[A-Za-z_]\w{0,62}$/;
const READY = /^(https?|tcp):\/\/[^/]+/;
const PROCESSES_MAX = 32;
const PARTITIONS = 4;
const PARTITIONS_MAX = 1000;
const FIELDS = [
  ...(['processes', 'setup', 'load', 'postgres', 'brokers', 'topics', 'consumers'] as const),
  ...(['tables', 'pending', 'reconcile'] as const),
] as const;
type Fields = Readonly<Record<(typeof FIELDS)[number], ConfigNode>>;

/** @param value parsed YAML or JSON
 *  @param path of the file, for errors
 *  @throws bad_value */
export function readTarget(
  value: unknown,
  path: string,
  environment: Readonly<Record<string, string | undefined>>,
): ChaosTarget {
  const root = new ConfigNode(value, '');
  if (!root.isMap)
    throw coreError('bad_value', `${path} is no mapping`, { next: 'see docs/how-to/chaos-your-service.md' });
  const compose = new Map(root.entries()).get('services');
  if (compose === undefined) return targetOf(root.fields(FIELDS), new Map());
  const own = new ConfigNode((value as Record<string, unknown>)['x-chaos'], 'x-chaos');
  if (own.isAbsent)
    throw coreError('bad_value', `${path} is a compose file without x-chaos`, {
      next: 'chaos starts commands on this machine, not containers: name them under x-chaos (docs/how-to/chaos-your-service.md), start the other services with docker compose up -d NAME, and give their addresses there',
    });
  return targetOf(own.fields(FIELDS), composeServices(compose, environment));
}

function targetOf(fields: Fields, services: ReadonlyMap<string, ComposeService>): ChaosTarget {
  const named = fields.processes.entries();
  if (named.length === 0)
    throw fields.processes.wrong('is empty', 'name at least one process with its command');
  if (named.length > PROCESSES_MAX)
    throw fields.processes.wrong(`has over ${PROCESSES_MAX} processes`, 'use fewer');
  const names = named.map(([name]) => name);
  const processes = named.map(([name, node]) => processOf(name, node, names, services));
  const postgres = fields.postgres.optionalText();
  const brokers = fields.brokers.optionalText();
  if (brokers !== undefined && postgres === undefined)
    throw fields.postgres.wrong(
      'is missing beside brokers',
      'give both addresses, or neither for servers of this run',
    );
  return {
    processes,
    setup: fields.setup.items().map((node) => {
      requireNames(node.at, node.text(), ['postgres', 'brokers']);
      return node.text();
    }),
    load: loadOf(fields.load, names),
    postgres,
    brokers,
    topics: fields.topics.items().map(topicOf),
    consumers: fields.consumers.items().map((node) => {
      const { group, topic } = node.fields(['group', 'topic']);
      return { group: group.text(), topic: topic.text() };
    }),
    tables: fields.tables.items().map(tableOf),
    pending: fields.pending.isAbsent ? undefined : statementOf(fields.pending),
    reconcile: reconcileOf(fields.reconcile),
  };
}

function processOf(
  name: string,
  node: ConfigNode,
  names: readonly string[],
  services: ReadonlyMap<string, ComposeService>,
): TargetProcess {
  if (!PROCESS_NAME.test(name))
    throw node.wrong('is no name of a process', 'use a small letter, then small letters, digits and _');
  if (RESERVED.includes(name)) throw node.wrong('is a reserved name', 'use another one');
  const { command, cwd, env, ready, must_stay } = node.fields([
    'command',
    'cwd',
    'env',
    'ready',
    'must_stay',
  ]);
  const service = services.get(name);
  const words = Array.isArray(command.value)
    ? command.items().map((item) => item.text())
    : (command.optionalText() ?? service?.command);
  if (words === undefined)
    throw command.wrong(
      services.size === 0
        ? 'is missing'
        : `is missing, and the service ${name} of the compose file has none but that of its image`,
      'give the command line that starts the process on this machine',
    );
  const variables = { ...service?.env, ...env.texts() };
  const texts = [...(typeof words === 'string' ? [words] : words), ...Object.values(variables)];
  const others = names.filter((other) => other !== name);
  for (const text of texts) requireNames(node.at, text, ['port', 'postgres', 'brokers', ...others]);
  const used = new Set(texts.flatMap(namesIn));
  const readyText = ready.text();
  requireNames(ready.at, readyText, ['port']);
  if (!READY.test(readyText))
    throw ready.wrong('is no address', 'give http://127.0.0.1:{port}/PATH or tcp://127.0.0.1:{port}');
  return {
    name,
    command: words,
    cwd: cwd.optionalText() ?? service?.cwd,
    env: variables,
    ready: readyText,
    mustStay: must_stay.flag(),
    usesPostgres: used.has('postgres'),
    usesBrokers: used.has('brokers'),
    peers: others.filter((other) => used.has(other)),
  };
}

function loadOf(node: ConfigNode, names: readonly string[]): TargetLoad {
  if (node.isAbsent) throw node.wrong('is missing', 'give the url, the method and the body of a request');
  const { url, method, headers, body, same_answers } = node.fields([
    ...(['url', 'method', 'headers', 'body', 'same_answers'] as const),
  ]);
  const address = url.text();
  requireNames(url.at, address, [...names, ...REQUEST_VALUES]);
  const origin = /^https?:\/\/([^/]+)/.exec(address)?.[1];
  if (origin === undefined) throw url.wrong('is no http address', 'give http://{PROCESS}/PATH');
  const inOrigin = namesIn(origin);
  const inPath = namesIn(address.slice(address.indexOf(origin) + origin.length));
  const misplaced = [
    ...inOrigin.filter((name) => !names.includes(name)),
    ...inPath.filter((name) => names.includes(name)),
  ][0];
  if (misplaced !== undefined)
    throw url.wrong(
      `has {${misplaced}} in the wrong place`,
      'the host is {PROCESS} or a name, the path has other values',
    );
  const given = headers.texts();
  const text = body.optionalText() ?? '';
  for (const [where, one] of [...Object.entries(given), ['body', text] as const])
    requireNames(`${node.at}.${where}`, one, REQUEST_VALUES);
  return {
    url: address,
    method: (method.optionalText() ?? 'POST').toUpperCase(),
    headers: Object.fromEntries(Object.entries(given).map(([name, value]) => [name.toLowerCase(), value])),
    body: text,
    process: inOrigin[0],
    sameAnswers: same_answers.flag(),
  };
}

function topicOf(node: ConfigNode): ChaosTarget['topics'][number] {
  if (!node.isMap) return { topic: node.text(), partitions: PARTITIONS };
  const { name, partitions } = node.fields(['name', 'partitions']);
  const count = partitions.isAbsent ? PARTITIONS : Number(partitions.value);
  if (!Number.isInteger(count) || count < 1 || count > PARTITIONS_MAX)
    throw partitions.wrong('is no number of partitions', `give 1 to ${PARTITIONS_MAX}`);
  return { topic: name.text(), partitions: count };
}

function tableOf(node: ConfigNode): string {
  const name = node.text();
  if (!TABLE_NAME.test(name))
    throw node.wrong('is no plain name of a table', 'use NAME or SCHEMA.NAME without quotes');
  return name;
}

function reconcileOf(node: ConfigNode): string | TablePair {
  if (node.isAbsent)
    throw node.wrong(
      'is missing',
      'give a query whose rows are violations, or the tables intents and effects',
    );
  if (!node.isMap) return statementOf(node);
  const { intents, effects } = node.fields(['intents', 'effects']);
  const key = (side: ConfigNode): TableKey => {
    const { table, key: column } = side.fields(['table', 'key']);
    const name = column.text();
    if (!COLUMN_NAME.test(name))
      throw column.wrong('is no plain name of a column', 'use a name without quotes');
    return { table: tableOf(table), key: name };
  };
  return { intents: key(intents), effects: key(effects) };
}

/** One statement, without the semicolon at its end. */
function statementOf(node: ConfigNode): string {
  const text = node.text().trim().replace(/;\s*$/, '');
  if (text === '') throw node.wrong('is empty', 'give one SELECT');
  return text;
}
