/** The report formats of compat-check: each is valid for its tools, whatever text a schema
 *  contains. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { failureOutput, reportOutput } from '../../../src/bin/compat-check/outputs/forms.ts';
import { unifiedDiff } from '../../../src/bin/compat-check/outputs/patch.ts';
import { coreError } from '../../../src/core/errors.ts';
import { parseSchema } from '../../../src/formats/schema.ts';
import { gateReport } from '../../../src/registry/check/gate.ts';
import type { GateReport, RegistryAnswer } from '../../../src/registry/check/report.ts';
import { failureOf } from '../../../src/shell/terminal/report.ts';
import { runs } from '../../tier.ts';

const record = (...fields: unknown[]): string =>
  JSON.stringify({ type: 'record', name: 'Order', fields: [{ name: 'id', type: 'string' }, ...fields] });
/** Characters with a meaning in XML, Markdown, annotations and paths. */
const HOSTILE = '<![CDATA[ ]]>&"\'%0A::error::`*_|\u0007\ud800\n,:';

function report(
  proposed: string,
  earlier: readonly string[],
  more: {
    readonly registry?: RegistryAnswer;
    readonly file?: string;
    readonly level?: 'FULL_TRANSITIVE' | 'FORWARD';
  } = {},
): GateReport {
  return gateReport({
    proposed: parseSchema('AVRO', proposed),
    level: more.level ?? 'FULL_TRANSITIVE',
    policy: 'PROVEN',
    lossy: 'ACCEPT',
    earlier: earlier.map((text, index) => ({
      version: index + 1,
      name: `version ${index + 1}`,
      live: true,
      schema: parseSchema('AVRO', text, { lenient: true }),
    })),
    all: false,
    known: false,
    subject: `orders${HOSTILE}`,
    file: more.file ?? 'schemas/order 1.avsc',
    against: 'http://127.0.0.1:8081',
    registry: more.registry ?? { asked: true, compatible: false, messages: [HOSTILE] },
    already: undefined,
    notes: [HOSTILE],
    proof: { events: 12, pairs: 2, disagreements: [] },
  });
}

const broken = report(record({ name: 'note', type: 'string' }, { name: 'sum', type: 'double' }), [
  record({ name: 'sum', type: 'long' }),
  record({ name: 'sum', type: 'long' }, { name: 'mark', type: { type: 'enum', name: 'M', symbols: ['A'] } }),
]);
const fine = report(record(), [record()], { registry: { asked: true, compatible: true, messages: [] } });
const refused = report(record(), [record()]);
const all = [broken, fine, refused];
const failure = failureOf(coreError('unreachable', `no registry answers ${HOSTILE}`, { next: 'wait' }));

/** Parts of SARIF 2.1.0 that are required, or that code scanning needs; the official schema
 *  agrees. */
const message = {
  type: 'object',
  required: ['text'],
  properties: { text: { type: 'string', minLength: 1 } },
};
const artifactLocation = {
  type: 'object',
  required: ['uri'],
  properties: { uri: { type: 'string', pattern: "^[A-Za-z0-9._~!$&'()*+,;=:@/%-]+$" } },
};
const replacement = {
  type: 'object',
  required: ['deletedRegion'],
  properties: {
    deletedRegion: {
      type: 'object',
      required: ['charOffset', 'charLength'],
      properties: {
        charOffset: { type: 'integer', minimum: 0 },
        charLength: { type: 'integer', minimum: 0 },
      },
    },
    insertedContent: message,
  },
};
const SARIF = {
  type: 'object',
  required: ['version', 'runs'],
  additionalProperties: false,
  properties: {
    $schema: { type: 'string' },
    version: { const: '2.1.0' },
    runs: {
      type: 'array',
      minItems: 1,
      items: {
        type: 'object',
        required: ['tool', 'results'],
        properties: {
          tool: {
            type: 'object',
            required: ['driver'],
            properties: {
              driver: {
                type: 'object',
                required: ['name', 'rules'],
                properties: {
                  name: { type: 'string', minLength: 1 },
                  version: { type: 'string' },
                  rules: {
                    type: 'array',
                    uniqueItems: true,
                    items: {
                      type: 'object',
                      required: ['id'],
                      properties: {
                        id: { type: 'string', minLength: 1 },
                        shortDescription: message,
                        fullDescription: message,
                        help: message,
                      },
                    },
                  },
                },
              },
            },
          },
          columnKind: { enum: ['utf16CodeUnits', 'unicodeCodePoints'] },
          invocations: {
            type: 'array',
            items: {
              type: 'object',
              required: ['executionSuccessful'],
              properties: {
                executionSuccessful: { type: 'boolean' },
                exitCode: { type: 'integer' },
                toolExecutionNotifications: {
                  type: 'array',
                  items: { type: 'object', required: ['message'], properties: { message } },
                },
              },
            },
          },
          results: {
            type: 'array',
            items: {
              type: 'object',
              required: ['ruleId', 'ruleIndex', 'level', 'message', 'locations'],
              properties: {
                ruleId: { type: 'string' },
                ruleIndex: { type: 'integer', minimum: 0 },
                level: { enum: ['none', 'note', 'warning', 'error'] },
                message,
                locations: {
                  type: 'array',
                  minItems: 1,
                  items: {
                    type: 'object',
                    required: ['physicalLocation'],
                    properties: {
                      physicalLocation: {
                        type: 'object',
                        required: ['artifactLocation', 'region'],
                        properties: {
                          artifactLocation,
                          region: {
                            type: 'object',
                            required: ['startLine'],
                            properties: {
                              startLine: { type: 'integer', minimum: 1 },
                              startColumn: { type: 'integer', minimum: 1 },
                            },
                          },
                        },
                      },
                    },
                  },
                },
                fixes: {
                  type: 'array',
                  items: {
                    type: 'object',
                    required: ['artifactChanges'],
                    properties: {
                      description: message,
                      artifactChanges: {
                        type: 'array',
                        minItems: 1,
                        items: {
                          type: 'object',
                          required: ['artifactLocation', 'replacements'],
                          properties: {
                            artifactLocation,
                            replacements: { type: 'array', minItems: 1, items: replacement },
                          },
                        },
                      },
                    },
                  },
                },
              },
            },
          },
        },
      },
    },
  },
} as const;

interface Sarif {
  readonly runs: ReadonlyArray<{
    readonly tool: { readonly driver: { readonly rules: ReadonlyArray<{ readonly id: string }> } };
    readonly results: ReadonlyArray<{
      readonly ruleId: string;
      readonly ruleIndex: number;
      readonly level: string;
    }>;
  }>;
}

describe('SARIF', () => {
  const validate = new Ajv({ strict: false }).compile(SARIF);

  it.each([0, 1, 2])('the SARIF report conforms to its schema (%i)', (index) => {
    const log = JSON.parse(reportOutput('sarif', all[index] as GateReport, undefined).text) as Sarif;
    expect(validate(log), JSON.stringify(validate.errors)).toBe(true);
    const [run] = log.runs;
    for (const { ruleId, ruleIndex } of run?.results ?? [])
      expect(run?.tool.driver.rules[ruleIndex]?.id).toBe(ruleId);
  });

  it('the SARIF report distinguishes errors, warnings and notes, and marks a failed check', () => {
    const levels = (one: GateReport): string[] =>
      (JSON.parse(reportOutput('sarif', one, undefined).text) as Sarif).runs.flatMap(({ results }) =>
        results.map(({ level }) => level),
      );
    expect(new Set(levels(broken))).toEqual(new Set(['error', 'warning', 'note']));
    expect(levels(fine)).toEqual([]);
    expect(levels(refused)).toEqual(['error']);
    const failed = JSON.parse(failureOutput('sarif', failure, undefined) ?? '');
    expect(validate(failed), JSON.stringify(validate.errors)).toBe(true);
    expect(failed.runs[0].invocations[0]).toMatchObject({ executionSuccessful: false, exitCode: 3 });
  });
});

interface Element {
  readonly name: string;
  readonly attributes: Readonly<Record<string, string>>;
  readonly children: Element[];
  text: string;
}

/** Parses simple well-formed XML, or throws. */
function parseXml(text: string): Element {
  const root: Element = { name: '', attributes: {}, children: [], text: '' };
  const open = [root];
  const entity = /&(?:amp|lt|gt|quot|#\d+);/g;
  const plain = (part: string): string => {
    if (/[<&]/.test(part.replace(entity, ''))) throw new Error(`unescaped: ${part}`);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: what XML 1.0 cannot hold
    if (/[\u0000-\u0008\u000b\u000c\u000e-\u001f]|\p{Surrogate}/u.test(part))
      throw new Error('a character is not allowed in XML');
    return part.replace(
      entity,
      (one) => ({ '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"' })[one] ?? ' ',
    );
  };
  const body = text.replace(/^<\?xml version="1\.0" encoding="UTF-8"\?>\n/, '');
  expect(body).not.toBe(text);
  for (const [, inner, tag] of body.matchAll(/([^<]*)(?:<([^>]*)>)?/g)) {
    const here = open.at(-1) as Element;
    if (inner !== undefined && inner !== '') here.text += plain(inner);
    if (tag === undefined) continue;
    if (tag.startsWith('/')) {
      if (open.pop()?.name !== tag.slice(1)) throw new Error(`the closing tag does not match: ${tag}`);
      continue;
    }
    const [, name = '', rest = '', end] = /^([\w-]+)((?:\s+[\w-]+="[^"<]*")*)\s*(\/?)$/.exec(tag) ?? [];
    if (name === '') throw new Error(`malformed tag: ${tag}`);
    const attributes = Object.fromEntries(
      [...rest.matchAll(/([\w-]+)="([^"]*)"/g)].map(([, key, value]) => [key, plain(value as string)]),
    );
    const element: Element = { name, attributes, children: [], text: '' };
    here.children.push(element);
    if (end !== '/') open.push(element);
  }
  expect(open).toEqual([root]);
  expect(root.children.length).toBe(1);
  return root.children[0] as Element;
}

describe('JUnit', () => {
  const counted = (suites: Element) => {
    const [suite] = suites.children;
    const cases = suite?.children.filter(({ name }) => name === 'testcase') ?? [];
    return {
      names: [suites.name, suite?.name],
      told: [suite?.attributes['tests'], suite?.attributes['failures'], suite?.attributes['errors']].map(
        Number,
      ),
      found: [
        cases.length,
        cases.filter(({ children }) => children[0]?.name === 'failure').length,
        cases.filter(({ children }) => children[0]?.name === 'error').length,
      ],
      cases,
    };
  };

  it.each([0, 1, 2])('the JUnit report is well-formed and counts its cases (%i)', (index) => {
    const { names, told, found, cases } = counted(
      parseXml(reportOutput('junit', all[index] as GateReport, undefined).text),
    );
    expect(names).toEqual(['testsuites', 'testsuite']);
    expect(told).toEqual(found);
    for (const { attributes } of cases) expect(attributes).toMatchObject({ name: /./, classname: /./ });
    expect(found[1] === 0).toBe((all[index] as GateReport).compatible);
  });

  it('the JUnit report has a case for each direction and for a failed check', () => {
    const names = counted(parseXml(reportOutput('junit', broken, undefined).text)).cases.map(
      ({ attributes }) => attributes['name'],
    );
    expect(names).toEqual([
      'the proposed schema reads version 1',
      'version 1 reads the proposed schema',
      'the proposed schema reads version 2',
      'version 2 reads the proposed schema',
      'the registry agrees',
      'live decode agrees',
    ]);
    expect(counted(parseXml(failureOutput('junit', failure, undefined) ?? '')).found).toEqual([1, 0, 1]);
  });
});

describe('GitHub annotations', () => {
  it('the GitHub report has one line per finding, and no schema text can add a line', () => {
    for (const one of all) {
      const { text } = reportOutput('github', one, undefined);
      const commands = text.split('\n').filter((line) => line.startsWith('::'));
      const others = one.judged && one.registry.asked && !one.registry.compatible ? 1 : 0;
      expect(commands.length).toBe(one.findings.length + others);
      for (const line of commands)
        expect(line).toMatch(/^::(error|warning|notice) file=[^,:]+,line=\d+,col=\d+,title=[A-Z_]+::.+$/);
    }
    const line = failureOutput('github', failure, undefined) ?? '';
    expect(line.trimEnd().split('\n').length).toBe(1);
    expect(line).toMatch(/^::error title=unreachable::/);
  });
});

describe('Markdown', () => {
  it('the Markdown report closes every element that it opens', () => {
    for (const one of all) {
      const { text } = reportOutput('markdown', one, undefined);
      expect(text).toMatch(/^## orders/);
      expect((text.match(/^```/gm)?.length ?? 0) % 2).toBe(0);
      // Outside of code blocks no schema text acts as markup.
      expect(text.replace(/^```[\s\S]*?^```$/gm, '')).not.toMatch(/(?<!\\)<!/);
    }
  });
});

describe('text and JSON', () => {
  it('the text and JSON reports name every finding', () => {
    const { text, document } = reportOutput('text', broken, undefined);
    for (const { finding } of broken.findings) expect(text).toContain(finding.rule);
    expect((document as { readonly findings: unknown[] }).findings.length).toBe(broken.findings.length);
    expect(JSON.parse(reportOutput('json', broken, 'patch').text)).toMatchObject({ patch: 'patch' });
  });
});

describe('patch', () => {
  const dir = mkdtempSync(join(tmpdir(), 'patch-'));
  afterAll(() => rmSync(dir, { recursive: true, force: true }));
  const lines = fc.array(fc.constantFrom('a', 'b', 'c', '', '{'), { maxLength: 30 });
  const text = fc.tuple(lines, fc.boolean()).map(([list, end]) => `${list.join('\n')}${end ? '\n' : ''}`);

  it('git applies the patch and gets the second text from the first', () => {
    fc.assert(
      fc.property(text, text, (before, after) => {
        fc.pre(before !== after && before !== '' && after !== '');
        writeFileSync(join(dir, 'file'), before);
        const patch = unifiedDiff('./file', before, after);
        const { status, stderr } = spawnSync('git', ['apply', '--unidiff-zero', '-'], {
          cwd: dir,
          input: patch,
          encoding: 'utf8',
        });
        expect(status, `${stderr}\n${patch}`).toBe(0);
        expect(readFileSync(join(dir, 'file'), 'utf8')).toBe(after);
      }),
      { numRuns: runs(60) },
    );
  });

  it.each(['git apply -', 'patch -p1'])('the tool %s finds a file with spaces in its name', (command) => {
    const name = 'an order.avsc';
    writeFileSync(join(dir, name), 'a\nb\n');
    const input = unifiedDiff(name, 'a\nb\n', 'a\nc\n');
    const { status, stderr } = spawnSync(command, { cwd: dir, input, encoding: 'utf8', shell: true });
    expect(status, stderr).toBe(0);
    expect(readFileSync(join(dir, name), 'utf8')).toBe('a\nc\n');
  });

  it('the patch omits lines far from a change', () => {
    const many = Array.from({ length: 100 }, (_, i) => `line ${i}\n`);
    const other = [...many];
    other[10] = 'other\n';
    other.splice(60, 1);
    const patch = unifiedDiff('x', many.join(''), other.join(''));
    expect(patch.match(/^@@/gm)?.length).toBe(2);
    expect(patch.split('\n').length).toBeLessThan(22);
  });
});
