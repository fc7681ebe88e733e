export async function up(knex) {
  await knex.schema.createTable('orders', (table) => {
    table.uuid('id').primary().defaultTo(knex.fn.uuid());
    table.text('customer').notNullable();
    table.integer('cents').notNullable();
  });
  await knex.schema.createTable('invoices', (table) => {
    table.bigIncrements('id');
    table.uuid('order_id').notNullable().index();
    table.integer('cents').notNullable();
    // Id of the payment at the provider; null until it is charged.
    table.text('charge');
  });
}

export async function down(knex) {
  await knex.schema.dropTable('invoices');
  await knex.schema.dropTable('orders');
}
