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
    : types_(std::move(types)), cursors_(types_.size()) {
  for (std::uint32_t at = 0; at < types_.size(); at = types_[at].next) top_.push_back(at);
  for (std::uint32_t at = 0; at < types_.size(); at++) {
    cursors_[at].kind = types_[at].kind;
    cursors_[at].size = types_[at].size;
    if (types_[at].kind != layout::kColumnKindUnion) continue;
    for (std::uint32_t child = at + 1; child < types_[at].next; child = types_[child].next) {
      branches_.push_back({child});
    }
  }
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
  for (Branch& branch : branches_) branch.committed = cursors_[branch.column].length;
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
  Cursor& cursor = cursors_[column];
  cursor.length = state.data[kHead + column];
  cursor.used = 0;
  if (cursor.length > room) return Status::kNotThisBatch;
  cursor.validity = type.nullable ? data[kValidity] : nullptr;
  cursor.offsets = reinterpret_cast<std::int32_t*>(data[kOffsets]);
  cursor.values = data[kValues];
  cursor.room = static_cast<std::uint32_t>(room);
  cursor.values_room = capacity[kValues];
  if (IsText(type.kind)) {
    // An offset is an i32: a buffer of 2 GiB or more cannot be used up.
    cursor.values_room = std::min<std::uint32_t>(cursor.values_room, kElementsMax);
    const std::int32_t used = cursor.offsets[cursor.length];
    if (used < 0 || static_cast<std::uint32_t>(used) > cursor.values_room) {
      return Status::kNotThisBatch;
    }
    cursor.used = used;
    cursor.last_short =
        static_cast<std::int32_t>(cursor.values_room) - static_cast<std::int32_t>(kShortText);
  }
  return Status::kOk;
}

void Columns::Rollback() {
  for (const std::uint32_t column : top_) Truncate(column, row_count_);
  for (const Branch& branch : branches_) Truncate(branch.column, branch.committed);
}

bool Columns::AppendEmptyRow() {
  for (const std::uint32_t column : top_) {
    if (!AppendEmpty(cursors_[column])) return false;
  }
  return true;
}

void Columns::Save() {
  state_.data[layout::kColumnStateRowCount] = row_count_;
  state_.data[layout::kColumnStateNeedSlot] = need_slot_;
  state_.data[layout::kColumnStateNeedBytes] = need_bytes_;
  for (std::size_t column = 0; column < cursors_.size(); column++) {
    state_.data[kHead + column] = cursors_[column].length;
  }
}

bool Columns::AppendDecimal(Cursor& into, Bytes from, std::uint32_t size) {
  std::uint8_t bytes[32];
  const std::uint8_t sign = size > 0 && from[0] >= 0x80 ? 0xff : 0;
  for (std::uint32_t i = 0; i < into.size; i++) bytes[i] = i < size ? from[size - 1 - i] : sign;
  return AppendFixed(into, bytes);
}

bool Columns::AppendTagged(Cursor& into, std::uint8_t tag, Bytes from, std::uint32_t size) {
  if (into.length >= into.room) return Lack(into);
  if (size >= into.values_room - static_cast<std::uint32_t>(into.used)) {
    return LackText(into, size + 1);
  }
  into.values[into.used] = tag;
  into.used++;
  return AppendBinary(into, from, size);
}

bool Columns::AppendEmpty(Cursor& into) {
  if (into.kind == layout::kColumnKindUnion) {
    Cursor& child = *(&into + 1);
    return Pick(into, 0, child) && AppendEmpty(child);
  }
  if (into.kind == layout::kColumnKindStruct) {
    const std::uint32_t column = IndexOf(into);
    for (std::uint32_t child = column + 1; child < types_[column].next;
         child = types_[child].next) {
      if (!AppendEmpty(cursors_[child])) return false;
    }
  }
  if (into.length >= into.room) return Lack(into);
  if (into.kind == layout::kColumnKindBool) {
    SetBit(into.values, into.length, false);
  } else if (IsText(into.kind)) {
    into.offsets[into.length + 1] = into.used;
  } else if (HasListOffsets(into.kind)) {
    into.offsets[into.length + 1] = static_cast<std::int32_t>((&into + 1)->length);
  } else if (into.size > 0) {
    std::memset(into.values + std::size_t{into.length} * into.size, 0, into.size);
  }
  if (into.validity != nullptr) SetBit(into.validity, into.length, false);
  into.length++;
  return true;
}

void Columns::TruncateOpen(std::uint32_t column) {
  const std::uint32_t next = types_[column].next;
  for (std::uint32_t child = column + 1; child < next; child = types_[child].next) {
    const std::int32_t kind = types_[child].kind;
    if (kind == layout::kColumnKindStruct) {
      TruncateOpen(child);
    } else if (kind == layout::kColumnKindList || kind == layout::kColumnKindMap) {
      Truncate(child + 1, OpenStart(cursors_[child]));
    }
  }
}

void Columns::Truncate(std::uint32_t column, std::uint32_t length) {
  Cursor& cursor = cursors_[column];
  // Never more: offsets come from the batch, which may be shared with a thread that writes it.
  cursor.length = std::min(cursor.length, length);
  if (cursor.validity != nullptr) ClearBits(cursor.validity, cursor.length);
  switch (cursor.kind) {
    case layout::kColumnKindBool:
      ClearBits(cursor.values, cursor.length);
      break;
    case layout::kColumnKindUtf8:
    case layout::kColumnKindBinary:
      cursor.used = std::min(cursor.used, static_cast<std::int32_t>(OpenStart(cursor)));
      break;
    case layout::kColumnKindList:
    case layout::kColumnKindMap:
      Truncate(column + 1, OpenStart(cursor));
      break;
    case layout::kColumnKindStruct:
      for (std::uint32_t child = column + 1; child < types_[column].next;
           child = types_[child].next) {
        Truncate(child, cursor.length);
      }
      break;
    default:
      break;
  }
}

bool Columns::Lack(const Cursor& into) {
  const std::uint32_t column = IndexOf(into);
  const ColumnType& type = types_[column];
  const std::uint64_t at = into.length;
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

bool Columns::LackText(const Cursor& into, std::uint32_t size) {
  const std::uint64_t need = static_cast<std::uint64_t>(into.used) + size;
  need_slot_ = kSlots * IndexOf(into) + kValues;
  need_bytes_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(need, kMoreThanAny));
  return false;
}

}  // namespace millrace::kernel::codec
