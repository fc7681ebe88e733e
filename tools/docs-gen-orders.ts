/** The page of the HTTP interface of orders, from the table that it serves under /openapi.json. */
import { ORDERS_OPERATIONS, type OrdersOperation, problemsOf } from '../src/outbox/orders/http/openapi.ts';
import { PROBLEM_TYPE_PREFIX, type ProblemRow } from '../src/outbox/orders/http/problems.ts';
import { BODY_BYTES_MAX } from '../src/outbox/orders/request.ts';

type Cell = (text: string) => string;

const table = (head: readonly string[], rows: ReadonlyArray<readonly string[]>): string[] => [
  `| ${head.join(' | ')} |`,
  `| ${head.map(() => '---').join(' | ')} |`,
  ...rows.map((cells) => `| ${cells.join(' | ')} |`),
];

function operationLines(operation: OrdersOperation, cell: Cell): string[] {
  const lines = [
    `## ${operation.method.toUpperCase()} ${operation.path}`,
    '',
    `${cell(operation.summary)}.`,
    '',
    ...table(
      ['parameter', 'in', 'required', 'meaning'],
      operation.parameters.map((one) => [
        `\`${one['name']}\``,
        String(one['in']),
        one['required'] === true ? 'yes' : 'no',
        cell(String(one['description'])),
      ]),
    ),
    '',
  ];
  for (const [status, answer] of Object.entries(operation.answers)) {
    lines.push(`**${status}**: ${cell(String(answer['description']))}`, '');
    const headers = Object.entries(
      (answer['headers'] ?? {}) as Record<string, { readonly description: string }>,
    );
    lines.push(
      ...table(
        ['header', 'meaning'],
        headers.map(([name, one]) => [`\`${name}\``, cell(one.description)]),
      ),
      '',
    );
  }
  const rows = [...problemsOf(operation)].flatMap(([, all]) => all);
  lines.push(
    ...table(
      ['status', 'problem', 'when'],
      rows.map((row) => [String(row.status), `\`${row.type}\``, cell(row.when)]),
    ),
    '',
  );
  return lines;
}

function exampleLines(): string[] {
  const [create] = ORDERS_OPERATIONS as readonly [OrdersOperation];
  const key = create.parameters[0]?.['example'];
  return [
    '```',
    `curl -i http://127.0.0.1:8080/orders -H 'content-type: application/json' -H 'idempotency-key: ${key}' \\`,
    `  -d '{"account_id": 7, "amount_cents": 1999}'`,
    '```',
  ];
}

const ACCESS = [
  '## Who may call',
  '',
  'Without `-auth-rules` every client that reaches the port may do everything; `-listen` is 127.0.0.1 by default, and the log warns',
  'where another address has neither rules nor required client certificates. With rules, over HTTP and gRPC alike:',
  '',
  ...table(
    ['request', 'needs the rule'],
    [
      ['`POST /orders`, `Create`', '`PRINCIPAL write orders`'],
      ['`GET /orders/{order_id}`, `Get`', '`PRINCIPAL read orders`'],
      ['`/openapi.json`; `/metrics`, `/health`, `/ready`, `/version`; gRPC health and reflection', 'none'],
    ],
  ),
  '',
  'A request is judged before its body is read. [security.md](../how-to/security.md) has principals, rules, rates and `-metrics-listen`, which takes',
  'the four paths of the process off the public port.',
  '',
];

const RULES = [
  '## What a key means',
  '',
  '- It is one UUID of any version. Case and quotes do not matter; two header lines, two values, or a byte that is no part',
  '  of a UUID are refused, whatever they look like elsewhere.',
  '- It belongs to creating an order, over HTTP and gRPC alike, and is kept for `-key-ttl` (30 days). Afterwards it is as good',
  '  as unused. The time is one for all processes on the database: the first stores it, another one is refused at the start,',
  '  and `-key-ttl-change` stores it anew.',
  '- The same request again gets the stored status and body, byte for byte. What makes two requests the same is the value of',
  '  their fields: blanks, the order of members and the way a number is written do not matter. With `-hash=raw` it is the',
  '  bytes of the body, over HTTP; keys that were used under the other setting answer 409.',
  '- Requests of one key that are there at the same time wait for the first and get its answer, across processes too. A 409',
  '  has one meaning: the key belongs to another request.',
  '- What is refused is not kept: a key whose requests were all refused is free. After a 503, a 504 or a lost connection the',
  '  outcome is found out by sending the same request again.',
  '',
  '## What a body is',
  '',
  `One JSON object in UTF-8 without a byte order mark, at most ${BODY_BYTES_MAX} bytes, with \`account_id\` and \`amount_cents\` and nothing`,
  'else: each a 64-bit integer, as a JSON integer or as a string of its decimal digits. A fraction, an exponent, a leading',
  'zero or plus, null, an unknown name and a name given twice are refused.',
  '',
  '## What is shed',
  '',
  'What would wait for the database is refused with 429 and `Retry-After` before any work, where too much waits already:',
  '',
  '- a POST above `-in-flight-max` that are under way, or one whose expected wait for a transaction is above `-queue-wait-max`;',
  '- a GET above `-reads-max` that are under way. GETs have connections of their own: neither sheds the other.',
  '',
  'What is answered from memory is never shed, because it costs no more than a refusal: a repeat of a request that was',
  'answered a while ago (`-replay-cache`), and its 409 with another body. Which fields differ the database knows: where it has no',
  'time, the 409 has an empty `differs`. `orders_shed_total{reason}` counts, by `in_flight`, `queue` and `reads`.',
  '',
];

/** @param cell escapes a table's cell */
export function ordersApiPage(note: string, cell: Cell): string {
  const orders = ORDERS_OPERATIONS.filter(({ tag }) => tag === 'orders');
  const others = ORDERS_OPERATIONS.filter(({ tag }) => tag !== 'orders');
  const rows = new Set<ProblemRow>(
    ORDERS_OPERATIONS.flatMap((one) => [...problemsOf(one)].flatMap(([, all]) => all)),
  );
  const lines = [
    '# The HTTP interface of orders',
    '',
    note,
    '',
    'A running service gives this page as OpenAPI 3.1 under `/openapi.json`, with the schema and an example of every answer.',
    '',
    ...exampleLines(),
    '',
    `Every refusal is a problem document (RFC 9457, \`application/problem+json\`): \`type\` is \`${PROBLEM_TYPE_PREFIX}\` and a word of the`,
    'tables below, and beside `title`, `status`, `detail` and `instance` there is the `request_id` that the log has, too, in the',
    'header `X-Request-Id`. Match on `type`. A document names fields and never repeats their values. 429 and 503 carry',
    '`Retry-After`. A known path answers OPTIONS with 204 and `Allow`, another method with 405 and `Allow`.',
    '',
    ...ACCESS,
    ...RULES,
    ...orders.flatMap((operation) => operationLines(operation, cell)),
    '## The process',
    '',
    ...table(
      ['operation', 'what'],
      others.map((one) => [`\`${one.method.toUpperCase()} ${one.path}\``, cell(one.summary)]),
    ),
    '',
    '## Every problem',
    '',
    ...table(
      ['type', 'status', 'title'],
      [...rows]
        .sort((a, b) => a.status - b.status)
        .map((row) => [`\`${row.type}\``, String(row.status), cell(row.title)]),
    ),
    '',
  ];
  return `${lines.join('\n').trimEnd()}\n`;
}
