// Row of the window engine: the aggregate of one key in one slice, laid out as layout::Accumulator.
// It is a slot of a table and a row of a snapshot, a sorted run and a fired window.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layout/layouts.gen.h"

namespace millrace::kernel {

struct Accumulator {
  std::uint64_t account_id;
  std::uint64_t count;  // 0: an empty slot
  std::uint64_t sum_low;
  std::uint64_t sum_high;  // two's complement
  std::int64_t min;
  std::int64_t max;
  std::int64_t last_update_ts;
  std::uint64_t spare;
};
static_assert(sizeof(Accumulator) == layout::Accumulator::kBytes);
static_assert(offsetof(Accumulator, account_id) == layout::Accumulator::kAccountIdAt);
static_assert(offsetof(Accumulator, count) == layout::Accumulator::kCountAt);
static_assert(offsetof(Accumulator, sum_low) == layout::Accumulator::kSumLowAt);
static_assert(offsetof(Accumulator, sum_high) == layout::Accumulator::kSumHighAt);
static_assert(offsetof(Accumulator, min) == layout::Accumulator::kMinAt);
static_assert(offsetof(Accumulator, max) == layout::Accumulator::kMaxAt);
static_assert(offsetof(Accumulator, last_update_ts) == layout::Accumulator::kLastUpdateTsAt);
static_assert(offsetof(Accumulator, spare) == layout::Accumulator::kSpareAt);

// Limits of src/core/time.ts. Starts of slices lie in [-kSliceLimit, kSliceLimit]: a double holds
// each of them, and every time of an event in them, exactly.
inline constexpr std::int64_t kEventTsLimit = std::int64_t{1} << 52;
inline constexpr std::int64_t kDurationMsMax = std::int64_t{1} << 48;
inline constexpr std::int64_t kSliceLimit = kEventTsLimit + kDurationMsMax;

// Folds the aggregates of `other` in; the keys are equal. A count that would overflow saturates, so
// that a used slot never looks empty.
inline void Fold(const Accumulator& other, Accumulator* into) {
  const std::uint64_t count = into->count + other.count;
  into->count = count < other.count ? UINT64_MAX : count;
  const std::uint64_t low = into->sum_low + other.sum_low;
  into->sum_high += other.sum_high + (low < other.sum_low ? 1U : 0U);
  into->sum_low = low;
  into->min = other.min < into->min ? other.min : into->min;
  into->max = other.max > into->max ? other.max : into->max;
  into->last_update_ts =
      other.last_update_ts > into->last_update_ts ? other.last_update_ts : into->last_update_ts;
}

// Folds one event in.
inline void FoldEvent(std::int64_t value, std::int64_t event_ts, Accumulator* into) {
  into->count++;
  const std::uint64_t low = into->sum_low + static_cast<std::uint64_t>(value);
  into->sum_high += static_cast<std::uint64_t>(value >> 63) + (low < into->sum_low ? 1U : 0U);
  into->sum_low = low;
  into->min = value < into->min ? value : into->min;
  into->max = value > into->max ? value : into->max;
  into->last_update_ts = event_ts > into->last_update_ts ? event_ts : into->last_update_ts;
}

inline Accumulator OneEvent(std::uint64_t account_id, std::int64_t value, std::int64_t event_ts) {
  return {account_id,
          1,
          static_cast<std::uint64_t>(value),
          static_cast<std::uint64_t>(value >> 63),
          value,
          value,
          event_ts,
          0};
}

// Hash of a key, 32 bits. src/addon/reference/window/table.ts has the same function, because
// snapshots are divided by it. It differs from the shard hash: otherwise the keys of one shard
// would share hash bits and collide.
inline std::uint32_t TableHash(std::uint64_t key) {
  const auto low = static_cast<std::uint32_t>(key);
  const auto high = static_cast<std::uint32_t>(key >> 32);
  std::uint32_t h = (low * 0x9e3779b1U) ^ ((high ^ (low >> 15)) * 0x85ebca77U);
  h = (h ^ (h >> 15)) * 0x2c1b3c6dU;
  h = (h ^ (h >> 13)) * 0x297a2d39U;
  return h ^ (h >> 16);
}

// Logarithm of the number of ranges of a snapshot; src/addon/window-surface.ts has the same number.
inline constexpr int kRangeBits = 10;
inline constexpr std::uint32_t kCoverRanges = 1U << kRangeBits;

inline std::uint32_t RangeOf(std::uint64_t account_id) {
  return TableHash(account_id) >> (32 - kRangeBits);
}

}  // namespace millrace::kernel
