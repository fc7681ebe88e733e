/** Validators of values by a JSON Schema: Ajv, an optional peer dependency that is loaded at first
 *  use, or a function of the service. */
import { createRequire } from 'node:module';
import { MillraceError } from '../core/errors.ts';
import type { ResolvedReference } from '../formats/content.ts';
import type { JsonSchema } from '../formats/schema.ts';
import { serdeError } from './errors.ts';

/** A JSON Schema with the schemas that it refers to. */
export interface JsonSchemaDocument {
  /** Parsed schema: an object or a boolean. */
  readonly schema: unknown;
  /** Parsed schemas of its references, by name, over all levels. */
  readonly references: ReadonlyMap<string, unknown>;
}

/** Reason why a value does not fit its schema. */
export interface JsonMisfit {
  /** JSON Pointer of the part that does not fit; empty for the whole value. */
  readonly path: string;
  /** Predicate of a sentence whose subject is that part, such as `must be integer`. */
  readonly message: string;
}

/** Compiles a schema. The result checks a value, synchronously, and returns undefined if it fits.
 *  An error that it throws refuses the schema. */
export type JsonValidator = (document: JsonSchemaDocument) => (value: unknown) => JsonMisfit | undefined;

/** Validator of a schema, compiled.
 *  @param given default: Ajv
 *  @throws invalid_schema; bad_option where Ajv is not installed */
export function jsonChecker(
  { text, references }: JsonSchema,
  given: JsonValidator = ajvValidator,
): (value: unknown) => JsonMisfit | undefined {
  const document = { schema: JSON.parse(text) as unknown, references: documentsOf(references) };
  try {
    return given(document);
  } catch (cause) {
    if (cause instanceof MillraceError) throw cause;
    throw serdeError('invalid_schema', `the validator refuses the JSON Schema: ${(cause as Error).message}`, {
      next: 'correct the schema, or give another validator',
      cause,
    });
  }
}

function documentsOf(
  references: readonly ResolvedReference[],
  found = new Map<string, unknown>(),
): ReadonlyMap<string, unknown> {
  for (const { name, text, references: inner } of references) {
    if (found.has(name)) continue;
    found.set(name, JSON.parse(text));
    documentsOf(inner, found);
  }
  return found;
}

interface AjvError {
  readonly instancePath: string;
  readonly message?: string;
  readonly params?: { readonly additionalProperty?: unknown };
}

interface AjvValidate {
  (value: unknown): unknown;
  readonly errors?: readonly AjvError[] | null;
}

interface AjvInstance {
  addSchema(schema: unknown, key: string): unknown;
  compile(schema: unknown): AjvValidate;
}

interface AjvModule {
  readonly default: new (options: object) => AjvInstance;
}

/** `format` is an annotation, as in the default vocabulary of draft 2020-12. The registry has
 *  checked the keywords. */
const AJV_OPTIONS = { strict: false, validateFormats: false, validateSchema: false, logger: false };

/** Module of Ajv for the dialect of a schema; drafts 6 and 7 without one. */
function moduleOf(schema: unknown): string {
  const { $schema: dialect } = (schema ?? {}) as { readonly $schema?: unknown };
  if (typeof dialect !== 'string') return 'ajv';
  if (/draft-0?[34]\b/.test(dialect))
    throw serdeError('invalid_schema', `Ajv validates no values of the dialect ${dialect.slice(0, 100)}`, {
      next: 'use draft 6 or later, or give a validator',
    });
  if (dialect.includes('2020-12')) return 'ajv/dist/2020.js';
  return dialect.includes('2019-09') ? 'ajv/dist/2019.js' : 'ajv';
}

function loadAjv(name: string): AjvModule {
  try {
    return createRequire(import.meta.url)(name) as AjvModule;
  } catch (cause) {
    throw serdeError(
      'bad_option',
      'values of a JSON Schema are validated by the package ajv, which is not installed',
      {
        next: 'npm install ajv@8, or give a validator',
        cause,
      },
    );
  }
}

/** The validator that Ajv makes of a schema. */
const ajvValidator: JsonValidator = ({ schema, references }) => {
  const ajv = new (loadAjv(moduleOf(schema)).default)(AJV_OPTIONS);
  for (const [name, document] of references) ajv.addSchema(document, name);
  const validate = ajv.compile(schema);
  return (value) => {
    const outcome = validate(value);
    if (outcome === true) return undefined;
    const [error] = validate.errors ?? [];
    // An asynchronous schema returns a promise.
    if (outcome !== false || error === undefined) return { path: '', message: 'has an asynchronous schema' };
    const { additionalProperty } = error.params ?? {};
    const more = additionalProperty === undefined ? '' : `: ${JSON.stringify(additionalProperty)}`;
    return { path: error.instancePath, message: `${error.message ?? 'does not fit'}${more}` };
  };
};
