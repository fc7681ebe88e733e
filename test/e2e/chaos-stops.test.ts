/** `millrace chaos`: runs that are stopped, and calls that are refused. */
import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { pageIn, RUN_MS, reportOf, runChaos, startChaos } from '../fixtures/chaos.ts';
import { markedEnvironment, markedProcesses } from '../fixtures/marked.ts';
import { pageOf } from '../fixtures/metrics.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const own = launcher();
const { brokers, postgres } = await sharedStack();
const given = [`-brokers=${brokers}`, `-postgres=${postgres}`];

describe('a chaos run that is stopped', () => {
  it(
    'SIGINT during a fault ends the processes and servers of a run, and removes their folder',
    async () => {
      const mark = `chaos-int-${own.suffix}`;
      const flags = ['-faults=pause,net-half-open,idle-transaction', '-duration=1h', '-fault-every=1s'];
      const run = startChaos(own, flags, { env: markedEnvironment(mark) });
      const page = await pageIn(await run.address(), 'faults');
      expect(page.get('chaos_faults_planned')).toBeGreaterThan(100);
      await until(
        'a fault that has ended',
        async () =>
          [...(await pageOf(await run.address()))].some(
            ([name, value]) => name.startsWith('chaos_faults_total') && value > 0,
          ),
        RUN_MS,
      );
      const broker = [...markedProcesses(mark).values()].find((line) => line.includes('kafka.Kafka'));
      const folder = /log4j2\.configurationFile=file:\/\/(\S+)\/run\//.exec(broker ?? '')?.[1];
      expect(existsSync(folder as string)).toBe(true);
      process.kill(run.pid, 'SIGINT');
      expect(await run.ended).toEqual({ code: 130, signal: null });
      await until('no process of the run', () => markedProcesses(mark).size === 0);
      await until('no folder of the run', () => !existsSync(folder as string));
      expect(run.log()).toContain('the run was stopped; replay: millrace chaos -seed=1 ');
    },
    RUN_MS,
  );

  it(
    'SIGKILL of a run leaves no process behind',
    async () => {
      const mark = `chaos-kill-${own.suffix}`;
      const flags = [...given, '-faults=kill', '-duration=1h'];
      const run = startChaos(own, flags, { env: markedEnvironment(mark) });
      await pageIn(await run.address(), 'load');
      await until('the load client', () =>
        [...markedProcesses(mark).values()].some((line) => line.includes(' load ')),
      );
      await run.die();
      await until('no process of the run', () => markedProcesses(mark).size === 0);
    },
    RUN_MS,
  );
});

describe('flags of chaos', () => {
  it.each([
    [['-faults=flood'], '-faults'],
    [['-crash-point=between'], '-crash-point'],
    [['-relay=push'], '-relay'],
    [['-dup-rate=2'], '-dup-rate'],
    [['-report=run.txt'], '-report=run.txt has no known ending'],
    [['-faults=slot-drop'], 'the fault slot-drop needs -relay=wal'],
    [['-postgres=postgres://a@127.0.0.1/b'], '-postgres needs -brokers'],
    [['-brokers=127.0.0.1:1'], '-brokers needs -postgres'],
    [
      ['-brokers=127.0.0.1:1', '-postgres=postgres://a@127.0.0.1/b', '-faults=broker-kill'],
      'the fault broker-kill needs servers that this run starts',
    ],
    [['-brokers=127.0.0.1:1', '-postgres=postgres://a@127.0.0.1/b', '-broker-count=3'], '-broker-count'],
    [['-report=/proc/none/run.json'], 'cannot write the report /proc/none/run.json'],
    [['-unsafe-ttl'], '-dedup-ttl'],
    [['-schema=Not-Plain'], '-schema'],
  ])('chaos %j is refused with exit 2 and one line', async (flags, text) => {
    const { code, stderr, stdout } = await runChaos(own, flags);
    expect(code, stderr).toBe(2);
    const lines = stderr.split('\n').filter((line) => line.startsWith('error: '));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain(text);
    expect(JSON.parse(stdout)).toHaveProperty('error');
  });

  it('-plan prints the planned faults and the replay command, and starts nothing', async () => {
    const { code, stdout } = await runChaos(own, ['-plan', '-seed=9', '-duration=60s']);
    expect(code).toBe(0);
    const { plan, replay } = reportOf(stdout);
    expect(plan.length).toBeGreaterThan(20);
    expect(replay).toContain('millrace chaos -seed=9 -duration=60000ms ');
  });
});
