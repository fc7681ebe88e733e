/** A transaction that a service already has open, of whatever client: what `append` and `once` write through. Both a
 *  session of our SQL port and a client of the `pg` package fit.
 *
 *  Everything handed to `query` is text, a number, a Buffer, null, or an array of these, so that no client has to know our types;
 *  everything read from it is cast to text in the statement.
 */
export interface OpenTransaction {
  query(
    text: string,
    // biome-ignore lint/suspicious/noExplicitAny: clients type their parameters in ways that have only this in common
    params: any[],
  ): Promise<{
    readonly rows: ReadonlyArray<Readonly<Record<string, unknown>>>;
    readonly rowCount: number | null;
  }>;
}

/** A table as `name` or `schema.name`, each part lower case and plain, so that it needs no quoting in SQL text. */
export const TABLE_NAME = /^(?:[a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,62}$/;
