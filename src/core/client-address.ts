/** True for a host, in lower case, whose connections stay on this machine: `localhost`, 127.0.0.0/8, `::1` with or without brackets. */
export function isLoopback(host: string): boolean {
  return /^(localhost|127(\.\d{1,3}){3}|::1|\[::1\])$/.test(host);
}

/** Key of the client behind an IP address: the whole IPv4 address, or the /64 prefix of an IPv6 address, which one household
 *  or machine owns. */
export function clientOf(address: string): string {
  const bare = (address.split('%')[0] as string).toLowerCase();
  const mapped = /^(?:0*:)*(?::ffff|::ffff|ffff):(\d+\.\d+\.\d+\.\d+)$/u.exec(bare);
  if (mapped !== null) return mapped[1] as string;
  if (!bare.includes(':')) return bare;
  const [head = '', tail = ''] = bare.split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === '' ? [] : tail.split(':');
  const gap = bare.includes('::') ? Math.max(0, 8 - before.length - after.length) : 0;
  const groups = [...before, ...Array.from({ length: gap }, () => '0'), ...after].map((group) =>
    group.replace(/^0+(?=.)/u, ''),
  );
  return `${groups.slice(0, 4).join(':')}::/64`;
}
