/** Parses a schema in the form that a client sends: from text or descriptor to linked files and the
 *  stored text. */

import type { ResolvedReference } from '../content.ts';
import { formatError } from '../errors.ts';
import { SCHEMA_TEXT_CHARS_MAX } from '../format.ts';
import type { ParseOptions } from '../options.ts';
import { descriptorOf, fileOfDescriptor } from './descriptor/from-descriptor.ts';
import { OptionDecoder } from './descriptor/option-read.ts';
import { descriptorBytes } from './descriptor/to-descriptor.ts';
import { checkProtoFile } from './link/check.ts';
import { linkProto, type ProtoLink } from './link/resolve.ts';
import { protoFail } from './syntax/lexer.ts';
import { normalized } from './syntax/normal.ts';
import { parseProtoFile } from './syntax/parser.ts';
import { withoutDerivedJsonNames } from './syntax/plain.ts';
import { printProto } from './syntax/print.ts';

export interface ParsedProto {
  readonly link: ProtoLink;
  /** Canonical, or normalized where that was requested. */
  readonly text: string;
  /** Text without the JSON names that follow from field names; absent where the text has none of
   *  them. */
  readonly lookupText?: string;
}

/** Parses and links a schema. @throws invalid_schema, schema_too_large */
export function protoLink(source: string, options: ParseOptions = {}): ParsedProto {
  if (source.length > SCHEMA_TEXT_CHARS_MAX) {
    throw formatError(
      'schema_too_large',
      `the schema has ${source.length} characters; the most is ${SCHEMA_TEXT_CHARS_MAX}`,
    );
  }
  const references = options.references ?? [];
  const lenient = options.lenient === true;
  const looseImports = options.looseImports === true;
  const descriptor = descriptorOf(source);
  const written = descriptor === undefined ? source : textOfDescriptor(descriptor, references);
  const link = linkProto(parseProtoFile(written), { references, lenient, looseImports });
  const { body, imports } = link.root.node;
  if (!lenient) {
    checkProtoFile(link);
    // Every option must be defined and fit its type; an option whose import is missing cannot be
    // checked.
    descriptorBytes(link, link.root, 'default', looseImports ? 'custom' : 'none');
    // A file that only re-exports others is an import of many schemas.
    if (body.length === 0 && imports.every(({ mode }) => mode !== 'public'))
      protoFail('it declares no message, enum, extension or service');
  }
  const isNormalized = options.normalize === true;
  const kept = isNormalized ? normalized(link) : link.root.node;
  const text = printProto(kept, isNormalized);
  const plain = withoutDerivedJsonNames(kept);
  return { link, text, ...(plain === kept ? {} : { lookupText: printProto(plain, isNormalized) }) };
}

/** Text of a descriptor. Positions in later messages refer to this text, which is stored. */
function textOfDescriptor(bytes: Buffer, references: readonly ResolvedReference[]): string {
  const bare = fileOfDescriptor(bytes, () => []);
  const decoder = new OptionDecoder(linkProto(bare, { references, lenient: true }));
  return printProto(fileOfDescriptor(bytes, (of, options) => decoder.read(of, options)));
}
