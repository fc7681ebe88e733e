/** `-crash-point`: kills the process at a chosen point, for tests and chaos runs. */
import type { PaymentsConsumerOptions } from '../../outbox/payments/consumer.ts';
import type { PaymentsContext } from './settings.ts';

/** Kills the process at the point of -crash-point. The promise never settles then, so no later step
 *  runs. */
export function crashPoint(context: PaymentsContext): PaymentsConsumerOptions['crashPoint'] {
  const { settings, log } = context;
  return async (point, batches, unfinished) => {
    if (settings['crash-point'] !== point || batches < settings['crash-after'] || unfinished === 0) return;
    log.warn({ point, unfinished, batches }, 'crash point reached');
    process.kill(process.pid, 'SIGKILL');
    await new Promise(() => {});
  };
}
