// Extendible hashing with linear probing. The directory maps the high bits of a key's hash to a
// bucket; the bits below them select the home slot, where a probe begins. A slot is a row
// (Accumulator, with the lines of cells behind it) or names the row of a key elsewhere (KeyEntry).
//
// A small bucket doubles. A large bucket splits in two, which moves only its own rows: growth takes
// a few milliseconds at a time, however large the table is.
//
// Invariants: (1) a slot is empty iff IsEmpty says so, and a zeroed slot is empty; (2) no bucket is
// ever full, so a probe ends; (3) no slot between the home of a row and its slot is empty; (4) a
// bucket is ordered by home slot except for collisions, so growth passes over its memory once, from
// back to front.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "kernel/batch.h"
#include "kernel/invariant.h"
#include "kernel/rows/memory.h"
#include "kernel/rows/pool.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

// Slots that are rows.
inline bool IsEmpty(const Accumulator& row) { return row.count == 0; }
inline std::uint32_t HashOf(const Accumulator& row) { return TableHash(row.account_id); }

// Slot that names a row stored elsewhere.
struct KeyEntry {
  std::uint32_t hash;
  std::uint32_t number;  // number of the row, from 1; 0: empty
};
inline bool IsEmpty(const KeyEntry& entry) { return entry.number == 0; }
inline std::uint32_t HashOf(const KeyEntry& entry) { return entry.hash; }

// Bytes of a bucket at which it splits.
template <typename Slot>
inline constexpr std::size_t kBucketBytes = 0;
template <>
inline constexpr std::size_t kBucketBytes<Accumulator> = std::size_t{8} << 20;
template <>
inline constexpr std::size_t kBucketBytes<KeyEntry> = std::size_t{2} << 20;

template <typename Slot>
class SlotTable {
 public:
  // src/addon/reference/window/table.ts has the same numbers: both report the same bytes as long as
  // the table has one bucket.
  static constexpr std::size_t kSlotsMin = 16;
  static constexpr std::size_t kLoadTenths = 7;
  // Number of slots at which a bucket splits, for slots of one line.
  static constexpr std::size_t kBucketSlots = kBucketBytes<Slot> / sizeof(Slot);
  // Size of a pooled bucket of slots of one line, in lines.
  static constexpr std::size_t kBucketRows = kBucketBytes<Slot> / sizeof(Accumulator);
  // Greatest local depth: the number of hash bits that the keys of a bucket share. A bucket at this
  // depth doubles once more instead of splitting.
  static constexpr std::uint32_t kBucketBitsMax = kRangeBits;
  static constexpr std::size_t kBucketSlotsMax = kBucketSlots * 2;

  // Position in the probe sequence of a key. LIFETIME: until the next change of the table.
  class Probe {
   public:
    Probe() = default;
    Probe(Slot* slots, std::size_t stride, std::uint32_t mask, std::uint32_t at)
        : slots_(slots), stride_(stride), mask_(mask), at_(at) {}
    Slot* slot() const { return slots_ + at_ * (kIsOfRows ? stride_ : 1); }
    std::uint32_t at() const { return at_; }
    void Next() { at_ = (at_ + 1) & mask_; }

   private:
    Slot* slots_ = nullptr;
    std::size_t stride_ = 1;
    std::uint32_t mask_ = 0;
    std::uint32_t at_ = 0;
  };

  SlotTable() = default;
  // Table of rows of several lines. REQUIRES: lines >= 1; 1 for slots that are no rows.
  explicit SlotTable(std::size_t lines) : stride_(lines) {}

  // Number of slots at which a bucket splits.
  std::size_t bucket_slots() const { return kBucketSlots / std::bit_ceil(stride()); }
  // Size of a pooled bucket, in lines.
  std::size_t bucket_lines() const {
    return bucket_slots() * stride() * sizeof(Slot) / sizeof(Accumulator);
  }

  // Sets up the table for the expected number of rows. Large buckets come from the pool, where one
  // is given. LIFETIME: the pool outlives the table. REQUIRES: called once, before all other
  // functions.
  Status Open(std::size_t rows_expected, RowPool* pool = nullptr);
  // Allocates all buckets for rows that arrive in the order of their home slots: in a table that
  // grows while they arrive, they would cluster. Has no effect on a table that has rows.
  Status Reserve(std::size_t rows_expected);

  Probe Home(std::uint32_t hash) const {
    const DirectoryEntry& place = EntryOf(hash);
    return {place.slots, stride(), place.mask, (hash << place.bits) >> place.shift};
  }
  // Prefetches the home slot of a hash, and the next slot where one slot fills a cache line.
  // always_inline: compilers treat a function that only prefetches as one without effect.
  [[gnu::always_inline]] void Prefetch(std::uint32_t hash) const {
    const Slot* const slot = Home(hash).slot();
    __builtin_prefetch(slot, 1);
    if constexpr (sizeof(Slot) >= kLineBytes) __builtin_prefetch(slot + 1, 1);
  }

  // True when the bucket of this hash needs MakeRoom before one more row.
  bool IsFull(std::uint32_t hash) const {
    const Bucket& bucket = *EntryOf(hash).bucket;
    return bucket.used >= bucket.grow_at;
  }
  Status MakeRoom(std::uint32_t hash);
  // Counts an empty slot in the probe of this hash that the caller fills. REQUIRES: not full.
  void Use(std::uint32_t hash) {
    MILLRACE_INVARIANT(!IsFull(hash));
    EntryOf(hash).bucket->used++;
  }
  // Empties the slot and closes the gap by backward-shift deletion: later rows of the cluster move
  // towards their home slots.
  void Remove(std::uint32_t hash, std::uint32_t at);

  // Calls visit(slot) for the used slots from slot *cursor on, counted over all buckets. All are
  // visited when *cursor reaches slot_count(). When visit returns false, the cursor stays at that
  // slot.
  template <typename Visit>
  void VisitAll(std::uint64_t* cursor, const Visit& visit) const {
    std::uint64_t first = 0;  // number of the bucket's first slot
    for (const auto& bucket : buckets_) {
      const std::uint64_t end = first + bucket->slot_count;
      for (; *cursor < end; ++*cursor) {
        const Slot& slot = bucket->slots()[(*cursor - first) * stride()];
        if (!IsEmpty(slot) && !visit(slot)) return;
      }
      first = end;
    }
  }
  // Calls visit(slot) for the slots of one range from *cursor on; the cursor counts from the first
  // slot of the range. When visit returns false, the cursor stays at that slot and the result is
  // false.
  template <typename Visit>
  bool VisitRange(std::uint32_t range, std::uint64_t* cursor, const Visit& visit) const {
    const DirectoryEntry& place = EntryOf(range << (32 - kRangeBits));
    const std::uint64_t slots = std::uint64_t{place.mask} + 1;
    const std::uint32_t bits = static_cast<std::uint32_t>(kRangeBits) - place.bits;
    const std::uint64_t first = ((range & ((1U << bits) - 1)) * slots) >> bits;
    const std::uint64_t width = std::max<std::uint64_t>(1, slots >> bits);
    // Rows of the range are in its slots or, displaced by collisions, behind them up to the next
    // empty slot.
    for (; *cursor < slots; ++*cursor) {
      const Slot& slot = place.slots[((first + *cursor) & place.mask) * stride()];
      if (IsEmpty(slot)) {
        if (*cursor >= width) return true;
        continue;
      }
      if (HashOf(slot) >> (32 - kRangeBits) == range && !visit(slot)) return false;
    }
    return true;
  }

  std::size_t row_count() const;
  std::size_t slot_count() const;
  std::size_t bytes() const { return slot_count() * stride() * sizeof(Slot); }

  // Moves the memory of every bucket into `into`. The table must not be used afterwards.
  void Release(std::vector<RowMemory>* into);

 private:
  static constexpr std::size_t kLineBytes = 64;
  static constexpr bool kIsOfRows = std::is_same_v<Slot, Accumulator>;

  struct Bucket {
    Slot* slots() const { return reinterpret_cast<Slot*>(memory.rows()); }

    RowMemory memory;
    std::size_t slot_count = 0;
    std::size_t used = 0;
    std::size_t grow_at = 0;
    std::uint32_t bits = 0;  // local depth: number of high bits that its keys share
  };
  // Directory entry: the fields of a bucket that a probe needs.
  struct DirectoryEntry {
    Slot* slots;
    Bucket* bucket;
    std::uint32_t mask;
    std::uint8_t bits;
    std::uint8_t shift;
  };

  // Distance of two slots, in Slot.
  std::size_t stride() const {
    if constexpr (kIsOfRows) return stride_;
    return 1;
  }
  void CopySlot(const Slot* from, Slot* to) const {
    if (stride() == 1) {
      *to = *from;
    } else {
      std::memcpy(to, from, stride() * sizeof(Slot));
    }
  }

  const DirectoryEntry& EntryOf(std::uint32_t hash) const {
    return directory_[std::uint64_t{hash} >> directory_shift_];
  }
  Status OpenBuckets(std::size_t rows_expected, std::size_t buckets_max);
  std::unique_ptr<Bucket> NewBucket(std::size_t slots, std::uint32_t bits, Status* status);
  Status Double(Bucket* bucket);
  Status Split(Bucket* bucket, std::uint32_t hash);
  void BuildDirectory();
  void SetGrowth(Bucket* bucket, std::size_t number) const;
  void Rehash(Bucket* bucket, std::size_t before) const;
  // True when the directory leads every row of the bucket to it, a probe from its home slot finds
  // the row, and `used` is the number of rows.
  bool IsSound(const Bucket& bucket) const;

  std::size_t stride_ = 1;
  RowPool* pool_ = nullptr;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<DirectoryEntry> directory_;
  int directory_shift_ = 32;
};

extern template class SlotTable<Accumulator>;
extern template class SlotTable<KeyEntry>;
using RowTable = SlotTable<Accumulator>;
using KeyIndex = SlotTable<KeyEntry>;

}  // namespace millrace::kernel
