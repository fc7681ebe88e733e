#include "kernel/rows/table.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace millrace::kernel {
namespace {

// Parts of one size split at different loads, of 60 to 78 %, so that they do not all do so in one
// batch.
constexpr std::size_t kSplitLoadLeast = 600;
constexpr std::size_t kSplitLoadSpread = 180;

}  // namespace

template <typename Slot>
auto SlotTable<Slot>::NewPart(std::size_t slots, std::uint32_t bits, Status* status)
    -> std::unique_ptr<Part> {
  auto part = std::make_unique<Part>();
  part->bits = bits;
  const std::size_t rows = slots * sizeof(Slot) / sizeof(Accumulator);
  const bool is_pooled = pool_ != nullptr && rows == pool_->rows();
  *status = is_pooled ? pool_->Take(&part->memory) : part->memory.Allocate(rows);
  return part;
}

template <typename Slot>
Status SlotTable<Slot>::Open(std::size_t rows_expected, RowPool* pool) {
  pool_ = pool;
  // Many fresh parts would be touched for the first time by one batch; a few at a time would not.
  return OpenParts(rows_expected, pool == nullptr ? SIZE_MAX : pool->ready());
}

template <typename Slot>
Status SlotTable<Slot>::OpenParts(std::size_t rows_expected, std::size_t parts_max) {
  std::size_t slots = kSlotsMin;
  while (slots < kPartSlots && slots * kLoadTenths / 10 < rows_expected) slots *= 2;
  std::uint32_t bits = 0;
  if (slots == kPartSlots) {
    while (bits < kPartBitsMax && (slots << bits) * kSplitLoadLeast / 1000 < rows_expected) bits++;
    while (bits > 0 && (std::size_t{1} << bits) > parts_max) bits--;
  }
  for (std::size_t i = 0; i < std::size_t{1} << bits; i++) {
    Status status = Status::kOk;
    parts_.push_back(NewPart(slots, bits, &status));
    if (status != Status::kOk) return status;
    SetGrowth(parts_.back().get(), i);
  }
  SetPlaces();
  return Status::kOk;
}

template <typename Slot>
Status SlotTable<Slot>::Reserve(std::size_t rows_expected) {
  if (row_count() > 0) return Status::kOk;
  parts_.clear();
  return OpenParts(rows_expected, SIZE_MAX);
}

template <typename Slot>
void SlotTable<Slot>::SetGrowth(Part* part, std::size_t number) {
  const std::size_t slots = part->slot_count();
  part->grow_at = slots * kLoadTenths / 10;
  if (slots != kPartSlots || part->bits == kPartBitsMax) return;
  // Multiples of the golden ratio lie apart from each other.
  const std::size_t place = ((number * 0x9e3779b9U) & 0xffffffffU) >> 16;
  part->grow_at = slots * (kSplitLoadLeast + (place * kSplitLoadSpread >> 16)) / 1000;
}

// Parts stand in the order of their bits, so each fills the places behind the one before.
template <typename Slot>
void SlotTable<Slot>::SetPlaces() {
  std::uint32_t bits = 0;
  for (const auto& part : parts_) bits = std::max(bits, part->bits);
  place_shift_ = 32 - static_cast<int>(bits);
  places_.clear();
  places_.reserve(std::size_t{1} << bits);
  for (const auto& part : parts_) {
    const std::size_t slots = part->slot_count();
    const Place place = {part->slots(), part.get(), static_cast<std::uint32_t>(slots - 1),
                         static_cast<std::uint8_t>(part->bits),
                         static_cast<std::uint8_t>(32 - std::countr_zero(slots))};
    places_.insert(places_.end(), std::size_t{1} << (bits - part->bits), place);
  }
}

template <typename Slot>
Status SlotTable<Slot>::MakeRoom(std::uint32_t spread) {
  Part* const part = PlaceOf(spread).part;
  if (part->used < part->grow_at) return Status::kOk;
  const std::size_t slots = part->slot_count();
  if (slots < kPartSlots || part->bits == kPartBitsMax) return Double(part);
  return Split(part, spread);
}

// Moves every row to where it belongs, from the last of the first `before` slots to the first: each
// goes up, where there are only rows that have gone already. The few that would go down, or around
// the end, wait until all others have.
template <typename Slot>
void SlotTable<Slot>::Respread(Part* part, std::size_t before) {
  std::vector<Slot> waiting;
  Slot* const rows = part->slots();
  const std::size_t slots = part->slot_count();
  const int shift = 32 - std::countr_zero(slots);
  const auto home = [&](const Slot& row) -> std::size_t {
    return (SpreadOf(row) << part->bits) >> shift;
  };
  for (std::size_t at = before; at-- > 0;) {
    if (IsEmpty(rows[at])) continue;
    const Slot row = rows[at];
    rows[at] = {};
    std::size_t to = home(row);
    const bool goes_up = to >= at;
    while (goes_up && to < slots && !IsEmpty(rows[to])) to++;
    if (goes_up && to < slots) {
      rows[to] = row;
    } else {
      waiting.push_back(row);
    }
  }
  for (const Slot& row : waiting) {
    std::size_t to = home(row);
    while (!IsEmpty(rows[to])) to = (to + 1) & (slots - 1);
    rows[to] = row;
  }
}

template <typename Slot>
Status SlotTable<Slot>::Double(Part* part) {
  const std::size_t before = part->slot_count();
  if (before * 2 > kPartSlotsMax) return Status::kTableFull;
  const Status status = part->memory.Double();
  if (status != Status::kOk) return status;
  Respread(part, before);
  SetGrowth(part, parts_.size());
  SetPlaces();
  return Status::kOk;
}

// Half of the part's keys, those with a one in the next bit, go to a part of their own.
template <typename Slot>
Status SlotTable<Slot>::Split(Part* part, std::uint32_t spread) {
  const std::size_t slots = part->slot_count();
  Status status = Status::kOk;
  std::unique_ptr<Part> other = NewPart(slots, part->bits + 1, &status);
  if (status != Status::kOk) return status;
  part->bits++;
  Slot* const rows = part->slots();
  Slot* const others = other->slots();
  const int shift = 32 - std::countr_zero(slots);
  // Homes are in the order of spreads, so what goes stands from the middle on, but for rows pushed
  // there from before it, and around the end to the front.
  const auto give = [&](std::size_t at) {
    const Slot row = rows[at];
    const std::uint32_t row_spread = SpreadOf(row);
    if (IsEmpty(row) || ((row_spread >> (32 - part->bits)) & 1U) == 0) return;
    std::size_t to = (row_spread << part->bits) >> shift;
    while (!IsEmpty(others[to])) to = (to + 1) & (slots - 1);
    others[to] = row;
    rows[at] = {};
    other->used++;
  };
  for (std::size_t at = slots / 2; at < slots; at++) give(at);
  for (std::size_t at = 0; at < slots / 2 && !IsEmpty(rows[at]); at++) give(at);
  part->used -= other->used;
  Respread(part, slots);
  SetGrowth(part, parts_.size());
  SetGrowth(other.get(), parts_.size() + 1);
  const auto place = std::find_if(parts_.begin(), parts_.end(),
                                  [part](const auto& one) { return one.get() == part; });
  parts_.insert(place + 1, std::move(other));
  SetPlaces();
  // Keys that were made to share more bits may all have gone to one side.
  return MakeRoom(spread);
}

template <typename Slot>
void SlotTable<Slot>::Remove(std::uint32_t spread, std::uint32_t at) {
  const Place& place = PlaceOf(spread);
  Slot* const rows = place.slots;
  const std::uint32_t mask = place.mask;
  std::uint32_t hole = at;
  for (std::uint32_t next = (hole + 1) & mask; !IsEmpty(rows[next]); next = (next + 1) & mask) {
    const std::uint32_t home = (SpreadOf(rows[next]) << place.bits) >> place.shift;
    if (((next - home) & mask) < ((next - hole) & mask)) continue;
    rows[hole] = rows[next];
    hole = next;
  }
  rows[hole] = {};
  place.part->used--;
}

template <typename Slot>
std::size_t SlotTable<Slot>::Copy(std::uint64_t* cursor, Span<Slot> into) const {
  std::size_t count = 0;
  std::uint64_t first = 0;  // number of the part's first slot
  for (const auto& part : parts_) {
    const std::uint64_t end = first + part->slot_count();
    for (; *cursor < end && count < into.size; ++*cursor) {
      const Slot& slot = part->slots()[*cursor - first];
      if (!IsEmpty(slot)) into.data[count++] = slot;
    }
    first = end;
  }
  return count;
}

template <typename Slot>
std::size_t SlotTable<Slot>::row_count() const {
  std::size_t count = 0;
  for (const auto& part : parts_) count += part->used;
  return count;
}

template <typename Slot>
std::size_t SlotTable<Slot>::slot_count() const {
  std::size_t count = 0;
  for (const auto& part : parts_) count += part->slot_count();
  return count;
}

template <typename Slot>
void SlotTable<Slot>::Release(std::vector<RowMemory>* into) {
  for (const auto& part : parts_) into->push_back(std::move(part->memory));
  parts_.clear();
  places_.clear();
}

template class SlotTable<Accumulator>;
template class SlotTable<KeyEntry>;

}  // namespace millrace::kernel
