/** Returns the processor time of this process in milliseconds, as the budget of a search. By wall
 *  clock time, a suspended machine would end a search that has barely begun. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
