-- Columns by which a row chooses its record, as in the outbox of a service. Orders uses the headers alone, for the tracestate of a
-- request. A table has all of them or none.
ALTER TABLE outbox
  ADD COLUMN IF NOT EXISTS aggregate_key text,
  ADD COLUMN IF NOT EXISTS partition_key text,
  ADD COLUMN IF NOT EXISTS topic text,
  ADD COLUMN IF NOT EXISTS headers json,
  ADD COLUMN IF NOT EXISTS content_type text;
