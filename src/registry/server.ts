/** Server part of the product: stores, rules, HTTP interface. It loads no codec, so that a server
 *  starts sooner.
 */
export { registryFallbacks, WIRES, type Wire } from './api/answers.ts';
export { ForwardTrust, forwardTransport, signForwarded, writeAtLeader } from './api/forward.ts';
export { SCHEMA_LIMITS, type SchemaLimits } from './api/limits.ts';
export {
  REGISTRY_BODY_BYTES_MAX,
  REGISTRY_PAGE_MAX,
  type RegistryApiOptions,
  registryDescription,
  registryRoutes,
} from './api/routes.ts';
export { warnOfStale } from './api/stale.ts';
export { registryError } from './errors.ts';
export { FileLog, REGISTRY_LOG_FILE } from './store/file/log.ts';
export { KafkaLog, type KafkaLogOptions } from './store/kafka/log.ts';
export type { RegistryLog } from './store/log.ts';
export { MemoryLog } from './store/memory-log.ts';
export { Registry } from './store/registry.ts';
export { exportStore, type Imported, importStore } from './store/transfer.ts';
export { CHECK_MS_MAX } from './worker/checks.ts';
export { CheckThread } from './worker/thread.ts';
