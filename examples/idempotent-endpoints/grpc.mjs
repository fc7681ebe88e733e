import { fileURLToPath } from 'node:url';
import { Server, ServerCredentials, status } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { idempotency } from 'millrace/outbox';
import { DAY_MS, pay, pool, port, tenantOf } from './shop.mjs';

const proto = fileURLToPath(new URL('./payments.proto', import.meta.url));
const service = loadSync(proto)['shop.Payments'];

const tenantOfCall = (call) => tenantOf(call.metadata.get('authorization')[0]);
const idem = idempotency({ sql: pool, scope: tenantOfCall, ttlMs: 7 * DAY_MS });
const create = idem.grpc(service.Create, (call, { tx }) => pay(tx, call.request.cents));

const server = new Server();
server.addService(service, {
  Create(call, callback) {
    if (tenantOfCall(call)) return create(call, callback);
    return callback({ code: status.UNAUTHENTICATED, details: 'unknown caller' });
  },
});
server.bindAsync(`127.0.0.1:${port}`, ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
  console.log('listening');
});
