/** Job files of the engine on a real broker and registry: the file that a first run prints gives
 *  the same results, flags override it, and a validation compares its fields with the schema. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { exportedRows, runEngine } from '../fixtures/engine.ts';
import { generateEvents } from '../fixtures/gen.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { oracleOf, rowText } from './engine-kit.ts';

const own = launcher();
const stack = await sharedStack();
const EVENTS = 20_000;
const RULES = { sizeMs: 2000n, skewMs: 1000n, latenessMs: 1000n };
const topicOf = (format: string): string => `job-${format}-${own.suffix}`;

let registry = '';
/** Rows of the oracle, whose values are 0 where only events are counted. */
let counted: string[];
let summed: string[];

const stateOf = (name: string): string => `-state-dir=${join(own.dir, name)}`;
const rowsOf = async (name: string): Promise<string[]> => (await exportedRows(own, [stateOf(name)])).sort();

async function jobFile(name: string, text: string): Promise<string> {
  const path = join(own.dir, `${name}.yaml`);
  await writeFile(path, text);
  return path;
}

beforeAll(async () => {
  registry = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
  for (const format of ['binary256', 'avro', 'protobuf'])
    await generateEvents(own, { brokers: stack.brokers, topic: topicOf(format) }, [
      ...[`-count=${EVENTS}`, '-per-ms=5', '-accounts=100', '-tail=0.05', '-tail-max=8s', '-partitions=1'],
      ...(format === 'binary256' ? [] : [`-format=${format}`, `-registry=${registry}`]),
    ]);
  const oracle = await oracleOf(stack.brokers, topicOf('binary256'), RULES);
  const rows = [...oracle.rows()].map((row) => rowText(row).split(','));
  summed = rows.map((cells) => cells.join()).sort();
  counted = rows
    .map(([key, start, end, count, _sum, _min, _max, last, overflow]) =>
      [key, start, end, count, 0, 0, 0, last, overflow].join(),
    )
    .sort();
});

describe('a first run', () => {
  const LOOK = ['-size=2s', '-allowed-skew=1s', '-allowed-lateness=1s', '-bounded', '-where=value != 9e15'];

  it.each(['avro', 'protobuf'])(
    'a first run over a topic of %s prints a job file, which alone gives the same results',
    async (format) => {
      const flags = [
        `-brokers=${stack.brokers}`,
        `-topic=${topicOf(format)}`,
        `-registry=${registry}`,
        ...LOOK,
      ];
      const first = await runEngine(own, [...flags, stateOf(`first-${format}`)]);
      expect(first).toMatchObject({ code: 0 });
      const [text = '', summary] = first.stdout.split(/^(?=consumed )/m);
      expect(summary).toMatch(/^consumed 20000 events/);
      expect(text).toContain(`\nformat: ${format}\n`);
      expect(await rowsOf(`first-${format}`)).toEqual(counted);
      const again = await jobFile(`again-${format}`, text.replace(/^state-dir: .*\n/m, ''));
      const valid = await runEngine(own, ['validate', `-job=${again}`]);
      expect(valid).toMatchObject({
        code: 0,
        stdout: `${again} is a valid job; the fields were compared with ${topicOf(format)}-value version 1; topic ${topicOf(format)} has 1 partition\n`,
      });
      expect(await runEngine(own, [`-job=${again}`, stateOf(`again-${format}`)])).toMatchObject({ code: 0 });
      expect(await rowsOf(`again-${format}`)).toEqual(counted);
      // The printed file has the folder of the first run, so it resumes that run at its end.
      const same = await runEngine(own, [`-job=${await jobFile(`same-${format}`, text)}`]);
      expect(same).toMatchObject({
        code: 0,
        stderr: expect.stringMatching(/"offsets":\[20000\].*"msg":"restored from a checkpoint"/),
      });
    },
  );

  it('the job in the document of -json is a job file too', async () => {
    const flags = [
      `-brokers=${stack.brokers}`,
      `-topic=${topicOf('avro')}`,
      `-registry=${registry}`,
      ...LOOK,
    ];
    const first = await runEngine(own, [...flags, stateOf('document'), '-json']);
    const { job } = JSON.parse(first.stdout) as { readonly job: object };
    const path = await jobFile('document', JSON.stringify(job));
    expect(await runEngine(own, [`-job=${path}`, stateOf('of-document')])).toMatchObject({ code: 0 });
    expect(await rowsOf('of-document')).toEqual(counted);
  });
});

describe('a written job file', () => {
  const job = (format: string, ...lines: readonly string[]): string =>
    [`brokers: '${stack.brokers}'`, `topic: ${topicOf(format)}`, `registry: ${registry}`, ...lines].join(
      '\n',
    );

  it('a job survives a SIGKILL, and a flag overrides the file', async () => {
    const path = await jobFile(
      'written',
      job(
        'avro',
        ...['format: avro', 'key: account_id', 'time: event_ts', 'value: value', 'size: 1h'],
        ...['allowed-skew: 1s', 'allowed-lateness: 1s', 'bounded: true', 'checkpoint-interval: 20ms'],
        ...['batch-rows: 500', `state-dir: ${join(own.dir, 'written')}`],
      ),
    );
    const killed = await runEngine(own, [`-job=${path}`, '-size=2s', '-chaos=kill-after=8000']);
    expect(killed.signal).toBe('SIGKILL');
    expect(await runEngine(own, [`-job=${path}`, '-size=2s'])).toMatchObject({ code: 0 });
    const exported = await runEngine(own, ['export', `-job=${path}`]);
    expect(exported.stdout.trim().split('\n').slice(1).sort()).toEqual(summed);
  });

  it.each(['avro', 'protobuf'])(
    'a validation finds the fields that the schema in %s lacks or has in another type',
    async (format) => {
      const path = await jobFile(
        `fields-${format}`,
        job(
          format,
          ...['key:', '  - account_id', '  - acount', 'time: event_ts', 'value: pad'],
          "where: seq > 3 and stat = 'PAID'",
        ),
      );
      const { code, stdout } = await runEngine(own, ['validate', `-job=${path}`]);
      expect(code).toBe(1);
      const lines = stdout.replaceAll(path, 'job').trimEnd().split('\n');
      expect(lines).toEqual([
        expect.stringMatching(
          /^job:6:5: -key names acount, which the schema does not have .*; .* \[unsupported_field\]$/,
        ),
        expect.stringMatching(
          /^job:8:8: -value=pad is .*, which -value cannot read .*; .* \[unsupported_field\]$/,
        ),
        expect.stringMatching(/^job:9:20: -where names stat, .*; .* \[unsupported_field\]$/),
        'job has 3 problems',
      ]);
    },
  );

  it('a validation finds a topic that does not exist and a format that the schema does not have', async () => {
    const wrong = await jobFile('wrong-format', job('avro', 'format: protobuf'));
    const format = await runEngine(own, ['validate', `-job=${wrong}`]);
    expect(format).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(
        /yaml:4:9: .* version 1 is avro, and format is protobuf; give format: avro/,
      ),
    });
    const path = await jobFile('wrong-topic', job('nothing'));
    expect(await runEngine(own, ['validate', `-job=${path}`, '-offline'])).toMatchObject({ code: 0 });
    const { code, stdout } = await runEngine(own, ['validate', `-job=${path}`]);
    expect(code).toBe(1);
    expect(stdout).toMatch(
      /yaml:2:8: the registry has no subject job-nothing-.*-value; .* \[subject_not_found\]/,
    );
    expect(stdout).toMatch(/yaml:2:8: the brokers have no topic job-nothing-.*; .* \[topic_missing\]/);
  });
});
