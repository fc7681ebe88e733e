/** Metrics of a relay's leases. */
import type { Metrics } from '../../core/metrics.ts';
import type { Leases } from './leases.ts';

export function exposeLeases(leases: Leases, metrics: Metrics): void {
  const owner = metrics.gauge(
    'relay_owner',
    '1 while this process publishes a part of the outbox, 0 on standby.',
  );
  const shards = metrics.gauge('relay_owned_shards', 'Shards of the outbox that this relay publishes.');
  const members = metrics.gauge('relay_members', 'Relays that share the outbox.');
  const taken = metrics.counter('relay_takeovers_total', 'Shards taken from a relay that went silent.');
  const lost = metrics.counter('relay_shards_lost_total', 'Shards that another relay took from this one.');
  metrics.onCollect(() => {
    const owned = leases.owned().length;
    owner.set(owned > 0 ? 1 : 0);
    shards.set(owned);
    members.set(leases.members());
    taken.setTotal(leases.takeoverCount());
    lost.setTotal(leases.lostCount());
  });
}
