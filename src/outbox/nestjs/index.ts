/** Entry point `millrace/outbox/nestjs`: a module that provides the outbox and the inbox by
 *  injection, and a Kafka transport whose handlers run once for each message. It imports nothing
 *  from @nestjs. docs/how-to/nestjs.md shows a service.
 */
export { type KafkaMessage, MillraceContext } from './message.ts';
export {
  type MillraceDynamicModule,
  MillraceInbox,
  MillraceModule,
  type MillraceModuleFactory,
  type MillraceModuleOptions,
  MillraceOutbox,
} from './module.ts';
export {
  currentTransaction,
  MillraceTransport,
  type NestConsumer,
  type NestTransportOptions,
} from './transport.ts';
