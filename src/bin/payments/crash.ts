/** `-crash-point`: where payments ends itself, for tests and chaos runs. */
import type { PaymentsConsumerOptions } from '../../outbox/payments/consumer.ts';
import type { PaymentsContext } from './settings.ts';

/** Ends the process where -crash-point says; nothing behind it happens. */
export function crashPoint(context: PaymentsContext): PaymentsConsumerOptions['crashPoint'] {
  const { settings, log } = context;
  return async (point, batches, unfinished) => {
    if (settings['crash-point'] !== point || batches < settings['crash-after'] || unfinished === 0) return;
    log.warn({ point, unfinished, batches }, 'crash point reached');
    process.kill(process.pid, 'SIGKILL');
    await new Promise(() => {});
  };
}
