/** Generates files from src/core/layout/layouts.ts: TypeScript accessors, the C++ header and
 *  docs/reference/layouts.md. `node dist/tools/layout-gen.js` writes them; with `-check` it
 *  compares and exits with 1 on a difference. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  ALIGN,
  type BatchLayout,
  CELL_BYTES,
  type CellType,
  fingerprintOf,
  type StructLayout,
} from '../src/core/layout/define.ts';
import { CONSTANTS, LAYOUTS } from '../src/core/layout/layouts.ts';

const NOTE = 'Generated from src/core/layout/layouts.ts by `npm run generate`; do not edit.';

const TS_ARRAY: Readonly<Record<CellType, string>> = {
  u8: 'Uint8Array',
  i32: 'Int32Array',
  u32: 'Uint32Array',
  i64: 'BigInt64Array',
  u64: 'BigUint64Array',
  f64: 'Float64Array',
};
const CPP_TYPE: Readonly<Record<string, string>> = {
  u8: 'std::uint8_t',
  i32: 'std::int32_t',
  u32: 'std::uint32_t',
  i64: 'std::int64_t',
  u64: 'std::uint64_t',
  u32be: 'std::uint32_t',
  f64: 'double',
};

const kebab = (name: string): string => name.replace(/([a-z0-9])([A-Z])/g, '$1-$2').toLowerCase();
const snake = (name: string): string => kebab(name).replaceAll('-', '_');
const constantCase = (name: string): string => snake(name).toUpperCase();
const pascal = (name: string): string => name.charAt(0).toUpperCase() + name.slice(1);
const pascalOfConstant = (name: string): string => name.toLowerCase().split('_').map(pascal).join('');

function tsOfStruct(layout: StructLayout): string {
  const name = constantCase(layout.name);
  const lines = [
    `/** ${layout.meaning} Byte offsets of its fields. */`,
    `export const ${name} = {`,
    `  BYTES: ${layout.bytes},`,
  ];
  for (const field of layout.fields)
    lines.push(`  /** ${field.type}. ${field.meaning} */`, `  ${constantCase(field.name)}: ${field.at},`);
  lines.push('} as const;', '');
  return lines.join('\n');
}

function tsOfBatch(layout: BatchLayout): string {
  const lines: string[] = [];
  lines.push(`export const ${constantCase(layout.name)}_ID = ${layout.id};`, '');
  lines.push(
    `/** ${layout.meaning} */`,
    `export interface ${layout.name}Views {`,
    '  readonly header: Int32Array;',
  );
  for (const column of layout.columns)
    lines.push(
      `  /** ${column.type}[rowCapacity]. ${column.meaning} */`,
      `  readonly ${column.name}: ${TS_ARRAY[column.type]};`,
    );
  if (layout.arena) lines.push('  readonly arena: Uint8Array;');
  lines.push('}', '');
  const args = layout.arena ? 'rowCapacity: number, arenaCapacity: number' : 'rowCapacity: number';
  lines.push(
    `/** Bytes of a buffer that holds this batch. */`,
    `export function ${layout.name.charAt(0).toLowerCase()}${layout.name.slice(1)}Bytes(${args}): number {`,
    `  let at = ${ALIGN};`,
  );
  for (const column of layout.columns)
    lines.push(`  at = align(at + rowCapacity * ${CELL_BYTES[column.type]}); // ${column.name}`);
  lines.push(layout.arena ? '  return align(at + arenaCapacity);' : '  return at;', '}', '');
  lines.push(
    `/** Views over a buffer of at least that size; nothing is copied. */`,
    `export function ${layout.name.charAt(0).toLowerCase()}${layout.name.slice(1)}Views(buffer: ArrayBufferLike, ${args}): ${layout.name}Views {`,
    `  let at = ${ALIGN};`,
  );
  for (const column of layout.columns) {
    lines.push(
      `  const ${column.name} = new ${TS_ARRAY[column.type]}(buffer, at, rowCapacity);`,
      `  at = align(at + rowCapacity * ${CELL_BYTES[column.type]});`,
    );
  }
  if (layout.arena) lines.push('  const arena = new Uint8Array(buffer, at, arenaCapacity);');
  const names = layout.columns.map((column) => column.name);
  lines.push(
    `  const header = new Int32Array(buffer, 0, ${ALIGN / 4});`,
    `  return { header, ${[...names, ...(layout.arena ? ['arena'] : [])].join(', ')} };`,
    '}',
    '',
  );
  return lines.join('\n');
}

function typescript(): string {
  const parts = [
    `// ${NOTE}`,
    '',
    `const align = (at: number): number => (at + ${ALIGN - 1}) & ~${ALIGN - 1};`,
    '',
  ];
  parts.push(
    '/** Identity of the whole set of layouts; the addon must report the same. */',
    `export const LAYOUT_FINGERPRINT = 0x${fingerprintOf(LAYOUTS, CONSTANTS).toString(16)};`,
    '',
  );
  for (const group of CONSTANTS) {
    parts.push(`/** ${group.meaning} */`, `export const ${group.name} = {`);
    for (const [key, value] of Object.entries(group.values)) parts.push(`  ${key}: ${value},`);
    parts.push('} as const;', '');
  }
  for (const layout of LAYOUTS)
    parts.push(layout.shape === 'struct' ? tsOfStruct(layout) : tsOfBatch(layout));
  return `${parts.join('\n').trimEnd()}\n`;
}

function cppOfStruct(layout: StructLayout): string {
  const lines = [
    `// ${layout.meaning}`,
    `struct ${layout.name} {`,
    `  static constexpr std::size_t kBytes = ${layout.bytes};`,
  ];
  for (const field of layout.fields)
    lines.push(
      `  static constexpr std::size_t k${pascal(field.name)}At = ${field.at};  // ${field.type}. ${field.meaning}`,
    );
  lines.push('};');
  const last = layout.fields[layout.fields.length - 1];
  if (last !== undefined)
    lines.push(
      `static_assert(${layout.name}::k${pascal(last.name)}At <= ${layout.name}::kBytes, "fields lie inside the struct");`,
    );
  let end = 0;
  for (const field of layout.fields) {
    lines.push(`static_assert(${layout.name}::k${pascal(field.name)}At >= ${end}, "fields do not overlap");`);
    end =
      field.at +
      (field.type === 'bytes' ? (field.bytes ?? 0) : field.type === 'u32be' ? 4 : CELL_BYTES[field.type]);
  }
  return `${lines.join('\n')}\n`;
}

function cppOfBatch(layout: BatchLayout): string {
  const lines = [
    `// ${layout.meaning}`,
    `struct ${layout.name} {`,
    `  static constexpr std::uint32_t kId = ${layout.id};`,
    '  BatchHeader* header = nullptr;',
  ];
  for (const column of layout.columns)
    lines.push(`  ${CPP_TYPE[column.type]}* ${snake(column.name)} = nullptr;  // ${column.meaning}`);
  if (layout.arena) lines.push('  std::uint8_t* arena = nullptr;');
  const args = layout.arena
    ? 'std::uint64_t row_capacity, std::uint64_t arena_capacity'
    : 'std::uint64_t row_capacity';
  lines.push(
    '',
    '  // Bytes of a buffer that holds this batch.',
    `  static constexpr std::uint64_t Bytes(${args}) {`,
    `    std::uint64_t at = ${ALIGN};`,
  );
  for (const column of layout.columns)
    lines.push(`    at = Align(at + row_capacity * ${CELL_BYTES[column.type]});  // ${column.name}`);
  lines.push(layout.arena ? '    return Align(at + arena_capacity);' : '    return at;', '  }', '');
  lines.push(
    '  // REQUIRES: base points at Bytes(...) bytes, aligned to 8. LIFETIME: views borrow base.',
    `  static ${layout.name} Over(std::uint8_t* base, std::uint64_t row_capacity) {`,
    `    ${layout.name} batch;`,
    '    batch.header = reinterpret_cast<BatchHeader*>(base);',
    `    std::uint64_t at = ${ALIGN};`,
  );
  for (const column of layout.columns) {
    lines.push(
      `    batch.${snake(column.name)} = reinterpret_cast<${CPP_TYPE[column.type]}*>(base + at);`,
      `    at = Align(at + row_capacity * ${CELL_BYTES[column.type]});`,
    );
  }
  if (layout.arena) lines.push('    batch.arena = base + at;');
  lines.push('    return batch;', '  }', '};');
  const sample = layout.arena ? '1000, 5000' : '1000';
  let at = ALIGN;
  const align = (n: number): number => Math.ceil(n / ALIGN) * ALIGN;
  for (const column of layout.columns) at = align(at + 1000 * CELL_BYTES[column.type]);
  if (layout.arena) at = align(at + 5000);
  lines.push(
    `static_assert(${layout.name}::Bytes(${sample}) == ${at}, "the two languages agree on the size");`,
  );
  return `${lines.join('\n')}\n`;
}

function headerStruct(): string {
  const header = LAYOUTS.find(
    (layout): layout is StructLayout => layout.shape === 'struct' && layout.name === 'BatchHeader',
  );
  if (header === undefined) throw new Error('layouts.ts lacks BatchHeader');
  const lines = [`// ${header.meaning}`, 'struct BatchHeader {'];
  let end = 0;
  for (const field of header.fields) {
    lines.push(`  ${CPP_TYPE[field.type]} ${snake(field.name)};  // ${field.meaning}`);
    end = field.at + 4;
  }
  lines.push(
    `  std::uint8_t reserved[${header.bytes - end}];`,
    '};',
    `static_assert(sizeof(BatchHeader) == ${header.bytes});`,
  );
  for (const field of header.fields)
    lines.push(`static_assert(offsetof(BatchHeader, ${snake(field.name)}) == ${field.at});`);
  return `${lines.join('\n')}\n`;
}

function cpp(): string {
  const parts = [
    `// ${NOTE}`,
    '#pragma once',
    '',
    '#include <cstddef>',
    '#include <cstdint>',
    '',
    'namespace millrace::layout {',
    '',
  ];
  parts.push(
    `inline constexpr std::uint32_t kFingerprint = 0x${fingerprintOf(LAYOUTS, CONSTANTS).toString(16)}U;`,
    '',
  );
  parts.push(
    `constexpr std::uint64_t Align(std::uint64_t at) { return (at + ${ALIGN - 1}U) & ~std::uint64_t{${ALIGN - 1}}; }`,
    '',
  );
  for (const group of CONSTANTS) {
    parts.push(`// ${group.meaning}`);
    for (const [key, value] of Object.entries(group.values)) {
      const type = value > 0x7fffffff ? 'std::uint32_t' : 'std::int32_t';
      parts.push(
        `inline constexpr ${type} k${pascalOfConstant(group.name)}${pascalOfConstant(key)} = ${value};`,
      );
    }
    parts.push('');
  }
  parts.push(headerStruct());
  for (const layout of LAYOUTS) {
    if (layout.name === 'BatchHeader') continue;
    parts.push(layout.shape === 'struct' ? cppOfStruct(layout) : cppOfBatch(layout));
  }
  parts.push('}  // namespace millrace::layout');
  return `${parts.join('\n')}\n`;
}

function markdown(): string {
  const parts = [
    '# Binary layouts',
    '',
    `<!-- ${NOTE} -->`,
    '',
    `Fingerprint \`0x${fingerprintOf(LAYOUTS, CONSTANTS).toString(16)}\`. Integers are little-endian unless a type ends in \`be\`. Columns and arenas start at multiples of ${ALIGN} bytes.`,
    '',
  ];
  for (const layout of LAYOUTS) {
    parts.push(`## ${layout.name}`, '', layout.meaning, '');
    if (layout.shape === 'struct') {
      parts.push(
        `At least ${layout.bytes} bytes.`,
        '',
        '| offset | type | field | meaning |',
        '| --- | --- | --- | --- |',
      );
      for (const field of layout.fields)
        parts.push(
          `| ${field.at} | ${field.type}${field.bytes === undefined ? '' : ` (${field.bytes})`} | ${field.name} | ${field.meaning} |`,
        );
    } else {
      parts.push(
        `Layout id ${layout.id}${layout.arena ? ', with an arena' : ''}.`,
        '',
        '| column | type | meaning |',
        '| --- | --- | --- |',
      );
      for (const column of layout.columns)
        parts.push(`| ${column.name} | ${column.type} | ${column.meaning} |`);
    }
    parts.push('');
  }
  parts.push('## Constants', '', '| name | value | of |', '| --- | --- | --- |');
  for (const group of CONSTANTS)
    for (const [key, value] of Object.entries(group.values))
      parts.push(`| ${group.name}.${key} | ${value} | ${group.meaning} |`);
  return `${parts.join('\n')}\n`;
}

/** Generated files by path from the project's root. */
export function generateLayouts(): ReadonlyMap<string, string> {
  return new Map([
    ['src/core/layout/layouts.gen.ts', typescript()],
    ['native/layout/layouts.gen.h', cpp()],
    ['docs/reference/layouts.md', markdown()],
  ]);
}

function projectRoot(): string {
  let at = dirname(fileURLToPath(import.meta.url));
  for (;;) {
    try {
      readFileSync(join(at, 'package.json'));
      return at;
    } catch {
      at = dirname(at);
    }
  }
}

if (process.argv[1] !== undefined && fileURLToPath(import.meta.url) === process.argv[1]) {
  const root = projectRoot();
  let different = 0;
  for (const [path, text] of generateLayouts()) {
    const target = join(root, path);
    if (process.argv.includes('-check')) {
      const present = ((): string => {
        try {
          return readFileSync(target, 'utf8');
        } catch {
          return '';
        }
      })();
      if (present !== text) {
        different++;
        process.stderr.write(`${path} differs from its definition; run npm run generate\n`);
      }
    } else {
      mkdirSync(dirname(target), { recursive: true });
      writeFileSync(target, text);
    }
  }
  process.exitCode = different === 0 ? 0 : 1;
}
