/** A database host that stops answering: the relay reports that it is not ready and why, drops its
 *  connections, and continues once the host is back. */
import { describe, expect, it } from 'vitest';
import { silentGate } from '../contract/sql-gate.ts';
import { metric } from '../fixtures/metrics.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { startRelay } from '../fixtures/relay.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import { drained, inMode, pending, readTopic, Sent, worlds } from './relay-kit.ts';
import { dropSlots } from './wal-kit.ts';

const own = launcher();
const stack = await sharedStack();
const world = worlds(() => stack, own.suffix);

interface Ready {
  readonly ready: boolean;
  readonly checks: ReadonlyArray<{ readonly name: string; readonly why?: string }>;
}

describe('silent database', () => {
  it.concurrent.each(['poll', 'wal'])(
    'a relay drops its connections to a silent database and reconnects later: %s',
    async (mode) => {
      const { pool, args, schema, ...rest } = await world();
      const gate = await silentGate(stack.postgres);
      const relay = startRelay(
        own,
        withDefaults(inMode(args, mode), [`-postgres=${gate.url}`, '-answer-timeout=2s', '-lease=2s']),
        `relay-${mode}`,
      );
      const address = await relay.address();
      const ready = async (): Promise<Ready> =>
        (await (await fetch(`http://${address}/ready`)).json()) as Ready;
      const sent = new Sent(pool, 5);
      await sent.round();
      await drained(pool);
      await until('a relay that is ready', async () => ((await ready()).ready ? true : undefined));
      gate.silence();
      await sent.round();
      const why = await until(
        'the reason why the relay is not ready',
        async () => (await ready()).checks.find(({ name }) => name === 'relay')?.why,
      );
      expect(why).toMatch(/the database has not answered a heartbeat|is not reachable/);
      await until('a counted overdue answer', async () =>
        (await metric(address, 'relay_answers_overdue_total')) > 0 ? true : undefined,
      );
      expect(await pending(pool)).toBe(5);
      gate.speak();
      await drained(pool);
      await until('a relay that is ready again', async () => ((await ready()).ready ? true : undefined));
      await sent.round();
      await drained(pool);
      await relay.drain();
      sent.expectOrdered(await readTopic(rest));
      await gate.close();
      if (mode === 'wal') await dropSlots(pool, schema);
    },
  );
});
