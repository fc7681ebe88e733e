// Slots in parts: a directory by the high bits of a key's spread names the part, the bits behind
// them the slot where a probe begins. Tables of all kinds are built on it: a slot is a row, or says
// where the row of a key is.
//
// A part doubles while it is small; one that is large splits, and only its own rows move: so growth
// costs a few milliseconds at a time, however large the table is.
//
// Invariants: (1) a slot is empty iff IsEmpty says so, and zeros are; (2) no part is ever full, so
// a probe ends; (3) between the home of a row and its slot no slot is empty; (4) a part stands in
// the order of its homes but for collisions, so growth goes through its memory once, from back to
// front.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernel/batch.h"
#include "kernel/rows/memory.h"
#include "kernel/rows/pool.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

// Slots that are rows.
inline bool IsEmpty(const Accumulator& row) { return row.count == 0; }
inline std::uint32_t SpreadOf(const Accumulator& row) { return SpreadKey(row.account_id); }

// A slot that names a row elsewhere.
struct KeyEntry {
  std::uint32_t spread;
  std::uint32_t number;  // from 1
};
inline bool IsEmpty(const KeyEntry& entry) { return entry.number == 0; }
inline std::uint32_t SpreadOf(const KeyEntry& entry) { return entry.spread; }

// Bytes of a part that splits.
template <typename Slot>
inline constexpr std::size_t kPartBytes = 0;
template <>
inline constexpr std::size_t kPartBytes<Accumulator> = std::size_t{8} << 20;
template <>
inline constexpr std::size_t kPartBytes<KeyEntry> = std::size_t{2} << 20;

template <typename Slot>
class SlotTable {
 public:
  // src/addon/reference/window/table.ts has the same numbers: bytes are reported alike as long as
  // a table is one part.
  static constexpr std::size_t kSlotsMin = 16;
  static constexpr std::size_t kLoadTenths = 7;
  // A part of so many slots splits.
  static constexpr std::size_t kPartSlots = kPartBytes<Slot> / sizeof(Slot);
  // What a pool has for it.
  static constexpr std::size_t kPartRows = kPartBytes<Slot> / sizeof(Accumulator);
  // Parts share so many bits at the most; then they double again, once.
  static constexpr std::uint32_t kPartBitsMax = kRangeBits;
  static constexpr std::size_t kPartSlotsMax = kPartSlots * 2;

  // A place in the probe of a key. LIFETIME: until the next change of the table.
  class Probe {
   public:
    Probe() = default;
    Probe(Slot* slots, std::uint32_t mask, std::uint32_t at)
        : slots_(slots), mask_(mask), at_(at) {}
    Slot* slot() const { return slots_ + at_; }
    std::uint32_t at() const { return at_; }
    void Next() { at_ = (at_ + 1) & mask_; }

   private:
    Slot* slots_ = nullptr;
    std::uint32_t mask_ = 0;
    std::uint32_t at_ = 0;
  };

  // Takes its large parts from the pool, where there is one; LIFETIME: beyond the table's.
  // REQUIRES: called once, before all else.
  Status Open(std::size_t rows_expected, RowPool* pool = nullptr);
  // Makes room for rows that come in the order of their homes, which would crowd in a table that
  // grows with them. A table with rows stays as it is.
  Status Reserve(std::size_t rows_expected);

  Probe Home(std::uint32_t spread) const {
    const Place& place = PlaceOf(spread);
    return {place.slots, place.mask, (spread << place.bits) >> place.shift};
  }
  // The slot where a probe begins and what is behind it. Inlined at once: a compiler takes a
  // function that only prefetches for one that does nothing.
  [[gnu::always_inline]] void Prefetch(std::uint32_t spread) const {
    const Slot* const slot = Home(spread).slot();
    __builtin_prefetch(slot, 1);
    if constexpr (sizeof(Slot) >= kLineBytes) __builtin_prefetch(slot + 1, 1);
  }

  // Whether one more row may not be put beside those of this spread before MakeRoom.
  bool IsFull(std::uint32_t spread) const {
    const Part& part = *PlaceOf(spread).part;
    return part.used >= part.grow_at;
  }
  Status MakeRoom(std::uint32_t spread);
  // Says that the caller fills an empty slot in the probe of this spread. REQUIRES: not full.
  void Use(std::uint32_t spread) { PlaceOf(spread).part->used++; }
  // Empties the slot and closes the gap: whatever behind it may stand nearer to its home moves up.
  void Remove(std::uint32_t spread, std::uint32_t at);

  // Copies slots from slot *cursor on, counting over all parts, and moves the cursor to where it
  // stopped: at slot_count() all are through.
  std::size_t Copy(std::uint64_t* cursor, Span<Slot> into) const;
  // Calls visit(slot) for those of one range, from *cursor on, which counts from the first slot of
  // the range, until it answers false: then the cursor stands at the slot, and the answer is false.
  template <typename Visit>
  bool VisitRange(std::uint32_t range, std::uint64_t* cursor, const Visit& visit) const {
    const Place& place = PlaceOf(range << (32 - kRangeBits));
    const std::uint64_t slots = std::uint64_t{place.mask} + 1;
    const std::uint32_t bits = static_cast<std::uint32_t>(kRangeBits) - place.bits;
    const std::uint64_t first = ((range & ((1U << bits) - 1)) * slots) >> bits;
    const std::uint64_t width = std::max<std::uint64_t>(1, slots >> bits);
    // What is of the range stands in its slots or, pushed on, behind them up to the next empty one.
    for (; *cursor < slots; ++*cursor) {
      const Slot& slot = place.slots[(first + *cursor) & place.mask];
      if (IsEmpty(slot)) {
        if (*cursor >= width) return true;
        continue;
      }
      if (SpreadOf(slot) >> (32 - kRangeBits) == range && !visit(slot)) return false;
    }
    return true;
  }
  // Copies slots of one range as VisitRange visits them. False when `into` was full before the
  // range was through.
  bool CopyRange(std::uint32_t range, std::uint64_t* cursor, Span<Slot> into,
                 std::size_t* copied) const {
    return VisitRange(range, cursor, [&](const Slot& slot) {
      if (*copied == into.size) return false;
      into.data[(*copied)++] = slot;
      return true;
    });
  }

  std::size_t row_count() const;
  std::size_t slot_count() const;
  std::size_t bytes() const { return slot_count() * sizeof(Slot); }

  // Gives its memory away, a part each; the table is of no more use.
  void Release(std::vector<RowMemory>* into);

 private:
  static constexpr std::size_t kLineBytes = 64;

  struct Part {
    Slot* slots() const { return reinterpret_cast<Slot*>(memory.rows()); }
    std::size_t slot_count() const { return memory.bytes() / sizeof(Slot); }

    RowMemory memory;
    std::size_t used = 0;
    std::size_t grow_at = 0;
    std::uint32_t bits = 0;  // how many high bits its keys share
  };
  // What a probe needs of a part.
  struct Place {
    Slot* slots;
    Part* part;
    std::uint32_t mask;
    std::uint8_t bits;
    std::uint8_t shift;
  };

  const Place& PlaceOf(std::uint32_t spread) const {
    return places_[std::uint64_t{spread} >> place_shift_];
  }
  Status OpenParts(std::size_t rows_expected, std::size_t parts_max);
  std::unique_ptr<Part> NewPart(std::size_t slots, std::uint32_t bits, Status* status);
  Status Double(Part* part);
  Status Split(Part* part, std::uint32_t spread);
  void SetPlaces();
  static void SetGrowth(Part* part, std::size_t number);
  static void Respread(Part* part, std::size_t before);

  RowPool* pool_ = nullptr;
  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<Place> places_;
  int place_shift_ = 32;
};

extern template class SlotTable<Accumulator>;
extern template class SlotTable<KeyEntry>;
using RowTable = SlotTable<Accumulator>;
using KeyIndex = SlotTable<KeyEntry>;

}  // namespace millrace::kernel
