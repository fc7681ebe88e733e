-- What the wal mode remembers of its replication slot. confirmed_lsn is written before the slot hears it, so a slot that stands above
-- it was made or moved by somebody else. Pending rows with ids up to unswept_to may have no place in the stream; unswept says why.
CREATE TABLE relay_slots (
  slot_name text PRIMARY KEY,
  system_identifier text NOT NULL,
  confirmed_lsn pg_lsn NOT NULL,
  unswept text,
  unswept_to bigint,
  updated_at timestamptz NOT NULL DEFAULT now()
);
