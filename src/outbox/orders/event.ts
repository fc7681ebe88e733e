/** Event of a created order. 64-bit numbers are decimal strings, as in proto3 JSON, so that no
 *  consumer rounds them. */
import type { CreateRequest } from './request.ts';

export const ORDER_CREATED = 'order.created.v1';
export const STATUS_CREATED = 'created';

export function orderCreatedPayload(orderId: string, request: CreateRequest, createdAt: Date): Uint8Array {
  return new TextEncoder().encode(
    JSON.stringify({
      order_id: orderId,
      account_id: request.accountId.toString(),
      amount_cents: request.amountCents.toString(),
      status: STATUS_CREATED,
      created_at: createdAt.toISOString(),
    }),
  );
}
