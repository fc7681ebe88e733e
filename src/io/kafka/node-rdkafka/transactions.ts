/** Transactions of the node-rdkafka driver. Steps block libuv's workers in slices, so that a step
 *  against an unreachable broker does not occupy a worker for long. */
import type { LibrdKafkaError } from 'node-rdkafka';
import { brokerEvent, closedError, ERR, thrownEvent, transactionFailure } from '../errors.ts';
import type { TransactionalProducer, TransactionFailure } from '../port.ts';
import { NodeProducer } from './producer.ts';

/** Duration of a slice. A step that exceeds it continues inside librdkafka, and the same call
 *  resumes it. */
const SLICE_MS = 500;
const RETRY_MS = 20;

type Answer = (error: LibrdKafkaError | undefined | null) => void;
type Flags = Readonly<Record<'isFatal' | 'isRetriable' | 'isTxnRequiresAbort', boolean | undefined>>;

export class NodeTransactionalProducer extends NodeProducer implements TransactionalProducer {
  init(timeoutMs: number): Promise<TransactionFailure | undefined> {
    return this.step(timeoutMs, (slice, answer) => this.client.initTransactions(slice, answer));
  }

  begin(): Promise<TransactionFailure | undefined> {
    return this.step(0, (_, answer) => this.client.beginTransaction(answer));
  }

  commit(timeoutMs: number): Promise<TransactionFailure | undefined> {
    return this.step(timeoutMs, (slice, answer) => this.client.commitTransaction(slice, answer));
  }

  abort(timeoutMs: number): Promise<TransactionFailure | undefined> {
    return this.step(timeoutMs, (slice, answer) => this.client.abortTransaction(slice, answer));
  }

  private async step(
    timeoutMs: number,
    act: (sliceMs: number, answer: Answer) => void,
  ): Promise<TransactionFailure | undefined> {
    const deadline = performance.now() + timeoutMs;
    for (;;) {
      if (this.closing !== undefined) throw closedError('producer');
      const left = Math.max(1, Math.ceil(deadline - performance.now()));
      const stepping = new Promise<LibrdKafkaError | undefined>((resolve) =>
        act(Math.min(left, SLICE_MS), (given) => resolve(given ?? undefined)),
      );
      this.stepping = stepping;
      const error = await stepping;
      if (error === undefined) return undefined;
      const flags = error as unknown as Flags;
      const seen = thrownEvent(error);
      const event = brokerEvent(seen.code, seen.message, {}, flags.isFatal === true);
      const failure = transactionFailure(event, {
        retriable: flags.isRetriable === true,
        abortable: flags.isTxnRequiresAbort === true,
      });
      if (failure.kind !== 'retry' || performance.now() >= deadline) return failure;
      // The broker may still be ending the transaction of an older producer, so pause before the
      // retry.
      if (event.code !== ERR.TIMED_OUT) await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}
