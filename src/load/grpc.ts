/** Orders over gRPC for the load client, in the terms of its ledger: a reply has the status and the
 *  body that POST /orders gives for the same outcome, because a key may be repeated over the other
 *  transport and must then get the same answer. */
import type { GrpcClient } from '../io/grpc/client-port.ts';
import type { HttpClientReply } from '../io/http/client-port.ts';
import { readCreateResponse, writeCreateRequest } from '../outbox/orders/grpc/messages.ts';
import type { Intent } from './intents.ts';

const CREATE = '/orders.v1.Orders/Create';
const CREATED = 201;
const OTHER = 500;

/** Status of POST /orders for a status number of gRPC. */
const HTTP_STATUS: Readonly<Record<number, number>> = {
  0: CREATED,
  3: 400,
  6: 409,
  7: 403,
  8: 429,
  16: 401,
};

/** Creates an order. @throws unreachable, timeout */
export async function createOverGrpc(
  client: GrpcClient,
  intent: Intent,
  authorization: string | undefined,
): Promise<HttpClientReply> {
  const reply = await client.call({
    path: CREATE,
    message: writeCreateRequest(BigInt(intent.accountId), BigInt(intent.amountCents)),
    metadata: {
      'idempotency-key': intent.key,
      ...(authorization === undefined ? {} : { authorization }),
    },
  });
  return {
    status: HTTP_STATUS[reply.code] ?? OTHER,
    headers: reply.trailers,
    body: new TextEncoder().encode(reply.code === 0 ? readCreateResponse(reply.message) : reply.text),
  };
}
