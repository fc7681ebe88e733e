// Numbers of events of each value of a field, for the most frequent ones: exact while the values
// fit into a sketch, else a Count-Min sketch and a sample of the values.
// src/core/layout/top.ts has the same for the reference implementation.
//
// A value is its hash and its text: a byte with the length, the bytes, and zeros up to a whole
// cell, at most kTextCellsMax cells. An entry has the hash, a cell of marks and the text, which
// takes as many cells as the longest text that was ever added. Bits 0 to 47 of the marks are the
// number of events, bits 48 to 63 the priority.
//
// The priority of a value is the least of its events' priorities, which are hashes of their places
// in the log. So the values of least priority are a sample without replacement, in which a value
// is the likelier the more events it has.
//
// Level: the number of cells of a text, and kApproximate. Exact: entries, ascending by hash and
// text. Approximate: kRows rows of kWidth counters, and behind them as many entries of least
// priority as there is room for, ascending by priority, hash and text, with 0 events.
//
// Every sketch is a function of the set of events. Counters are sums. An entry among those of least
// priority is among them in each subset that has its event of least priority: there it has no more
// entries before it, and no longer texts. So the order of additions and merges decides nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/rows/sketch.h"
#include "kernel/span.h"

namespace millrace::kernel::top {

// Cells of the hash and the marks of an entry.
inline constexpr std::size_t kHeadCells = 2;
inline constexpr std::size_t kTextCellsMax = 32;
inline constexpr std::uint32_t kApproximate = 64;
inline constexpr std::size_t kRows = 4;
inline constexpr std::size_t kWidth = 256;
inline constexpr std::size_t kCounters = kRows * kWidth;

// Adds an event: its value, a hash and a text in `texts` from cell `at` on, and its place in the
// log. Cells that are no value are ignored.
void Add(Span<const std::int64_t> texts, std::int64_t at, std::int64_t partition,
         std::int64_t offset, sketch::Sketch* into);
void Merge(const sketch::Sketch& from, sketch::Sketch* into);
// True when events can produce the cells.
bool IsSound(const sketch::Sketch& sketch);

}  // namespace millrace::kernel::top
