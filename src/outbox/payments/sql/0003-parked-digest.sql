-- A topic that was deleted and made again gives its offsets a second time, so a record is known by its place and by what it says:
-- recordDigest (inbox/parked.ts) of its key and value. Of those above 1 MiB, the digest of what the table kept.
ALTER TABLE payments_parked ADD COLUMN digest bytea;
UPDATE payments_parked SET digest = sha256(
  int4send(coalesce(octet_length(key), -1)) || coalesce(key, '') ||
  int4send(coalesce(octet_length(value), -1)) || coalesce(value, ''));
ALTER TABLE payments_parked ALTER COLUMN digest SET NOT NULL, DROP CONSTRAINT payments_parked_pkey;
ALTER TABLE payments_parked ADD PRIMARY KEY (topic, partition, "offset", digest);
