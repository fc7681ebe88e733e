// Takes parcels: POST /parcels with the header Idempotency-Key. The parcel and its message commit
// in one statement, and a repeat of the key writes nothing.
import { pool, serve } from './parts.mjs';

const TAKE = `WITH parcel AS (
  INSERT INTO parcels (id, cents) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING id)
INSERT INTO outbox (parcel_id) SELECT id FROM parcel`;

async function take(request, response) {
  let text = '';
  for await (const chunk of request) text += chunk;
  const id = request.headers['idempotency-key'];
  try {
    await pool.query(TAKE, [id, JSON.parse(text).cents]);
    response.writeHead(201, { 'content-type': 'application/json' }).end(JSON.stringify({ id }));
  } catch (error) {
    console.error(error.message);
    response.writeHead(503).end();
  }
}

serve(() => true, take);
