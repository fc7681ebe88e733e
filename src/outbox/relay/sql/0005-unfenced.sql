-- Transactional ids of owners that went silent, until the owner of the shard has fenced them at the broker.
ALTER TABLE relay_leases ADD COLUMN unfenced text[] NOT NULL DEFAULT '{}';
