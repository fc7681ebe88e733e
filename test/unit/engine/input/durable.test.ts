/** Definition of the input in checkpoints: durable before the first event that depends on it. */
import { expect, it } from 'vitest';
import { savedJob } from '../../../../src/engine/durability/checkpoint/restore.ts';
import type { Job } from '../../../../src/engine/job.ts';
import type { EngineParts } from '../../../../src/engine/parts.ts';
import type { EventRows } from '../../../../src/engine/source/events.ts';
import type { InputDefinition } from '../../../../src/engine/source/input/definition.ts';
import { SimDisk } from '../../../../src/sim/disk.ts';
import { engineIn, MemorySink, MemorySource, type TestEvent } from '../../../property/engine-kit.ts';

const UNDECIDED: InputDefinition = { format: 'undecided' };
const DECIDED: InputDefinition = {
  format: 'json',
  key: 'id:u64',
  time: 'at:ms',
  inferred: ['format', 'key', 'time'],
};
const JOB: Job = {
  ...{ topic: 'events', skewMs: 0, latenessMs: 0, watermark: 'partition', input: UNDECIDED },
  ...{ window: 'tumbling', sizeMs: 10 },
};
const EVENTS = Array.from(
  { length: 6 },
  (_, i): TestEvent => ({ partition: 0, accountId: 1n, value: 1n, eventTs: BigInt(i * 20) }),
);

/** Input that is decided when the first batch is decoded. */
class Input {
  definition: InputDefinition = UNDECIDED;
  readonly resumed: InputDefinition[] = [];
  readonly isReady = true;
  describe(): undefined {}
  takeWaitedMs = (): number => 0;
  resume(saved: InputDefinition): void {
    this.resumed.push(saved);
    this.definition = saved;
  }
}

class DecidingSource extends MemorySource {
  private readonly input: Input;

  constructor(input: Input, batchRows: number) {
    super(EVENTS, 1, batchRows);
    this.input = input;
  }

  override async next(): Promise<EventRows | undefined> {
    const rows = await super.next();
    if (rows !== undefined && this.input.definition === UNDECIDED) this.input.definition = DECIDED;
    return rows;
  }
}

const engineOf = (
  input: Input,
  disk: SimDisk,
  source: MemorySource,
  job = JOB,
  over: Partial<EngineParts> = {},
) =>
  engineIn(
    {
      job,
      partitions: 1,
      shards: 1,
      disk,
      source,
      sink: new MemorySink(),
      checkpointIntervalMs: 1_000_000_000,
    },
    { input, stop: 'end', ...over },
  );

it('a definition is saved before the first event that depends on it, and a restart resumes with it', async () => {
  const disk = new SimDisk();
  const first = new Input();
  const source = new DecidingSource(first, 1);
  source.batchesLeft = 1;
  let saved: Promise<Job | undefined> | undefined;
  const onConsumed = (): void => {
    saved ??= savedJob(disk.view());
  };
  const killed = engineOf(first, disk, source, JOB, { onConsumed });
  await killed.restore();
  await expect(killed.run(new AbortController().signal)).rejects.toThrow('killed');
  expect((await saved)?.input).toEqual(DECIDED);
  const second = new Input();
  const resumed = engineOf(second, disk, new DecidingSource(second, 2));
  await resumed.restore();
  expect(second.resumed).toEqual([DECIDED]);
  expect(resumed.hasSignedKeys).toBe(false);
  const summary = await resumed.run(new AbortController().signal);
  expect(summary.consumed).toBe(EVENTS.length);
});

it('a run with another definition than that of the checkpoint is refused, with the flags to give', async () => {
  const disk = new SimDisk();
  const input = new Input();
  const engine = engineOf(input, disk, new DecidingSource(input, 2));
  await engine.restore();
  await engine.run(new AbortController().signal);
  const other = new Input();
  const where = `a = 'b'`;
  const asked = { ...JOB, input: { format: 'avro', key: 'id', where } as const };
  const refused = engineOf(other, disk, new DecidingSource(other, 2), asked).restore();
  await expect(refused).rejects.toMatchObject({
    code: 'job_changed',
    message: `the checkpoint was made by another job: -format was json, is avro, -where was not given, is a = 'b'`,
    next: expect.stringContaining('start with -format=json again'),
  });
});
