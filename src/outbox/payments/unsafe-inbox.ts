/** The inbox under -unsafe-ttl: what it cannot tell any more passes as unseen, as it would without a floor. Then only the
 *  UNIQUE on charges.order_id stands before a second charge, and the attempt is kept as suppressed. */
import type { InboxPort } from '../inbox/port.ts';

/** @param table the inbox's name on the connection */
export function unsafeInbox(inbox: Pick<InboxPort, 'claim'>, table: string): Pick<InboxPort, 'claim'> {
  // A copy that comes after it is seen.
  const insert = `INSERT INTO ${table} (msg_id) SELECT msg_id FROM unnest($1::uuid[]) AS given(msg_id) ORDER BY msg_id
    ON CONFLICT DO NOTHING`;
  return {
    async claim(tx, msgIds) {
      const claim = await inbox.claim(tx, msgIds);
      if (claim.undecidable.size === 0) return claim;
      await tx.query(insert, [[...claim.undecidable]]);
      return {
        unseen: new Set([...claim.unseen, ...claim.undecidable]),
        seen: claim.seen,
        undecidable: new Set(),
      };
    },
  };
}
