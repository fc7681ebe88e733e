/** Request hash that guards a key, in the form of the write path. */
import { hash } from 'node:crypto';
import type { CreateRequest } from './request.ts';

/** Same hash as requestHash, in hex, in one call without an object. Budget: 0.5 us. */
export const requestHashHex = (request: CreateRequest): string =>
  hash(
    'sha256',
    `orders.create.v1\naccount_id=${request.accountId}\namount_cents=${request.amountCents}\n`,
    'hex',
  );
