-- Who publishes which part of an outbox. A lease is held while its owner's row in relay_members has not expired by the database's
-- clock and the session of its last beat is there; epoch grows whenever a shard gets another owner, and a mark counts only under
-- the epoch it was published in.
CREATE TABLE relay_members (
  outbox text NOT NULL,
  relay text NOT NULL,
  mode text NOT NULL,
  started_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  backend int NOT NULL,
  backend_start timestamptz NOT NULL,
  PRIMARY KEY (outbox, relay)
);
-- transactional_id: what the owner's producer is known by to the broker; whoever takes the shard from it fences that id first.
CREATE TABLE relay_leases (
  outbox text NOT NULL,
  shard int NOT NULL,
  owner text,
  epoch bigint NOT NULL DEFAULT 0,
  transactional_id text,
  taken_at timestamptz,
  PRIMARY KEY (outbox, shard)
);
