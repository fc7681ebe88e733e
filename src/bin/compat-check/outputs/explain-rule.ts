/** Renders the page of a rule for `-explain` and docs/reference/rules. */
import { coreError } from '../../../core/errors.ts';
import { nearest } from '../../../core/settings.ts';
import { RULES, type Rule, ruleOf } from '../../../registry/rules/catalogue.ts';

const LANGUAGES: Readonly<Record<string, string>> = { AVRO: 'json', PROTOBUF: 'proto', JSON: 'json' };
export const SEVERITIES: Readonly<Record<Rule['severity'], string>> = {
  fail: 'refused: some event fails to decode or decodes to a wrong value',
  unjudged: 'refused: no verdict is possible',
  lossy: 'lossy: accepted, unless the subject is set to `lossy: REJECT`',
  note: 'accepted, with a note',
};

function block(format: string, text: string): string[] {
  const pretty = format === 'PROTOBUF' ? text.trimEnd() : JSON.stringify(JSON.parse(text), undefined, 2);
  return ['', `\`\`\`${LANGUAGES[format] ?? ''}`, ...pretty.split('\n'), '```', ''];
}

export function rulePage(rule: Rule): string {
  const { example } = rule;
  const policy = rule.policy === 'any' ? 'any' : rule.policy;
  const lines = [
    `# ${rule.id}`,
    '',
    `${rule.title}.`,
    '',
    `- Format: ${rule.format}`,
    `- Policy: ${policy}`,
    `- Verdict: ${SEVERITIES[rule.severity]}`,
    `- Source: ${rule.source}`,
    '',
    '## What happens',
    '',
    rule.why,
    '',
    '## What to do',
    '',
    rule.fix,
    '',
  ];
  if (example !== undefined) {
    const reads =
      example.direction === 'FORWARD'
        ? 'an earlier schema reads the proposed one'
        : 'the proposed schema reads';
    lines.push('## Example', '');
    lines.push(
      example.direction === 'HISTORY'
        ? 'In every mode. Before:'
        : `${example.direction}: ${example.direction === 'FORWARD' ? reads : `${reads} an earlier one`}. Before:`,
    );
    for (const [index, text] of example.earlier.entries()) {
      if (index > 0) lines.push('Then:');
      lines.push(...block(example.format, text));
    }
    lines.push('Proposed:', ...block(example.proposedFormat ?? example.format, example.proposed));
  }
  return `${lines.join('\n').trimEnd()}\n`;
}

/** @throws bad_value */
export function explainRule(asked: string): { readonly text: string; readonly document: unknown } {
  const id = asked.trim().toUpperCase().replaceAll('-', '_');
  const rule = ruleOf(id);
  if (rule !== undefined) return { text: rulePage(rule), document: rule };
  const near = nearest(
    id,
    RULES.map((one) => one.id),
  );
  throw coreError('bad_value', `-explain=${asked.slice(0, 64)} is no rule`, {
    next:
      near === undefined
        ? 'docs/reference/rules/README.md lists them'
        : `did you mean ${near}? docs/reference/rules/README.md lists them all`,
  });
}
