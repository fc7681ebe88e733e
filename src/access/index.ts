/** Access control as servers use it. */

export { BasicScheme } from './basic.ts';
export { Gate, type GateOptions } from './gate.ts';
export {
  fileKeys,
  JWKS_BYTES_MAX,
  type KeySet,
  type KeySource,
  parseKeySet,
  RemoteKeys,
} from './jwks.ts';
export { checkAlgorithms, JwtScheme } from './jwt.ts';
export {
  hashPassword,
  PASSWORD_BYTES_MAX,
  PASSWORD_USER,
  PASSWORDS_BYTES_MAX,
  parsePasswords,
} from './password.ts';
export type { RequestGate } from './request.ts';
export { RULES_BYTES_MAX, Rules } from './rules.ts';
export { WatchedFile } from './watched-file.ts';
