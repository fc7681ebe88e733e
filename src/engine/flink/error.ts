/** Parts of a job that Flink SQL cannot express. */
import { engineError } from '../errors.ts';

/** Error of a setting that no rewrite carries to Flink. */
export const unsayable = (setting: string, text: string, why: string, next: string): Error =>
  engineError('flink_unsupported', `-${setting}${text === '' ? '' : `=${text.slice(0, 200)}`} ${why}`, {
    next,
    details: { setting },
  });
