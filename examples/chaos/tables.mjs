// Creates the tables of the example: node tables.mjs POSTGRES_URL
import pg from 'pg';

const schema = process.env.SHOP_SCHEMA ?? 'public';
const client = new pg.Client({ connectionString: process.argv[2] });
await client.connect();
await client.query(`CREATE SCHEMA IF NOT EXISTS ${schema}`);
await client.query(`SET search_path = ${schema}`);
await client.query('CREATE TABLE IF NOT EXISTS parcels (id uuid PRIMARY KEY, cents int NOT NULL)');
await client.query(`CREATE TABLE IF NOT EXISTS outbox (
  id bigserial PRIMARY KEY, parcel_id uuid NOT NULL, sent_at timestamptz)`);
// Without UNIQUE a label is printed for each delivery of a message.
const rule = process.env.FORGETS_UNIQUE === 'yes' ? '' : ' UNIQUE';
await client.query(`CREATE TABLE IF NOT EXISTS labels (
  id bigserial PRIMARY KEY, message_id bigint NOT NULL${rule}, parcel_id uuid NOT NULL)`);
await client.end();
