#include "kernel/rows/table.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace millrace::kernel {
namespace {

// Buckets of one size split at different loads, from 60 to 78 %, so that they do not all split in
// the same batch.
constexpr std::size_t kSplitLoadLeast = 600;
constexpr std::size_t kSplitLoadRange = 180;

}  // namespace

template <typename Slot>
auto SlotTable<Slot>::NewBucket(std::size_t slots, std::uint32_t bits, Status* status)
    -> std::unique_ptr<Bucket> {
  auto bucket = std::make_unique<Bucket>();
  bucket->bits = bits;
  bucket->slot_count = slots;
  const std::size_t lines = slots * stride() * sizeof(Slot) / sizeof(Accumulator);
  const bool is_pooled = pool_ != nullptr && lines == pool_->rows();
  *status = is_pooled ? pool_->Acquire(&bucket->memory) : bucket->memory.Allocate(lines);
  return bucket;
}

template <typename Slot>
Status SlotTable<Slot>::Open(std::size_t rows_expected, RowPool* pool) {
  pool_ = pool;
  // Reserving many fresh buckets would make one batch touch them all for the first time; growth
  // spreads that cost over batches.
  return OpenBuckets(rows_expected, pool == nullptr ? SIZE_MAX : pool->ready());
}

template <typename Slot>
Status SlotTable<Slot>::OpenBuckets(std::size_t rows_expected, std::size_t buckets_max) {
  std::size_t slots = kSlotsMin;
  while (slots < bucket_slots() && slots * kLoadTenths / 10 < rows_expected) slots *= 2;
  std::uint32_t bits = 0;
  if (slots == bucket_slots()) {
    while (bits < kBucketBitsMax && (slots << bits) * kSplitLoadLeast / 1000 < rows_expected)
      bits++;
    while (bits > 0 && (std::size_t{1} << bits) > buckets_max) bits--;
  }
  for (std::size_t i = 0; i < std::size_t{1} << bits; i++) {
    Status status = Status::kOk;
    buckets_.push_back(NewBucket(slots, bits, &status));
    if (status != Status::kOk) return status;
    SetGrowth(buckets_.back().get(), i);
  }
  BuildDirectory();
  return Status::kOk;
}

template <typename Slot>
Status SlotTable<Slot>::Reserve(std::size_t rows_expected) {
  if (row_count() > 0) return Status::kOk;
  buckets_.clear();
  return OpenBuckets(rows_expected, SIZE_MAX);
}

template <typename Slot>
void SlotTable<Slot>::SetGrowth(Bucket* bucket, std::size_t number) const {
  const std::size_t slots = bucket->slot_count;
  bucket->grow_at = slots * kLoadTenths / 10;
  if (slots != bucket_slots() || bucket->bits == kBucketBitsMax) return;
  // Multiples of the golden ratio are spread evenly.
  const std::size_t place = ((number * 0x9e3779b9U) & 0xffffffffU) >> 16;
  bucket->grow_at = slots * (kSplitLoadLeast + (place * kSplitLoadRange >> 16)) / 1000;
}

// Buckets are ordered by their hash bits, so each fills the directory entries behind those of the
// bucket before it.
template <typename Slot>
void SlotTable<Slot>::BuildDirectory() {
  std::uint32_t bits = 0;
  for (const auto& bucket : buckets_) bits = std::max(bits, bucket->bits);
  directory_shift_ = 32 - static_cast<int>(bits);
  directory_.clear();
  directory_.reserve(std::size_t{1} << bits);
  for (const auto& bucket : buckets_) {
    const std::size_t slots = bucket->slot_count;
    const DirectoryEntry place = {bucket->slots(), bucket.get(),
                                  static_cast<std::uint32_t>(slots - 1),
                                  static_cast<std::uint8_t>(bucket->bits),
                                  static_cast<std::uint8_t>(32 - std::countr_zero(slots))};
    directory_.insert(directory_.end(), std::size_t{1} << (bits - bucket->bits), place);
  }
}

template <typename Slot>
Status SlotTable<Slot>::MakeRoom(std::uint32_t hash) {
  Bucket* const bucket = EntryOf(hash).bucket;
  if (bucket->used < bucket->grow_at) return Status::kOk;
  const std::size_t slots = bucket->slot_count;
  if (slots < bucket_slots() || bucket->bits == kBucketBitsMax) return Double(bucket);
  return Split(bucket, hash);
}

// Moves every row to its place after the bucket grew, from slot `before - 1` down to 0. A row moves
// up, into slots whose rows have moved already. The few rows that would move down, or wrap around
// the end, are placed after all others.
template <typename Slot>
void SlotTable<Slot>::Rehash(Bucket* bucket, std::size_t before) const {
  std::vector<Slot> displaced;
  const std::size_t stride = this->stride();
  const auto row_at = [rows = bucket->slots(), stride](std::size_t at) {
    return rows + at * stride;
  };
  const std::size_t slots = bucket->slot_count;
  const int shift = 32 - std::countr_zero(slots);
  const auto home = [&](const Slot& row) -> std::size_t {
    return (HashOf(row) << bucket->bits) >> shift;
  };
  for (std::size_t at = before; at-- > 0;) {
    Slot* const row = row_at(at);
    if (IsEmpty(*row)) continue;
    std::size_t to = home(*row);
    const bool goes_up = to >= at;
    while (goes_up && to < slots && to != at && !IsEmpty(*row_at(to))) to++;
    if (to == at) continue;
    if (goes_up && to < slots) {
      CopySlot(row, row_at(to));
    } else {
      displaced.insert(displaced.end(), row, row + stride);
    }
    *row = {};
  }
  for (std::size_t i = 0; i < displaced.size(); i += stride) {
    std::size_t to = home(displaced[i]);
    while (!IsEmpty(*row_at(to))) to = (to + 1) & (slots - 1);
    CopySlot(&displaced[i], row_at(to));
  }
}

template <typename Slot>
Status SlotTable<Slot>::Double(Bucket* bucket) {
  const std::size_t before = bucket->slot_count;
  if (before * 2 > bucket_slots() * 2) return Status::kTableFull;
  const Status status = bucket->memory.Double();
  if (status != Status::kOk) return status;
  bucket->slot_count *= 2;
  Rehash(bucket, before);
  SetGrowth(bucket, buckets_.size());
  BuildDirectory();
  MILLRACE_INVARIANT(IsSound(*bucket));
  return Status::kOk;
}

// Moves half of the bucket's keys, those whose next hash bit is 1, to a new bucket.
template <typename Slot>
Status SlotTable<Slot>::Split(Bucket* bucket, std::uint32_t hash) {
  const std::size_t slots = bucket->slot_count;
  const std::size_t stride = this->stride();
  Status status = Status::kOk;
  std::unique_ptr<Bucket> other = NewBucket(slots, bucket->bits + 1, &status);
  if (status != Status::kOk) return status;
  bucket->bits++;
  Slot* const rows = bucket->slots();
  Slot* const others = other->slots();
  const int shift = 32 - std::countr_zero(slots);
  // Home slots ascend with the hash, so the rows to move are in the upper half. Collisions
  // displaced some of them across the middle, or around the end to the front.
  const auto move_row = [&](std::size_t at) {
    Slot* const row = rows + at * stride;
    const std::uint32_t row_hash = HashOf(*row);
    if (IsEmpty(*row) || ((row_hash >> (32 - bucket->bits)) & 1U) == 0) return;
    std::size_t to = (row_hash << bucket->bits) >> shift;
    while (!IsEmpty(others[to * stride])) to = (to + 1) & (slots - 1);
    CopySlot(row, others + to * stride);
    *row = {};
    other->used++;
  };
  for (std::size_t at = slots / 2; at < slots; at++) move_row(at);
  for (std::size_t at = 0; at < slots / 2 && !IsEmpty(rows[at * stride]); at++) move_row(at);
  bucket->used -= other->used;
  Rehash(bucket, slots);
  SetGrowth(bucket, buckets_.size());
  SetGrowth(other.get(), buckets_.size() + 1);
  const auto place = std::find_if(buckets_.begin(), buckets_.end(),
                                  [bucket](const auto& one) { return one.get() == bucket; });
  const auto added = buckets_.insert(place + 1, std::move(other));
  BuildDirectory();
  MILLRACE_INVARIANT(IsSound(*bucket) && IsSound(**added));
  // All keys may share the next bit too; then the bucket is still full.
  return MakeRoom(hash);
}

template <typename Slot>
bool SlotTable<Slot>::IsSound(const Bucket& bucket) const {
  const auto row_at = [&](std::size_t at) -> const Slot& { return bucket.slots()[at * stride()]; };
  const std::size_t slots = bucket.slot_count;
  std::size_t used = 0;
  for (std::size_t at = 0; at < slots; at++) {
    if (IsEmpty(row_at(at))) continue;
    used++;
    const std::uint32_t hash = HashOf(row_at(at));
    if (EntryOf(hash).bucket != &bucket) return false;
    for (std::size_t from = Home(hash).at(); from != at; from = (from + 1) & (slots - 1)) {
      if (IsEmpty(row_at(from))) return false;
    }
  }
  return used == bucket.used;
}

template <typename Slot>
void SlotTable<Slot>::Remove(std::uint32_t hash, std::uint32_t at) {
  const DirectoryEntry& place = EntryOf(hash);
  const auto row_at = [rows = place.slots, stride = stride()](std::uint32_t slot) {
    return rows + slot * stride;
  };
  const std::uint32_t mask = place.mask;
  MILLRACE_INVARIANT(at <= mask && !IsEmpty(*row_at(at)) && place.bucket->used > 0);
  std::uint32_t hole = at;
  for (std::uint32_t next = (hole + 1) & mask; !IsEmpty(*row_at(next)); next = (next + 1) & mask) {
    const std::uint32_t home = (HashOf(*row_at(next)) << place.bits) >> place.shift;
    if (((next - home) & mask) < ((next - hole) & mask)) continue;
    CopySlot(row_at(next), row_at(hole));
    hole = next;
  }
  *row_at(hole) = {};
  place.bucket->used--;
}

template <typename Slot>
std::size_t SlotTable<Slot>::row_count() const {
  std::size_t count = 0;
  for (const auto& bucket : buckets_) count += bucket->used;
  return count;
}

template <typename Slot>
std::size_t SlotTable<Slot>::slot_count() const {
  std::size_t count = 0;
  for (const auto& bucket : buckets_) count += bucket->slot_count;
  return count;
}

template <typename Slot>
void SlotTable<Slot>::Release(std::vector<RowMemory>* into) {
  for (const auto& bucket : buckets_) into->push_back(std::move(bucket->memory));
  buckets_.clear();
  directory_.clear();
}

template class SlotTable<Accumulator>;
template class SlotTable<KeyEntry>;

}  // namespace millrace::kernel
