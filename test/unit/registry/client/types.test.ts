/** Serializers and deserializers typed by generated types: a program is compiled against the
 *  library, and its wrong lines must be the compiler's errors. */
import { join } from 'node:path';
import ts from 'typescript';
import { expect, it } from 'vitest';
import { type AvroSchema, parseSchema } from '../../../../src/formats/schema.ts';
import { schemaTypes } from '../../../../src/formats/typescript/types.ts';
import { projectRoot } from '../../../repository/root.ts';

const ORDER = {
  type: 'record',
  name: 'Order',
  fields: [
    { name: 'id', type: 'long' },
    { name: 'state', type: { type: 'enum', name: 'State', symbols: ['OPEN', 'PAID'] } },
    { name: 'tags', type: { type: 'array', items: 'string' } },
    { name: 'note', type: ['null', 'string'], default: null },
  ],
};

/** Lines that end with `// wrong` are the compiler's errors; every other line is right. */
const PROGRAM = `import { SchemaRegistry } from '../src/registry/index.ts';
import type { Order, OrderInput } from './order.ts';

const registry = new SchemaRegistry({ url: 'http://127.0.0.1:8081' });
const topic = 'orders';
const order: Order = { id: 1n, state: 'OPEN', tags: [], note: null };

const serializer = await registry.serializer<OrderInput>({ topic, version: 'latest' }).prefetch();
serializer.serialize(order);
serializer.serialize({ id: 1, state: 'PAID', tags: ['a'] as const });
serializer.serializeBatch([order, { id: 1n, state: 'OPEN', tags: [], note: undefined }]);
serializer.serialize({ id: '1', state: 'PAID', tags: [] }); // wrong
serializer.serialize({ id: 1n, state: 'LOST', tags: [] }); // wrong
serializer.serialize({ id: 1n, tags: [] }); // wrong
serializer.serializeBatch([{ id: 1n, state: 'OPEN', tags: null }]); // wrong

const strict = registry.serializer<Order>({ topic, version: 'latest' });
strict.serialize(order);
strict.serialize({ id: 1n, state: 'OPEN', tags: [] }); // wrong
strict.serialize({ ...order, id: 1 }); // wrong

const deserializer = registry.deserializer<Order>({ readerVersion: { subject: 'orders-value', version: 1 } });
const read = await deserializer.deserialize(new Uint8Array());
read.id; // wrong
if (read !== null) {
  const id: bigint = read.id;
  const note: string | null = read.note;
  const state: 'OPEN' | 'PAID' = read.state;
  const text: string = read.note; // wrong
  const number: number = read.id; // wrong
  void [id, note, state, text, number];
}
for (const { value, error } of await deserializer.deserializeBatch([])) {
  if (error === undefined) void value?.tags.length;
  else void error.row.reason;
  void value.tags; // wrong
}
serializer.serialize(deserializer.deserializeSync(new Uint8Array()) as Order);
`;

const OPTIONS: ts.CompilerOptions = {
  target: ts.ScriptTarget.ES2023,
  lib: ['lib.es2023.d.ts'],
  module: ts.ModuleKind.NodeNext,
  moduleResolution: ts.ModuleResolutionKind.NodeNext,
  moduleDetection: ts.ModuleDetectionKind.Force,
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  verbatimModuleSyntax: true,
  allowImportingTsExtensions: true,
  noEmit: true,
  skipLibCheck: true,
  types: ['node'],
  typeRoots: [join(projectRoot, 'node_modules/@types')],
};

it('a serializer and a deserializer are typed by generated types', () => {
  const types = schemaTypes(parseSchema('AVRO', JSON.stringify(ORDER)) as AvroSchema, []);
  const program = join(projectRoot, 'test/program.ts');
  const texts = new Map([
    [program, PROGRAM],
    [join(projectRoot, 'test/order.ts'), types],
  ]);
  const host = ts.createCompilerHost(OPTIONS);
  const { fileExists, readFile, getSourceFile } = host;
  host.fileExists = (name) => texts.has(name) || fileExists(name);
  host.readFile = (name) => texts.get(name) ?? readFile(name);
  host.getSourceFile = (name, version) => {
    const text = texts.get(name);
    return text === undefined ? getSourceFile(name, version) : ts.createSourceFile(name, text, version);
  };
  const compiled = ts.createProgram([program], OPTIONS, host);
  const source = compiled.getSourceFile(program) as ts.SourceFile;
  const found = [
    ...compiled.getSyntacticDiagnostics(source),
    ...compiled.getSemanticDiagnostics(source),
    ...compiled.getSemanticDiagnostics(compiled.getSourceFile(join(projectRoot, 'test/order.ts'))),
  ];
  const errors = new Map(
    found.map(({ file, start = 0, messageText }) => [
      file === source ? source.getLineAndCharacterOfPosition(start).line : -1,
      ts.flattenDiagnosticMessageText(messageText, '\n'),
    ]),
  );
  const wrong = PROGRAM.split('\n').flatMap((line, i) => (line.endsWith('// wrong') ? [i] : []));
  expect(
    [...errors.keys()].sort((a, b) => a - b),
    [...errors.values()].join('\n'),
  ).toEqual(wrong);
});
