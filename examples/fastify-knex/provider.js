// A payment provider to try the service with: it charges each idempotency key once. With
// LOST=0.5, half of its answers are lost after the charge was made.
import { createServer } from 'node:http';

const charges = new Map();
const server = createServer(async (req, res) => {
  const chunks = [];
  for await (const chunk of req) chunks.push(chunk);
  if (req.method === 'POST') {
    const key = req.headers['idempotency-key'];
    const { cents } = JSON.parse(Buffer.concat(chunks).toString());
    if (!charges.has(key)) charges.set(key, { id: `ch_${charges.size + 1}`, cents });
    if (Math.random() < Number(process.env.LOST ?? 0)) return req.socket.destroy();
    return res.end(JSON.stringify(charges.get(key)));
  }
  return res.end(JSON.stringify([...charges.values()]));
});
server.listen(Number(process.env.PORT ?? 4000), '127.0.0.1', () => console.log('listening'));
process.once('SIGTERM', () => server.close());
