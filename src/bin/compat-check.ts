/** `millrace compat-check`: would the registry accept this schema, and could every reader read
 *  it? */
import { relative } from 'node:path';
import { coreError, EXIT, findMillraceError } from '../core/errors.ts';
import { defineCommand } from '../shell/command.ts';
import { failureOf } from '../shell/terminal/report.ts';
import { GATE_EXIT } from './compat-check/errors.ts';
import { explainRule } from './compat-check/outputs/explain-rule.ts';
import { failureOutput, isOutput, reportOutput } from './compat-check/outputs/forms.ts';
import { unifiedDiff } from './compat-check/outputs/patch.ts';
import { textReport } from './compat-check/outputs/text.ts';
import { checkProposed } from './compat-check/run.ts';
import { GATE_SETTINGS } from './compat-check/settings.ts';

/** Path for `git apply`: relative to the working directory if the file is below it. */
const fromHere = (path: string): string => {
  const near = relative(process.cwd(), path);
  return near === '' || near.startsWith('..') ? path : near;
};

export const command = defineCommand({
  name: 'compat-check',
  summary: 'Tell whether a proposed schema may be registered, and what it would break.',
  description: `
The gate before a merge: the proposed schema is judged against the versions of its subject, here and by the registry
itself, and the gate opens only where both agree. What breaks is shown with its place, an event that shows it and the
smallest fix. stdout is the answer and nothing else.

  millrace compat-check -subject orders-value -proposed order.avsc
  millrace compat-check -proposed order.proto -against git:origin/main:schemas/order.proto -mode FULL
  millrace compat-check -subject orders-value -proposed order.avsc -fix | git apply
  millrace compat-check -explain AVRO_READER_FIELD_WITHOUT_DEFAULT`,
  settings: { ...GATE_SETTINGS },
  exits: {
    [GATE_EXIT.unknownSubject]: 'the registry does not know the subject',
    [GATE_EXIT.unparsable]: 'the proposed file is no schema',
  },
  async run(context) {
    const { settings } = context;
    context.setReady();
    if (settings.explain !== undefined) {
      const { text, document } = explainRule(settings.explain);
      context.print(text, document);
      return EXIT.done;
    }
    const output = settings.json ? 'json' : settings.output;
    if (!isOutput(output)) throw coreError('bad_value', `-output=${output} is not a choice`);
    if (settings.json && settings.output !== 'text' && settings.output !== 'json')
      throw coreError('usage', '-json and -output contradict each other', { next: 'give one of them' });
    if (settings.fix && output !== 'text' && output !== 'json')
      throw coreError('usage', `-fix prints a patch, and -output=${output} something else`, {
        next: 'give -fix with -output=text or json',
      });
    try {
      const { report, mended } = await checkProposed(context);
      const exit = report.compatible ? EXIT.done : EXIT.no;
      // If the reader of stdout closes the pipe, the exit code must still report incompatibility.
      process.exitCode = exit;
      const patch =
        mended === undefined ? undefined : unifiedDiff(fromHere(report.file), report.source, mended.text);
      if (settings.fix && output === 'text') {
        for (const line of textReport(report).trimEnd().split('\n')) context.say(line);
        if (patch !== undefined) context.print(patch);
        else if (!report.compatible) context.say('No edit of the file was found that mends it.');
        if (mended?.compatible === false) context.say('The patch does not mend all of it.');
      } else {
        const { text, document } = reportOutput(output, report, patch);
        context.print(text, document);
      }
      return exit;
    } catch (thrown) {
      // With -json the shell prints the failure document; every other format prints its own.
      const text = settings.json
        ? undefined
        : failureOutput(output, failureOf(thrown), findMillraceError(thrown));
      if (text !== undefined) context.print(text);
      throw thrown;
    }
  },
});
