/** Names of versions in requests, and the errors for missing subjects and versions. */
import type { MillraceError } from '../../../core/errors.ts';
import { registryError } from '../../errors.ts';
import { VERSION_MAX } from './records.ts';

/** @throws invalid_version */
export function parseVersion(wanted: string): number | 'latest' {
  if (wanted === 'latest' || wanted === '-1') return 'latest';
  const number = /^\d{1,10}$/.test(wanted) ? Number(wanted) : 0;
  if (number < 1 || number > VERSION_MAX) {
    throw registryError(
      'invalid_version',
      `The specified version '${wanted}' is not a valid version id. Allowed values are between [1, 2^31-1] and the string "latest"`,
    );
  }
  return number;
}

export function subjectNotFound(subject: string): MillraceError {
  return registryError('subject_not_found', `Subject '${subject}' not found.`);
}

export function versionNotFound(wanted: string): MillraceError {
  return registryError('version_not_found', `Version ${wanted} not found.`);
}
