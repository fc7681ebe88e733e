/** Flame graphs: what perf prints becomes folded stacks, and those one picture whose widths are their shares. */
import { describe, expect, it } from 'vitest';
import { flameSvg, foldCpuProfile, foldPerf, latestNames, sharesOf } from '../../../tools/flame.ts';

const PERF = `
node  4283 37648.102290:    2004008 cpu-clock:ppp: 
	ffffffff813a2413 finish_task_switch.isra.0+0x93 ([kernel.kallsyms])
	    7f4e0002b34f JS:*hot file:///somewhere/dist/src/outbox/a.js:1:13+0x14f (/tmp/perf-4283.map)
	         14cde03 Builtins_JSEntry+0x83 (/usr/bin/node)
	          c494db v8::internal::(anonymous namespace)::Invoke+0x12b (/usr/bin/node)

node  4283/4283 [001] 37648.109703:    2004008 cpu-clock:ppp: 
	    7f4e0002b34f JS:*hot file:///somewhere/dist/src/outbox/a.js:1:13+0x14f (/tmp/perf-4283.map)
	    7f4e0002b34f JS:^hot file:///somewhere/dist/src/outbox/a.js:1:13+0x20 (/tmp/perf-4283.map)
	         14cde03 Builtins_JSEntry+0x83 (/usr/bin/node)
	          c494db v8::internal::(anonymous namespace)::Invoke+0x12b (/usr/bin/node)

rdk:broker 1  4290 37648.110000:    2004008 cpu-clock:ppp: 
	    7f4e11112222 rd_crc32c+0x12 (/opt/librdkafka.so.1)
	    7f4e11112223 [unknown] (/opt/librdkafka.so.1)
	    7f4e11112224 [unknown] (/usr/bin/node)
`;

describe('foldPerf', () => {
  const folded = foldPerf(PERF);

  it('foldPerf orders frames from the root, without offsets, machine paths and unnamed frames', () => {
    const invoke = 'v8::internal::(anonymous namespace)::Invoke;Builtins_JSEntry';
    const hot = 'hot src/outbox/a.js:1_[j]';
    expect([...folded]).toEqual([
      [`node;${invoke};${hot};finish_task_switch.isra.0_[k]`, 1],
      [`node;${invoke};${hot}`, 1],
      ['rdk:broker 1;librdkafka.so.1_[l];rd_crc32c_[l]', 1],
    ]);
  });

  it('foldPerf counts equal stacks together', () => {
    expect([...foldPerf(PERF + PERF).values()]).toEqual([2, 2, 2]);
  });

  it('the shares of a folded profile are given by the kind of the leaves', () => {
    expect(sharesOf(folded)).toBe('JavaScript 33%, Node.js and V8 0%, libraries and addons 33%, kernel 33%');
    expect(sharesOf(new Map())).toBe('JavaScript 0%, Node.js and V8 0%, libraries and addons 0%, kernel 0%');
  });

  it.each(['', '\n\n', 'no head line at all\n\tdeadbeef x (y)', 'node 1 2.0: 3 cycles:\n'])(
    'foldPerf accepts the malformed input %j',
    (text) => {
      expect(foldPerf(text).size).toBeLessThanOrEqual(1);
    },
  );
});

describe('foldCpuProfile', () => {
  const frame = (functionName: string, url = '', lineNumber = -1) => ({ functionName, url, lineNumber });
  const nodes = [
    { id: 1, callFrame: frame('(root)'), children: [2, 3, 6] },
    { id: 2, callFrame: frame('(idle)') },
    { id: 3, callFrame: frame('run', 'file:///somewhere/dist/src/a.js', 4), children: [4, 5] },
    { id: 4, callFrame: frame('', 'node:net', 9) },
    { id: 5, callFrame: frame('writev') },
    { id: 6, callFrame: frame('(garbage collector)') },
  ];

  it('foldCpuProfile counts a stack for every sample, and none where the thread waited', () => {
    expect([...foldCpuProfile({ nodes, samples: [2, 4, 4, 3, 2, 5, 6, 2] })]).toEqual([
      ['run src/a.js:5_[j];(anonymous) node:net:10_[j]', 2],
      ['run src/a.js:5_[j]', 1],
      ['run src/a.js:5_[j];writev', 1],
      ['(garbage collector)', 1],
    ]);
    expect(foldCpuProfile({ nodes }).size).toBe(0);
  });
});

describe('latestNames', () => {
  it('latestNames keeps the latest of overlapping code, in the order of addresses', () => {
    const map = [
      '1000 40 Eval:~ old',
      '2000 80 JS:~kept',
      '1020 10 JS:~inside',
      '1f80 100 JS:*over',
      'no line',
      '',
    ];
    expect(latestNames(map.join('\n'))).toBe('1020 10 JS:~inside\n1f80 100 JS:*over\n');
    expect(latestNames('')).toBe('\n');
  });

  it('latestNames keeps neighbours that only touch', () => {
    const map = '1000 10 a\n1010 10 b\nff0 10 c\n';
    expect(latestNames(map)).toBe('ff0 10 c\n1000 10 a\n1010 10 b\n');
  });
});

describe('flameSvg', () => {
  const widths = (svg: string): ReadonlyMap<string, number> =>
    new Map(
      [...svg.matchAll(/<title>(.*?) \([\d.]+%, .*?<rect x="[\d.]+" y="\d+" width="([\d.]+)"/g)].map(
        (one) => [one[1] as string, Number(one[2])],
      ),
    );

  it('flameSvg gives every frame the width of its share and omits invisible frames', () => {
    const svg = flameSvg(
      new Map([
        ['main;a', 750_000],
        ['main;b<c>', 249_900],
        ['main;thin', 100],
      ]),
      'A & B',
      'note',
    );
    const found = widths(svg);
    expect(found.get('all')).toBeCloseTo(1179.7, 0);
    expect(found.get('a')).toBeCloseTo(0.75 * 1180, 0);
    expect(found.get('b&lt;c&gt;')).toBeCloseTo(0.25 * 1180, 0);
    expect([...found.keys()]).not.toContain('thin');
    expect(svg).toContain('A &amp; B');
    expect(svg).not.toMatch(/<script|&(?!amp;|lt;|gt;|quot;)/);
  });

  it('flameSvg draws the same picture for the same stacks in any order', () => {
    const stacks: Array<[string, number]> = [
      ['m;x', 1],
      ['m;y;z', 2],
    ];
    expect(flameSvg(new Map(stacks), 't', 'n')).toBe(flameSvg(new Map([...stacks].reverse()), 't', 'n'));
    expect(flameSvg(new Map(), 't', 'n')).toContain('</svg>');
  });
});
