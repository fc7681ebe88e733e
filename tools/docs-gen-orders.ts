/** Generates the page of the orders HTTP interface from the table served under /openapi.json. */
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
  '## Access',
  '',
  'Without `-auth-rules` every client that reaches the port may use every operation. `-listen` is 127.0.0.1 by default, and the log',
  'warns if another address has neither rules nor required client certificates. With rules, over HTTP and gRPC alike:',
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
  'A request is authorized before its body is read. [security.md](../how-to/security.md) describes principals, rules, rates and',
  '`-metrics-listen`, which moves the four paths of the process off the public port.',
  '',
];

const RULES = [
  '## Idempotency keys',
  '',
  '- A key is 1 to 255 visible ASCII characters, bare or as a quoted string. Quotes do not matter, nor the case of a UUID; other',
  '  keys are compared byte for byte. Two header lines, a blank or an invisible character are refused.',
  '- A key applies to the creation of an order, over HTTP and gRPC alike, and is kept for `-key-ttl` (30 days). Afterwards it',
  '  counts as unused. All processes on a database share this time: the first process stores it, a process with another value',
  '  does not start, and `-key-ttl-change` replaces it.',
  '- A repeated request gets the stored status and body, byte for byte. Two requests are equal if the values of their fields',
  '  are equal: blanks, the order of members and the notation of numbers do not matter. With `-hash=raw` two HTTP requests are',
  '  equal if the bytes of their bodies are equal; keys that were used under the other setting answer 409.',
  '- Concurrent requests with one key wait for the first request and get its answer, also across processes. A 409 has one',
  '  meaning: the key belongs to another request.',
  '- Refused requests are not stored: a key whose requests were all refused is free. After a 503, a 504 or a lost connection,',
  '  send the same request again to learn the outcome.',
  '',
  '## Bodies',
  '',
  `One JSON object in UTF-8 without a byte order mark, at most ${BODY_BYTES_MAX} bytes, with \`account_id\` and \`amount_cents\` and nothing`,
  'else: each a 64-bit integer, as a JSON integer or as a string of its decimal digits. A fraction, an exponent, a leading',
  'zero or plus, null, an unknown name and a name given twice are refused.',
  '',
  '## Load shedding',
  '',
  'Under overload, requests that need the database are refused with 429 and `Retry-After` before any work:',
  '',
  '- a POST if `-in-flight-max` POSTs are in flight, or if its expected wait for a transaction is above `-queue-wait-max`;',
  '- a GET if `-reads-max` GETs are in flight. GETs use separate connections, so GETs and POSTs do not shed each other.',
  '',
  'Answers from memory (`-replay-cache`) are never shed, because they cost no more than a refusal: the repeat of an answered request,',
  'and the 409 for the same key with another body. The fields that differ are read from the database; if it is overloaded, the',
  '409 has an empty `differs`. `orders_shed_total{reason}` counts shed requests by `in_flight`, `queue` and `reads`.',
  '',
];

/** @param cell escapes a table cell */
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
    'A running service serves this page as OpenAPI 3.1 under `/openapi.json`, with the schema and an example of every answer.',
    '',
    ...exampleLines(),
    '',
    `Every refusal is a problem document (RFC 9457, \`application/problem+json\`). Its \`type\` is \`${PROBLEM_TYPE_PREFIX}\` followed by a`,
    'word of the tables below; match on it. The document also has `title`, `status`, `detail`, `instance` and `request_id`, which is',
    'also in the log and in the header `X-Request-Id`. It names fields and never repeats their values. 429 and 503 have',
    '`Retry-After`. A known path answers OPTIONS with 204 and `Allow`, another method with 405 and `Allow`.',
    '',
    ...ACCESS,
    ...RULES,
    ...orders.flatMap((operation) => operationLines(operation, cell)),
    '## The process',
    '',
    ...table(
      ['operation', 'meaning'],
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
