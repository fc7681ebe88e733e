#include "kernel/codec/columns.h"

#include <algorithm>
#include <utility>

namespace millrace::kernel::codec {
namespace {

constexpr std::uint32_t kValidity = layout::kColumnSlotValidity;
constexpr std::uint32_t kOffsets = layout::kColumnSlotOffsets;
constexpr std::uint32_t kValues = layout::kColumnSlotValues;
constexpr std::uint32_t kSlots = layout::kColumnSlotCount;
constexpr std::uint32_t kHead = layout::kColumnStateHead;
constexpr std::uint32_t kElementsMax = layout::kColumnLimitElements;

bool HasListOffsets(std::int32_t kind) {
  return IsText(kind) || kind == layout::kColumnKindList || kind == layout::kColumnKindMap;
}

// Bytes of a cell that the kind prescribes; -1 where the schema chooses.
std::int64_t CellBytes(std::int32_t kind) {
  switch (kind) {
    case layout::kColumnKindInt32:
    case layout::kColumnKindUint32:
    case layout::kColumnKindFloat32:
    case layout::kColumnKindDictionary:
      return 4;
    case layout::kColumnKindInt64:
    case layout::kColumnKindUint64:
    case layout::kColumnKindFloat64:
      return 8;
    case layout::kColumnKindDecimal128:
      return 16;
    case layout::kColumnKindDecimal256:
      return 32;
    case layout::kColumnKindFixed:
      return -1;
    default:
      return 0;
  }
}

// Checks the subtrees from `at` to `end` at `depth`; returns their number, or -1.
std::int64_t CheckTrees(const std::vector<ColumnType>& types, std::uint32_t at, std::uint32_t end,
                        int depth) {
  if (depth > layout::kColumnLimitDepth && at < end) return -1;
  std::int64_t trees = 0;
  while (at < end) {
    const ColumnType& type = types[at];
    if (type.next <= at || type.next > end) return -1;
    const std::int64_t children = CheckTrees(types, at + 1, type.next, depth + 1);
    if (children < 0) return -1;
    switch (type.kind) {
      case layout::kColumnKindList:
        if (children != 1) return -1;
        break;
      case layout::kColumnKindMap:
        // The entries are a struct of a key without children and one more column.
        if (children != 1 || types[at + 1].kind != layout::kColumnKindStruct ||
            types[at + 1].nullable || at + 3 >= type.next || types[at + 2].next != at + 3 ||
            types[at + 3].next != type.next) {
          return -1;
        }
        break;
      case layout::kColumnKindUnion:
        if (children < 1 || children > 127) return -1;
        break;
      case layout::kColumnKindStruct:
        break;
      default:
        if (children != 0) return -1;
    }
    trees++;
    at = type.next;
  }
  return trees;
}

}  // namespace

Status ReadColumnTypes(Span<const std::int32_t> table, std::vector<ColumnType>* out) {
  constexpr std::size_t kWords = layout::kColumnCellCount;
  const std::size_t count = table.size / kWords;
  if (table.size % kWords != 0 || count > layout::kColumnLimitColumns) return Status::kBadArgument;
  std::vector<ColumnType> types(count);
  for (std::size_t i = 0; i < count; i++) {
    const std::int32_t* cell = table.data + i * kWords;
    const std::int32_t kind = cell[layout::kColumnCellKind];
    const std::int32_t size = cell[layout::kColumnCellSize];
    const std::int32_t next = cell[layout::kColumnCellNext];
    const bool has_validity = cell[layout::kColumnCellNullable] != 0;
    if (kind < layout::kColumnKindNull || kind > layout::kColumnKindUnion || size < 0 || next < 0 ||
        (CellBytes(kind) >= 0 && size != CellBytes(kind)) ||
        (has_validity && (kind == layout::kColumnKindNull || kind == layout::kColumnKindUnion))) {
      return Status::kBadArgument;
    }
    types[i] = {kind, has_validity, static_cast<std::uint32_t>(size),
                static_cast<std::uint32_t>(next)};
  }
  if (CheckTrees(types, 0, static_cast<std::uint32_t>(count), 1) < 0) return Status::kBadArgument;
  *out = std::move(types);
  return Status::kOk;
}

Columns::Columns(std::vector<ColumnType> types)
    : types_(std::move(types)),
      places_(types_.size()),
      counts_(types_.size()),
      committed_(types_.size()) {
  for (std::uint32_t at = 0; at < types_.size(); at = types_[at].next) top_.push_back(at);
}

Status Columns::Open(Span<std::uint8_t> buffer, Span<std::uint32_t> state) {
  const std::size_t columns = types_.size();
  if (state.size != kHead + columns * (1 + 2 * kSlots)) return Status::kNotThisBatch;
  row_count_ = state.data[layout::kColumnStateRowCount];
  row_capacity_ = state.data[layout::kColumnStateRowCapacity];
  // As in src/core/columns/batch.ts: error bytes, then statuses.
  const std::size_t errors = layout::Align(std::size_t{row_capacity_} * sizeof(std::uint32_t));
  if ((reinterpret_cast<std::uintptr_t>(buffer.data) & 7U) != 0 ||
      buffer.size < errors + row_capacity_) {
    return Status::kNotThisBatch;
  }
  if (row_count_ > row_capacity_) return Status::kRowsBeyondCapacity;
  error_at_ = reinterpret_cast<std::uint32_t*>(buffer.data);
  status_ = buffer.data + errors;
  state_ = state;
  for (std::uint32_t column = 0; column < columns; column++) {
    const Status status = OpenColumn(column, buffer, state);
    if (status != Status::kOk) return status;
  }
  std::copy(counts_.begin(), counts_.end(), committed_.begin());
  return Status::kOk;
}

Status Columns::OpenColumn(std::uint32_t column, Span<std::uint8_t> buffer,
                           Span<std::uint32_t> state) {
  const ColumnType& type = types_[column];
  const std::uint32_t* slots = state.data + kHead + types_.size() + 2 * kSlots * column;
  std::uint8_t* data[kSlots];
  std::uint32_t capacity[kSlots];
  for (std::uint32_t slot = 0; slot < kSlots; slot++) {
    const std::uint32_t at = slots[2 * slot];
    capacity[slot] = slots[2 * slot + 1];
    if (at % 8 != 0 || std::uint64_t{at} + capacity[slot] > buffer.size) {
      return Status::kNotThisBatch;
    }
    data[slot] = buffer.data + at;
  }
  std::uint64_t room = kElementsMax;
  if (type.nullable) room = std::min(room, std::uint64_t{capacity[kValidity]} * 8);
  if (type.kind == layout::kColumnKindUnion) {
    room = std::min<std::uint64_t>(room, capacity[kOffsets] / 4);
    room = std::min<std::uint64_t>(room, capacity[kValues]);
  } else if (HasListOffsets(type.kind)) {
    if (capacity[kOffsets] < 4) return Status::kNotThisBatch;
    room = std::min<std::uint64_t>(room, capacity[kOffsets] / 4 - 1);
  }
  if (type.kind == layout::kColumnKindBool) {
    room = std::min(room, std::uint64_t{capacity[kValues]} * 8);
  } else if (type.size > 0) {
    room = std::min<std::uint64_t>(room, capacity[kValues] / type.size);
  }
  Count& count = counts_[column];
  count.length = state.data[kHead + column];
  count.used = 0;
  if (count.length > room) return Status::kNotThisBatch;
  Place& place = places_[column];
  place.validity = type.nullable ? data[kValidity] : nullptr;
  place.offsets = reinterpret_cast<std::int32_t*>(data[kOffsets]);
  place.values = data[kValues];
  place.room = static_cast<std::uint32_t>(room);
  place.values_room = capacity[kValues];
  if (IsText(type.kind)) {
    // An offset is an i32: a buffer of 2 GiB or more cannot be used up.
    place.values_room = std::min<std::uint32_t>(place.values_room, kElementsMax);
    const std::int32_t used = place.offsets[count.length];
    if (used < 0 || static_cast<std::uint32_t>(used) > place.values_room) {
      return Status::kNotThisBatch;
    }
    count.used = static_cast<std::uint32_t>(used);
  }
  return Status::kOk;
}

void Columns::Rollback() {
  for (std::size_t column = 0; column < counts_.size(); column++) {
    counts_[column] = committed_[column];
    const Place& place = places_[column];
    const std::uint32_t length = counts_[column].length;
    if (place.validity != nullptr) ClearBits(place.validity, length);
    if (types_[column].kind == layout::kColumnKindBool) ClearBits(place.values, length);
  }
}

bool Columns::AppendEmptyRow() {
  for (const std::uint32_t column : top_) {
    if (!AppendEmpty(column)) return false;
  }
  return true;
}

void Columns::Save() {
  state_.data[layout::kColumnStateRowCount] = row_count_;
  state_.data[layout::kColumnStateNeedSlot] = need_slot_;
  state_.data[layout::kColumnStateNeedBytes] = need_bytes_;
  for (std::size_t column = 0; column < committed_.size(); column++) {
    state_.data[kHead + column] = committed_[column].length;
  }
}

bool Columns::AppendDecimal(std::uint32_t column, const std::uint8_t* from, std::uint32_t size) {
  std::uint8_t bytes[32];
  const std::uint32_t width = types_[column].size;
  const std::uint8_t sign = size > 0 && from[0] >= 0x80 ? 0xff : 0;
  for (std::uint32_t i = 0; i < width; i++) bytes[i] = i < size ? from[size - 1 - i] : sign;
  return AppendFixed(column, bytes);
}

bool Columns::AppendTagged(std::uint32_t column, std::uint8_t tag, const std::uint8_t* from,
                           std::uint32_t size) {
  const Place& place = places_[column];
  Count& count = counts_[column];
  if (count.length >= place.room) return Lack(column);
  if (std::uint64_t{size} + 1 > place.values_room - count.used) return LackText(column, size + 1);
  place.values[count.used] = tag;
  count.used++;
  std::uint64_t seen = 0;
  return AppendText(column, from, size, &seen);
}

bool Columns::AppendEmpty(std::uint32_t column) {
  const ColumnType& type = types_[column];
  if (type.kind == layout::kColumnKindUnion) {
    return Pick(column, 0, column + 1) && AppendEmpty(column + 1);
  }
  if (type.kind == layout::kColumnKindStruct) {
    for (std::uint32_t child = column + 1; child < type.next; child = types_[child].next) {
      if (!AppendEmpty(child)) return false;
    }
  }
  const Place& place = places_[column];
  Count& count = counts_[column];
  if (count.length >= place.room) return Lack(column);
  if (type.kind == layout::kColumnKindBool) {
    SetBit(place.values, count.length, false);
  } else if (IsText(type.kind)) {
    place.offsets[count.length + 1] = static_cast<std::int32_t>(count.used);
  } else if (HasListOffsets(type.kind)) {
    place.offsets[count.length + 1] = static_cast<std::int32_t>(counts_[column + 1].length);
  } else if (type.size > 0) {
    std::memset(place.values + std::size_t{count.length} * type.size, 0, type.size);
  }
  if (place.validity != nullptr) SetBit(place.validity, count.length, false);
  count.length++;
  return true;
}

void Columns::TruncateOpen(std::uint32_t column) {
  const std::uint32_t next = types_[column].next;
  for (std::uint32_t child = column + 1; child < next; child = types_[child].next) {
    const std::int32_t kind = types_[child].kind;
    if (kind == layout::kColumnKindStruct) {
      TruncateOpen(child);
    } else if (kind == layout::kColumnKindList || kind == layout::kColumnKindMap) {
      Truncate(child + 1, OpenStart(child));
    }
  }
}

std::uint32_t Columns::OpenStart(std::uint32_t column) const {
  const std::int32_t start = places_[column].offsets[counts_[column].length];
  return start < 0 ? 0 : static_cast<std::uint32_t>(start);
}

void Columns::Truncate(std::uint32_t column, std::uint32_t length) {
  Count& count = counts_[column];
  // The offsets come from the batch, which may be shared with a thread that writes it.
  if (length >= count.length) return;
  const ColumnType& type = types_[column];
  const Place& place = places_[column];
  count.length = length;
  if (place.validity != nullptr) ClearBits(place.validity, length);
  if (type.kind == layout::kColumnKindBool) {
    ClearBits(place.values, length);
  } else if (type.kind == layout::kColumnKindList || type.kind == layout::kColumnKindMap) {
    Truncate(column + 1, OpenStart(column));
  } else if (IsText(type.kind)) {
    count.used = std::min(count.used, OpenStart(column));
  } else if (type.kind == layout::kColumnKindStruct) {
    for (std::uint32_t child = column + 1; child < type.next; child = types_[child].next) {
      Truncate(child, length);
    }
  }
}

bool Columns::Lack(std::uint32_t column) {
  const ColumnType& type = types_[column];
  const std::uint64_t at = counts_[column].length;
  const std::uint32_t* slots = state_.data + kHead + types_.size() + 2 * kSlots * column;
  std::uint64_t need[kSlots] = {};
  if (type.nullable) need[kValidity] = at / 8 + 1;
  if (type.kind == layout::kColumnKindUnion) {
    need[kOffsets] = (at + 1) * 4;
    need[kValues] = at + 1;
  } else if (HasListOffsets(type.kind)) {
    need[kOffsets] = (at + 2) * 4;
  }
  if (type.kind == layout::kColumnKindBool) {
    need[kValues] = at / 8 + 1;
  } else if (type.size > 0) {
    need[kValues] = (at + 1) * type.size;
  }
  std::uint32_t slot = 0;
  while (slot < kValues && need[slot] <= slots[2 * slot + 1]) slot++;
  need_slot_ = kSlots * column + (at >= kElementsMax ? kValues : slot);
  need_bytes_ = at >= kElementsMax
                    ? kMoreThanAny
                    : static_cast<std::uint32_t>(std::min<std::uint64_t>(need[slot], kMoreThanAny));
  return false;
}

bool Columns::LackText(std::uint32_t column, std::uint32_t size) {
  const std::uint64_t need = std::uint64_t{counts_[column].used} + size;
  need_slot_ = kSlots * column + kValues;
  need_bytes_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(need, kMoreThanAny));
  return false;
}

}  // namespace millrace::kernel::codec
