/** HPACK decoder with the examples of its specification, and with invalid input. */
import { describe, expect, it } from 'vitest';
import {
  HEADER_BYTES_MAX,
  HeaderList,
  HpackDecoder,
  writeHeaders,
} from '../../../../src/io/grpc/http2/hpack.ts';
import { readHuffman } from '../../../../src/io/grpc/http2/huffman.ts';
import { literal } from '../../../contract/h2-raw.ts';

const hex = (text: string): Buffer => Buffer.from(text.replaceAll(' ', ''), 'hex');

function read(decoder: HpackDecoder, bytes: Buffer): readonly string[] | 'unreadable' | 'unsound' {
  const list = new HeaderList();
  // The decoder must ignore bytes around the block.
  const within = Buffer.concat([Buffer.of(0x82, 0x82), bytes, Buffer.of(0x82)]);
  if (!decoder.read(within, 2, 2 + bytes.length, list)) return 'unreadable';
  return list.sound ? list.fields : 'unsound';
}

const REQUESTS: readonly (readonly string[])[] = [
  [':method', 'GET', ':scheme', 'http', ':path', '/', ':authority', 'www.example.com'],
  [
    ':method',
    'GET',
    ':scheme',
    'http',
    ':path',
    '/',
    ':authority',
    'www.example.com',
    'cache-control',
    'no-cache',
  ],
  [
    ...[':method', 'GET', ':scheme', 'https', ':path', '/index.html', ':authority', 'www.example.com'],
    ...['custom-key', 'custom-value'],
  ],
];
const DATES = ['Mon, 21 Oct 2013 20:13:21 GMT', 'Mon, 21 Oct 2013 20:13:22 GMT'] as const;
const cached = (status: string): readonly string[] => [
  ...[':status', status, 'cache-control', 'private', 'date', DATES[0]],
  ...['location', 'https://www.example.com'],
];
const RESPONSES: readonly (readonly string[])[] = [
  cached('302'),
  cached('307'),
  [
    ...[
      ':status',
      '200',
      'cache-control',
      'private',
      'date',
      DATES[1],
      'location',
      'https://www.example.com',
    ],
    ...['content-encoding', 'gzip', 'set-cookie', 'foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1'],
  ],
];
/** Table of 256 bytes, as the examples of responses use it. */
const TABLE_256 = hex('3fe101');

describe('the examples of RFC 7541, appendix C', () => {
  it.each<[string, string, readonly string[]]>([
    [
      'C.2.1',
      '400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572',
      ['custom-key', 'custom-header'],
    ],
    ['C.2.2', '040c 2f73 616d 706c 652f 7061 7468', [':path', '/sample/path']],
    ['C.2.3', '1008 7061 7373 776f 7264 0673 6563 7265 74', ['password', 'secret']],
    ['C.2.4', '82', [':method', 'GET']],
  ])('example %s of RFC 7541, appendix C, is decoded', (_name, bytes, fields) => {
    expect(read(new HpackDecoder(), hex(bytes))).toEqual(fields);
  });

  it.each<[string, Buffer, readonly string[], readonly (readonly string[])[]]>([
    [
      'C.3, requests',
      Buffer.alloc(0),
      [
        '8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d',
        '8286 84be 5808 6e6f 2d63 6163 6865',
        '8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65',
      ],
      REQUESTS,
    ],
    [
      'C.4, requests in Huffman code',
      Buffer.alloc(0),
      [
        '8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff',
        '8286 84be 5886 a8eb 1064 9cbf',
        '8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf',
      ],
      REQUESTS,
    ],
    [
      'C.5, responses that evict',
      TABLE_256,
      [
        '4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d',
        '4803 3330 37c1 c0bf',
        '88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31',
      ],
      RESPONSES,
    ],
    [
      'C.6, responses in Huffman code that evict',
      TABLE_256,
      [
        '4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3',
        '4883 640e ffc1 c0bf',
        '88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07',
      ],
      RESPONSES,
    ],
  ])(
    'the blocks of an example in RFC 7541, appendix C, are decoded one by one: %s',
    (_name, before, blocks, lists) => {
      const decoder = new HpackDecoder();
      for (const [i, bytes] of blocks.entries())
        expect(read(decoder, Buffer.concat([i === 0 ? before : Buffer.alloc(0), hex(bytes)]))).toEqual(
          lists[i],
        );
    },
  );
});

describe('header block', () => {
  it.each<[string, string]>([
    ['index 0', '80'],
    ['an index beyond both tables', 'be'],
    ['the name of an index beyond both tables', '7e0161'],
    ['an integer of more than 28 bits', 'ffffffffff7f'],
    ['an integer without an end', 'ff80'],
    ['a name that is longer than the block', '000561'],
    ['a value that is longer than the block', '0001610561'],
    ['no value', '000161'],
    ['EOS in a text', '00 01 61 84 ffffffff'],
    ['padding of eight bits', '00 01 61 82 1fff'],
    ['padding that is not of EOS', '00 01 61 81 18'],
    ['a table of more than was offered', '3fe21f'],
    ['a size of the table after a field', '8220'],
  ])('a header block with %s cannot be read', (_what, bytes) => {
    expect(read(new HpackDecoder(), hex(bytes))).toBe('unreadable');
  });

  it('a header block may set the size of its table twice, at its beginning, up to 4096 bytes', () => {
    expect(read(new HpackDecoder(), hex('20 3fe11f 82'))).toEqual([':method', 'GET']);
  });

  it('an entry that is larger than the table empties the table', () => {
    const decoder = new HpackDecoder();
    expect(read(decoder, Buffer.concat([hex('3f01'), hex('40 0161 0162 be')]))).toBe('unreadable');
    const other = new HpackDecoder();
    expect(read(other, hex('40 0161 0162 be'))).toEqual(['a', 'b', 'a', 'b']);
    const large = literal('name', 'v'.repeat(4096));
    large[0] = 0x40;
    expect(read(other, large)).toHaveLength(2);
    expect(read(other, hex('be'))).toBe('unreadable');
  });

  it('the table keeps as many entries as fit and evicts the oldest', () => {
    const decoder = new HpackDecoder();
    // 128 entries of 32 bytes would need empty names. These entries have 34 bytes, so 120 fit.
    for (let i = 0; i < 121; i++) {
      const entry = Buffer.of(0x40, 1, 97, 1, 33 + (i % 90));
      expect(read(decoder, entry)).toEqual(['a', String.fromCharCode(33 + (i % 90))]);
    }
    expect(read(decoder, hex('be'))).toEqual(['a', String.fromCharCode(33 + (120 % 90))]);
    // Index 62 + 119: the oldest remaining entry.
    expect(read(decoder, Buffer.of(0xff, 62 + 119 - 127))).toEqual(['a', String.fromCharCode(33 + 1)]);
    expect(read(decoder, Buffer.of(0xff, 62 + 120 - 127))).toBe('unreadable');
  });

  it('the table is filled to the last byte', () => {
    const decoder = new HpackDecoder();
    // 64 entries of 64 bytes.
    const entry = Buffer.concat([Buffer.of(0x40, 1, 97, 31), Buffer.alloc(31, 'v')]);
    for (let i = 0; i < 64; i++) expect(read(decoder, entry)).toEqual(['a', 'v'.repeat(31)]);
    expect(read(decoder, Buffer.of(0x80 | (62 + 63)))).toEqual(['a', 'v'.repeat(31)]);
    expect(read(decoder, Buffer.of(0x80 | (62 + 64)))).toBe('unreadable');
  });

  it.each<[string, string, string]>([
    ['an upper-case name', 'Name', 'v'],
    ['an empty name', '', 'v'],
    ['a blank in a name', 'na me', 'v'],
    ['a colon within a name', 'na:me', 'v'],
    ['a colon alone', ':', 'v'],
    ['a byte above ASCII in a name', 'n\u00e4me', 'v'],
    ['a line feed in a value', 'name', 'a\nb'],
    ['a carriage return in a value', 'name', 'a\rb'],
    ['a NUL in a value', 'name', 'a\0b'],
    ['a DEL in a value', 'name', 'a\x7fb'],
    ['a blank before a value', 'name', ' a'],
    ['a tab after a value', 'name', 'a\t'],
  ])('a header block with %s is read as invalid, and so is every use of its entry', (_what, name, value) => {
    const bytes = literal(name, value);
    expect(read(new HpackDecoder(), bytes)).toBe('unsound');
    const decoder = new HpackDecoder();
    const indexed = Buffer.from(bytes);
    indexed[0] = 0x40;
    expect(read(decoder, indexed)).toBe('unsound');
    expect(read(decoder, hex('be'))).toBe('unsound');
    // The name of the entry may be valid alone.
    const again = read(decoder, Buffer.concat([hex('7e'), Buffer.of(1, 97)]));
    expect(again).toEqual(/^[a-z]+$/.test(name) ? [name, 'a'] : 'unsound');
  });

  it('a header value may contain blanks and bytes above ASCII', () => {
    expect(read(new HpackDecoder(), literal('name', 'a \t b\u00e9\u00ff'))).toEqual([
      'name',
      'a \t b\u00e9\u00ff',
    ]);
    expect(read(new HpackDecoder(), literal('name', ''))).toEqual(['name', '']);
  });

  it('a header block above the bound is read to its end and not stored', () => {
    const decoder = new HpackDecoder();
    const entry = literal('name', 'v'.repeat(2000));
    entry[0] = 0x40;
    const list = new HeaderList();
    const bytes = Buffer.concat([entry, Buffer.alloc(60_000, 0xbe), literal('last', 'one')]);
    expect(decoder.read(bytes, 0, bytes.length, list)).toBe(true);
    expect(list.tooLong).toBe(true);
    expect(list.fields.length / 2).toBe(Math.floor(HEADER_BYTES_MAX / (2000 + 4 + 32)));
    expect(read(decoder, hex('be'))).toEqual(['name', 'v'.repeat(2000)]);
  });
});

describe('Huffman code', () => {
  it('every byte is decoded from its Huffman code', () => {
    // Codes from the table of the specification, one of each length.
    const into = Buffer.alloc(16);
    const text = (bits: string): number | undefined => {
      const padded = bits.padEnd(Math.ceil(bits.length / 8) * 8, '1');
      const bytes = Buffer.from((padded.match(/.{8}/g) ?? []).map((byte) => Number.parseInt(byte, 2)));
      return readHuffman(bytes, 0, bytes.length, into) === 1 ? into[0] : undefined;
    };
    const codes: ReadonlyArray<readonly [number, string]> = [
      [48, '00000'],
      [32, '010100'],
      [58, '1011100'],
      [38, '11111000'],
      [33, '1111111000'],
      [39, '11111111010'],
      [35, '111111111010'],
      [0, '1111111111000'],
      [94, '11111111111100'],
      [60, '111111111111100'],
      [92, '1111111111111110000'],
      [128, '11111111111111100110'],
      [153, '111111111111111011100'],
      [129, '1111111111111111010010'],
      [1, '11111111111111111011000'],
      [9, '111111111111111111101010'],
      [199, '1111111111111111111101100'],
      [192, '11111111111111111111100000'],
      [203, '111111111111111111111011110'],
      [2, '1111111111111111111111100010'],
      [10, '111111111111111111111111111100'],
      [13, '111111111111111111111111111101'],
      [22, '111111111111111111111111111110'],
    ];
    for (const [byte, bits] of codes) expect(text(bits), String(byte)).toBe(byte);
    expect(text('1'.repeat(30))).toBeUndefined();
  });
});

describe('written header blocks', () => {
  it('header blocks of answers are decoded as they were written, whatever their length', () => {
    const fields = [
      ...[':status', '200', 'content-type', 'application/grpc+proto', 'grpc-message', 'x'.repeat(3000)],
      ...['grpc-status', '0', 'a', '', 'b', 'v'.repeat(126), 'c', 'v'.repeat(127), 'd', 'v'.repeat(128)],
    ];
    expect(read(new HpackDecoder(), writeHeaders(fields))).toEqual(fields);
  });
});
