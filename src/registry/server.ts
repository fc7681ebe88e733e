/** The server's half of the product: stores, rules, HTTP interface. It loads no codec, so that it starts sooner. */
export { registryFallbacks, WIRES, type Wire } from './api/answers.ts';
export { type ForwardTransport, forwardTransport, signForwarded, writeAtLeader } from './api/forward.ts';
export { SCHEMA_LIMITS, type SchemaLimits } from './api/limits.ts';
export {
  REGISTRY_BODY_BYTES_MAX,
  REGISTRY_PAGE_MAX,
  type RegistryApiOptions,
  registryDescription,
  registryRoutes,
} from './api/routes.ts';
export { warnOfStale } from './api/stale.ts';
export { CHECK_MS_MAX } from './checks/checks.ts';
export { CheckThread } from './checks/thread.ts';
export { registryError } from './errors.ts';
export type { RequestGate } from './security/access.ts';
export { BasicScheme } from './security/basic.ts';
export { Gate } from './security/gate.ts';
export {
  fileKeys,
  JWKS_BYTES_MAX,
  type KeySet,
  type KeySource,
  parseKeySet,
  RemoteKeys,
} from './security/jwks.ts';
export { checkAlgorithms, JwtScheme } from './security/jwt.ts';
export {
  hashPassword,
  PASSWORD_BYTES_MAX,
  PASSWORD_USER,
  PASSWORDS_BYTES_MAX,
  parsePasswords,
} from './security/password.ts';
export { RULES_BYTES_MAX, Rules } from './security/rules.ts';
export { WatchedFile } from './security/watched-file.ts';
export { FileLog, REGISTRY_LOG_FILE } from './store/file-log.ts';
export { KafkaLog, type KafkaLogOptions } from './store/kafka-log.ts';
export type { RegistryLog } from './store/log.ts';
export { MemoryLog } from './store/memory-log.ts';
export { Registry } from './store/registry.ts';
export { exportStore, type Imported, importStore } from './store/transfer.ts';
