#include "kernel/encode/encoder.h"

#include <algorithm>

#include "kernel/codec/varint.h"

namespace millrace::kernel::encode {
namespace {

using namespace layout;

constexpr std::uint32_t kSlots = kColumnSlotCount;
constexpr std::uint32_t kHead = kColumnStateHead;
// Offsets of frames are also those of an Arrow binary column.
constexpr std::size_t kBytesMax = 0x7fffffff;
constexpr std::size_t kPayloadBytesMax = kEncodeLimitPayloadBytes;
constexpr std::size_t kPrefixBytesMax = kEncodeLimitPrefixBytes;
constexpr std::size_t kWordsMax = kColumnLimitProgramWords;

bool HasListOffsets(std::int32_t kind) {
  return codec::IsText(kind) || kind == kColumnKindList || kind == kColumnKindMap;
}

}  // namespace

bool ReadTables(Span<const std::int32_t> words, std::vector<std::vector<std::int32_t>>* out) {
  out->clear();
  if (words.size > kWordsMax) return false;
  for (std::size_t at = 0; at < words.size;) {
    const std::int32_t length = words.data[at++];
    if (length < 0 || static_cast<std::size_t>(length) > words.size - at) return false;
    out->emplace_back(words.data + at, words.data + at + length);
    at += static_cast<std::size_t>(length);
  }
  return true;
}

RowEncoder::RowEncoder(const std::vector<codec::ColumnType>& types)
    : columns_(types.size()), spare_((types.size() + 1) * kEncodeLimitSpareBytes) {
  for (std::size_t i = 0; i < types.size(); i++) {
    columns_[i].kind = types[i].kind;
    columns_[i].size = types[i].size;
    columns_[i].next = types[i].next;
    columns_[i].nullable = types[i].nullable;
  }
  for (std::uint32_t at = 0; at < types.size(); at = types[at].next) top_.push_back(at);
}

Status RowEncoder::Encode(Span<std::uint8_t> buffer, Span<std::uint32_t> state, std::uint32_t from,
                          std::uint32_t to, Span<const std::uint8_t> prefix, bool skips,
                          const Frames& into, std::uint32_t* rows) {
  Status status = OpenColumns(buffer, state);
  if (status != Status::kOk) return status;
  if (from > to || to > row_count_) return Status::kSpanOutOfRange;
  if (prefix.size > kPrefixBytesMax) return Status::kBadArgument;
  status = OpenFrames(into, to - from);
  if (status != Status::kOk) return status;
  const std::uint32_t first = into.state.data[kFramesStateRowCount];
  need_bytes_ = 0;
  std::uint32_t done = 0;
  while (done < to - from &&
         AppendRow(from + done, prefix, into, first + done, skips && done == 0)) {
    done++;
  }
  into.state.data[kFramesStateRowCount] = first + done;
  into.state.data[kFramesStateNeedBytes] = need_bytes_;
  *rows = done;
  return Status::kOk;
}

bool RowEncoder::AppendRow(std::uint32_t row, Span<const std::uint8_t> prefix, const Frames& into,
                           std::uint32_t at, bool skips) {
  verdict_ = kEncodeStatusOk;
  error_column_ = 0;
  payload_ = used_;
  Bytes end = nullptr;
  const std::uint8_t decoded = row_status_[row];
  if (decoded != kColumnStatusOk) {
    verdict_ = static_cast<std::uint8_t>(decoded == kColumnStatusNullValue ? kEncodeStatusNullValue
                                                                           : kEncodeStatusNoValue);
  } else if (skips) {
    verdict_ = kEncodeStatusTooLarge;
  } else if (!HasRoom(used_, prefix.size)) {
    Lack(used_, prefix.size);
  } else {
    if (prefix.size > 0) std::memcpy(used_, prefix.data, prefix.size);
    payload_ = used_ + prefix.size;
    end = PutRow(row, payload_);
    if (end != nullptr && static_cast<std::size_t>(end - payload_) > kPayloadBytesMax) {
      verdict_ = kEncodeStatusTooLarge;
    }
  }
  if (verdict_ == kNoRoom) return false;
  if (verdict_ == kEncodeStatusOk) used_ = end;
  into.offsets.data[at + 1] = static_cast<std::uint32_t>(used_ - base_);
  into.status.data[at] = verdict_;
  into.error_column.data[at] = error_column_;
  return true;
}

Status RowEncoder::OpenFrames(const Frames& into, std::uint32_t rows) {
  const std::size_t capacity = into.status.size;
  if (into.state.size != kFramesStateCount || into.offsets.size != capacity + 1 ||
      into.error_column.size != capacity) {
    return Status::kNotThisBatch;
  }
  const std::uint32_t count = into.state.data[kFramesStateRowCount];
  if (count > capacity) return Status::kRowsBeyondCapacity;
  if (rows > capacity - count) return Status::kTooFewRows;
  const std::size_t size = std::min(into.bytes.size, kBytesMax);
  const std::uint32_t used = into.offsets.data[count];
  if (used > size) return Status::kArenaBeyondCapacity;
  base_ = into.bytes.data;
  end_ = base_ + size;
  used_ = base_ + used;
  return Status::kOk;
}

Status RowEncoder::OpenColumns(Span<std::uint8_t> buffer, Span<std::uint32_t> state) {
  const std::size_t columns = columns_.size();
  if (state.size != kHead + columns * (1 + 2 * kSlots)) return Status::kNotThisBatch;
  row_count_ = state.data[kColumnStateRowCount];
  const std::uint32_t capacity = state.data[kColumnStateRowCapacity];
  // As in src/core/columns/batch.ts: error bytes, then statuses.
  const std::size_t errors = Align(std::size_t{capacity} * sizeof(std::uint32_t));
  if ((reinterpret_cast<std::uintptr_t>(buffer.data) & 7U) != 0 ||
      buffer.size < errors + capacity) {
    return Status::kNotThisBatch;
  }
  if (row_count_ > capacity) return Status::kRowsBeyondCapacity;
  row_status_ = buffer.data + errors;
  for (std::uint32_t column = 0; column < columns; column++) {
    const Status status = OpenColumn(column, buffer, state);
    if (status != Status::kOk) return status;
  }
  for (const std::uint32_t column : top_) {
    if (columns_[column].length < row_count_) return Status::kNotThisBatch;
  }
  for (std::uint32_t column = 0; column < columns; column++) {
    if (columns_[column].kind != kColumnKindStruct) continue;
    const std::uint32_t next = columns_[column].next;
    for (std::uint32_t child = column + 1; child < next; child = columns_[child].next) {
      if (columns_[child].length < columns_[column].length) return Status::kNotThisBatch;
    }
  }
  return Status::kOk;
}

Status RowEncoder::OpenColumn(std::uint32_t index, Span<std::uint8_t> buffer,
                              Span<std::uint32_t> state) {
  Column& column = columns_[index];
  const std::uint32_t* slots = state.data + kHead + columns_.size() + 2 * kSlots * index;
  std::uint8_t* data[kSlots];
  std::uint64_t capacity[kSlots];
  for (std::uint32_t slot = 0; slot < kSlots; slot++) {
    const std::uint32_t at = slots[2 * slot];
    capacity[slot] = slots[2 * slot + 1];
    if (at % 8 != 0 || at + capacity[slot] > buffer.size) return Status::kNotThisBatch;
    data[slot] = buffer.data + at;
  }
  std::uint64_t room = kColumnLimitElements;
  if (column.nullable) room = std::min(room, capacity[kColumnSlotValidity] * 8);
  if (column.kind == kColumnKindUnion) {
    room = std::min({room, capacity[kColumnSlotOffsets] / 4, capacity[kColumnSlotValues]});
  } else if (HasListOffsets(column.kind)) {
    if (capacity[kColumnSlotOffsets] < 4) return Status::kNotThisBatch;
    room = std::min(room, capacity[kColumnSlotOffsets] / 4 - 1);
  }
  if (column.kind == kColumnKindBool) {
    room = std::min(room, capacity[kColumnSlotValues] * 8);
  } else if (column.size > 0) {
    room = std::min(room, capacity[kColumnSlotValues] / column.size);
  }
  column.length = state.data[kHead + index];
  if (column.length > room) return Status::kNotThisBatch;
  column.validity = column.nullable ? data[kColumnSlotValidity] : nullptr;
  column.offsets = reinterpret_cast<const std::int32_t*>(data[kColumnSlotOffsets]);
  column.values = data[kColumnSlotValues];
  column.values_bytes = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(capacity[kColumnSlotValues], kColumnLimitElements));
  return Status::kOk;
}

RowEncoder::Bytes RowEncoder::Lack(Bytes to, std::size_t more) {
  // Independent of the room: the same row would be refused in a larger buffer.
  if (static_cast<std::size_t>(to - payload_) + more > kPayloadBytesMax) {
    verdict_ = kEncodeStatusTooLarge;
    return nullptr;
  }
  verdict_ = kNoRoom;
  need_bytes_ = static_cast<std::uint32_t>(
      std::min<std::size_t>(static_cast<std::size_t>(to - base_) + more + spare_, 0xffffffffU));
  return nullptr;
}

RowEncoder::Bytes RowEncoder::Refuse(std::uint32_t column) {
  verdict_ = kEncodeStatusRefused;
  error_column_ = column;
  return nullptr;
}

RowEncoder::Bytes RowEncoder::Break(std::uint32_t column) {
  verdict_ = kEncodeStatusBroken;
  error_column_ = column;
  return nullptr;
}

RowEncoder::Bytes RowEncoder::PutBytes(std::uint32_t index, std::uint32_t at, unsigned shift,
                                       Bytes to) {
  const Column& column = columns_[index];
  std::uint32_t start = 0;
  std::uint32_t size = 0;
  if (!column.Elements(at, column.values_bytes, &start, &size)) return Break(index);
  if (!HasRoom(to, size)) return Lack(to, size);
  to = PutVarint(to, std::uint64_t{size} << shift);
  // The spare bytes of the target are more than those of a length and a short text.
  const std::uint8_t* text = column.values + start;
  const bool is_short =
      size <= codec::kShortText && column.values_bytes - start >= codec::kShortText;
  const bool is_ascii =
      is_short ? codec::CopyShort(to, text, size) : codec::CopyLong(to, text, size);
  // Checks the copy: the columns may be shared with a thread that writes them.
  if (column.kind == kColumnKindUtf8 && !is_ascii && !codec::IsUtf8Beyond(to, size)) {
    return Refuse(index);
  }
  return to + size;
}

}  // namespace millrace::kernel::encode
