// The call of the payment provider. Millrace repeats it until its outcome is known, each time with
// the same id, by which the provider recognizes a payment that it has made already.
import { type EffectHandler, effectRefused } from 'millrace/outbox';

interface Input {
  readonly orderId: string;
  readonly cents: number;
}

export const charge: EffectHandler = {
  async call({ id, input }, signal) {
    const response = await fetch(`${process.env['PROVIDER_URL']}/charges`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': id },
      body: JSON.stringify({ cents: (input as Input).cents }),
      signal,
    });
    if (response.status === 402) throw effectRefused('the card was declined');
    if (!response.ok) throw new Error(`the provider answered ${response.status}`);
    return response.json();
  },
  // Commits with the outcome of the call.
  async done(tx, { input }, payment) {
    const { id } = payment as { readonly id: string };
    await tx.query('UPDATE invoices SET charge = $2 WHERE order_id = $1', [(input as Input).orderId, id]);
  },
  timeoutMs: 10_000,
};
