-- Where the relays of an outbox publish it: the same for all of them. NULL until the first that says it.
ALTER TABLE relay_leases ADD COLUMN topic text;
