/** Milliseconds of processor time that this process has used: what a search may cost. By the clock of the wall, a
 *  machine that stands still for a moment would end a search that has not begun. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
