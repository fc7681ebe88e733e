/** UUIDs that are derived from a name. */
import { describe, expect, it } from 'vitest';
import { uuidV5 } from '../../../src/outbox/ids.ts';

describe('a UUIDv5', () => {
  it('the example of RFC 9562 has its published value', () => {
    expect(uuidV5('6ba7b810-9dad-11d1-80b4-00c04fd430c8', 'www.example.com')).toBe(
      '2ed6657d-e927-568b-95e1-2665a8aea6a2',
    );
  });
});
