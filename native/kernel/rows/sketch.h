// Sketches of the values of a field: buckets for percentiles (DDSketch), distinct values, exact or
// as registers (HyperLogLog), and the most frequent values (top.h). src/core/layout/sketch.ts has
// the same for the reference implementation.
//
// A sketch has a header and up to RoomOf(kind) cells of 8 bytes. Header: number of cells in bits 0
// to 15, level in bits 16 to 23. Cells behind that number are no part of it.
//
// Percentiles: a cell is a bucket and the number of its values, `bucket << kCountBits | number`,
// ascending by bucket. The bucket of a value is the sign, exponent and first kMantissaBits bits of
// its double: a relative error of 1 / 129. Level L has buckets of 2^L of those, which doubles the
// error with each level.
//
// Distinct values, level 0: their hashes, ascending. Level 1: 4,096 registers of 8 bits.
//
// Every sketch is a function of the set of values. Its level is the least one at which its cells
// fit. A set needs at least the level of each of its subsets, so the order of additions and merges
// decides nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernel/span.h"

namespace millrace::kernel::sketch {

// Greatest number of cells, without the header: of buckets and distinct values, and of the most
// frequent values.
inline constexpr std::size_t kCells = 512;
inline constexpr std::size_t kTopCells = 2000;
inline constexpr int kCountBits = 46;
inline constexpr int kMantissaBits = 6;

bool IsSketch(std::int32_t kind);
bool IsOfBuckets(std::int32_t kind);
// Greatest number of cells of a kind, without the header.
std::size_t RoomOf(std::int32_t kind);
// A bijection, so that two integers have two hashes: the finalizer of MurmurHash3.
std::uint64_t Mix(std::uint64_t x);

// A sketch somewhere in memory. A row of a table has its cells inside the row while they are few,
// else in a block of their own; a row of a page has RoomOf(kind) of them.
class Sketch {
 public:
  // Cells of a sketch in a row of a table, with the header.
  static constexpr std::size_t kStoredCells = 7;
  static constexpr std::size_t kInline = kStoredCells - 1;

  // LIFETIME: the cells outlive the object.
  static Sketch Stored(std::int64_t* at, std::size_t room) { return Sketch(at, room, true); }
  static Sketch InPage(std::int64_t* at, std::size_t room) { return Sketch(at, room, false); }

  // Number of cells in use; at most the room, whatever the header has.
  std::size_t used() const { return std::min(static_cast<std::size_t>(*at_ & 0xffff), room_); }
  std::uint32_t level() const { return static_cast<std::uint32_t>(*at_ >> 16) & 0xffU; }
  std::int64_t* cells() const {
    if (block_bits() == 0) return at_ + 1;
    std::int64_t* block = nullptr;
    std::memcpy(&block, at_ + 1, sizeof block);
    return block;
  }
  // Header without what only a table needs.
  std::int64_t header() const { return *at_ & 0xffffff; }
  // True when the number of cells is in bounds; of a page also when all behind them is zero, so
  // that equal rows have equal bytes.
  bool IsPlain() const;
  // Bytes of the block.
  std::size_t block_bytes() const {
    return block_bits() == 0 ? 0 : (std::size_t{1} << block_bits()) * sizeof(std::int64_t);
  }

  // Begins an empty sketch. REQUIRES: it has no block.
  void Begin() { *at_ = 0; }
  // Makes room for so many cells, and returns them; those in use are kept.
  std::int64_t* Reserve(std::size_t cells);
  void Set(std::size_t used, std::uint32_t level) {
    *at_ = (*at_ & ~std::int64_t{0xffffff}) | static_cast<std::int64_t>(used) |
           (std::int64_t{level} << 16);
  }
  // Replaces the content. REQUIRES: used <= the room; the cells are not its own.
  void Assign(const std::int64_t* cells, std::size_t used, std::uint32_t level);
  // Frees the block and leaves an empty sketch.
  void Free();

 private:
  Sketch(std::int64_t* at, std::size_t room, bool is_stored)
      : at_(at), room_(room), is_stored_(is_stored) {}
  // Cells of the block as a power of two; 0: there is no block.
  std::uint32_t block_bits() const {
    return is_stored_ ? static_cast<std::uint32_t>(*at_ >> 24) & 0xffU : 0;
  }

  std::int64_t* at_;
  std::size_t room_;
  bool is_stored_;
};

// Adds a value, the bits of a cell. REQUIRES: the kind is not kAggregateTop
void Add(std::int32_t kind, std::int64_t bits, Sketch* into);
void Merge(std::int32_t kind, const Sketch& from, Sketch* into);
// True when the sketch is plain and its cells are ones that values can produce.
bool IsSound(std::int32_t kind, const Sketch& sketch);

}  // namespace millrace::kernel::sketch
