#include "kernel/frame.h"

#include <cstring>

namespace millrace::kernel {
namespace {

constexpr int kVarintBytesMax = 5;

constexpr std::int32_t Unzigzag(std::uint32_t bits) {
  return static_cast<std::int32_t>((bits >> 1) ^ (0U - (bits & 1U)));
}

// Reads a zigzag varint at *at and advances *at. Returns FRAME_STATUS.OK, TRUNCATED at `end`, or
// BAD_MESSAGE_INDEX.
std::int32_t ReadLongVarint(const std::uint8_t** at, const std::uint8_t* end, std::int32_t* value) {
  std::uint32_t bits = 0;
  for (int i = 0; i < kVarintBytesMax; i++) {
    if (*at == end) return layout::kFrameStatusTruncated;
    const std::uint8_t byte = *(*at)++;
    bits |= static_cast<std::uint32_t>(byte & 0x7fU) << (7 * i);
    if ((byte & 0x80U) != 0) continue;
    const bool past_32_bits = i == kVarintBytesMax - 1 && byte > 0x0fU;
    const bool longer_than_needed = i > 0 && byte == 0;
    if (past_32_bits || longer_than_needed) return layout::kFrameStatusBadMessageIndex;
    *value = Unzigzag(bits);
    return layout::kFrameStatusOk;
  }
  return layout::kFrameStatusBadMessageIndex;
}

// Fast path of ReadLongVarint: nearly every number of a path has one byte.
inline std::int32_t ReadVarint(const std::uint8_t** at, const std::uint8_t* end,
                               std::int32_t* value) {
  if (*at != end && **at < 0x80U) [[likely]] {
    *value = Unzigzag(*(*at)++);
    return layout::kFrameStatusOk;
  }
  return ReadLongVarint(at, end, value);
}

// Reads a path of message indexes; `message_index` as in the column of that name.
std::int32_t ReadIndexes(const std::uint8_t** at, const std::uint8_t* end,
                         std::int32_t* message_index) {
  std::int32_t depth = 0;
  std::int32_t status = ReadVarint(at, end, &depth);
  if (status != layout::kFrameStatusOk) return status;
  *message_index = 0;
  if (depth == 0) return layout::kFrameStatusOk;
  if (depth < 0 || depth > layout::kFrameMessageDepthMax) {
    return layout::kFrameStatusBadMessageIndex;
  }
  for (std::int32_t i = 0; i < depth; i++) {
    std::int32_t index = 0;
    status = ReadVarint(at, end, &index);
    if (status != layout::kFrameStatusOk) return status;
    if (index < 0) return layout::kFrameStatusBadMessageIndex;
    *message_index = depth == 1 ? index : -1;
  }
  return layout::kFrameStatusOk;
}

struct Scanned {
  std::uint32_t schema_id = 0;
  std::uint32_t payload_start = 0;
  std::int32_t payload_length = 0;
  std::int32_t message_index = 0;
  std::uint32_t index_start = 0;
};

template <bool kProtobuf>
std::int32_t ScanValue(const std::uint8_t* arena, std::uint64_t arena_used, std::uint32_t start,
                       std::int32_t length, Scanned* out) {
  if (length < 0) return layout::kFrameStatusNullValue;
  if (length == 0 || !Inside(start, length, arena_used)) return layout::kFrameStatusTruncated;
  const std::uint8_t* value = arena + start;
  if (value[0] != layout::kFrameMagic) return layout::kFrameStatusBadMagic;
  if (length < layout::kFrameHeaderBytes) return layout::kFrameStatusTruncated;
  std::uint32_t prefix = layout::kFrameHeaderBytes;
  std::int32_t message_index = 0;
  if constexpr (kProtobuf) {
    const std::uint8_t* at = value + prefix;
    const std::int32_t status = ReadIndexes(&at, value + length, &message_index);
    if (status != layout::kFrameStatusOk) return status;
    prefix = static_cast<std::uint32_t>(at - value);
  }
  std::uint32_t id = 0;
  std::memcpy(&id, value + layout::WireFrame::kSchemaIdAt, sizeof id);
  out->schema_id = __builtin_bswap32(id);
  out->payload_start = start + prefix;
  out->payload_length = length - static_cast<std::int32_t>(prefix);
  out->message_index = message_index;
  out->index_start = start + layout::kFrameHeaderBytes;
  return layout::kFrameStatusOk;
}

template <bool kProtobuf>
std::uint32_t ScanRows(const Rows<layout::RecordBatch>& records, const layout::FrameBatch& out) {
  const layout::RecordBatch& in = records.at;
  const std::uint32_t rows = records.row_count;
  std::uint32_t good = 0;
  for (std::uint32_t row = 0; row < rows; row++) {
    Scanned scanned;
    const std::int32_t status = ScanValue<kProtobuf>(
        in.arena, records.arena_used, in.value_start[row], in.value_length[row], &scanned);
    out.schema_id[row] = scanned.schema_id;
    out.payload_start[row] = scanned.payload_start;
    out.payload_length[row] = scanned.payload_length;
    out.message_index[row] = scanned.message_index;
    out.index_start[row] = scanned.index_start;
    out.status[row] = static_cast<std::uint8_t>(status);
    good += status == layout::kFrameStatusOk ? 1U : 0U;
  }
  return good;
}

std::uint8_t* WriteVarint(std::uint8_t* at, std::int32_t value) {
  // Only numbers >= 0 are written, so zigzag is a shift.
  std::uint32_t bits = static_cast<std::uint32_t>(value) << 1;
  while (bits > 0x7fU) {
    *at++ = static_cast<std::uint8_t>(bits | 0x80U);
    bits >>= 7;
  }
  *at++ = static_cast<std::uint8_t>(bits);
  return at;
}

}  // namespace

Status ScanFrames(const Rows<layout::RecordBatch>& records, bool protobuf,
                  Rows<layout::FrameBatch>* into, std::uint32_t* framed) {
  if (into->row_capacity < records.row_count) return Status::kTooFewRows;
  *framed = protobuf ? ScanRows<true>(records, into->at) : ScanRows<false>(records, into->at);
  into->at.header->row_count = records.row_count;
  return Status::kOk;
}

Status MakeFramePrefix(std::uint32_t schema_id, Span<const std::int32_t> indexes,
                       FramePrefix* prefix) {
  std::uint8_t* at = prefix->bytes;
  *at++ = static_cast<std::uint8_t>(layout::kFrameMagic);
  const std::uint32_t id = __builtin_bswap32(schema_id);
  std::memcpy(at, &id, sizeof id);
  at += sizeof id;
  if (indexes.data != nullptr) {
    if (indexes.size < 1 || indexes.size > layout::kFrameMessageDepthMax) {
      return Status::kBadArgument;
    }
    for (std::size_t i = 0; i < indexes.size; i++) {
      if (indexes.data[i] < 0) return Status::kBadArgument;
    }
    if (indexes.size == 1 && indexes.data[0] == 0) {
      *at++ = 0;
    } else {
      at = WriteVarint(at, static_cast<std::int32_t>(indexes.size));
      for (std::size_t i = 0; i < indexes.size; i++) at = WriteVarint(at, indexes.data[i]);
    }
  }
  prefix->size = static_cast<std::uint32_t>(at - prefix->bytes);
  return Status::kOk;
}

Status WriteFrames(Span<const std::uint8_t> payloads, Span<const std::uint32_t> payload_start,
                   Span<const std::int32_t> payload_length, std::uint32_t count,
                   const FramePrefix& prefix, Rows<layout::RecordBatch>* into,
                   std::uint32_t* taken) {
  if (payload_start.size < count || payload_length.size < count) return Status::kSpanOutOfRange;
  for (std::uint32_t i = 0; i < count; i++) {
    const std::int32_t length = payload_length.data[i];
    if (length < layout::kSpanNull ||
        (length >= 0 && !Inside(payload_start.data[i], length, payloads.size))) {
      return Status::kSpanOutOfRange;
    }
  }
  const layout::RecordBatch& out = into->at;
  std::uint32_t row = into->row_count;
  std::uint64_t at = into->arena_used;
  std::uint32_t i = 0;
  for (; i < count && row < into->row_capacity; i++, row++) {
    const std::uint32_t start = payload_start.data[i];
    const std::int32_t length = payload_length.data[i];
    // Repeats the check: the memory may be shared with a thread that writes it.
    if (length >= 0 && !Inside(start, length, payloads.size)) break;
    const std::uint64_t size = length < 0 ? 0 : prefix.size + static_cast<std::uint64_t>(length);
    if (at + size > into->arena_capacity) break;
    if (length >= 0) {
      std::memcpy(out.arena + at, prefix.bytes, prefix.size);
      if (length > 0) {
        // memmove: the payloads may lie in the same arena.
        std::memmove(out.arena + at + prefix.size, payloads.data + start,
                     static_cast<std::size_t>(length));
      }
    }
    const auto value_start = static_cast<std::uint32_t>(at);
    out.offset[row] = layout::kSpanNoOffset;
    out.timestamp[row] = 0;
    out.topic_index[row] = 0;
    out.partition[row] = -1;
    out.key_start[row] = value_start;
    out.key_length[row] = layout::kSpanNull;
    out.value_start[row] = value_start;
    out.value_length[row] = length < 0 ? layout::kSpanNull : static_cast<std::int32_t>(size);
    out.headers_start[row] = static_cast<std::uint32_t>(at + size);
    out.headers_length[row] = 0;
    out.timestamp_type[row] = layout::kTimestampTypeNone;
    out.flags[row] = static_cast<std::uint8_t>(layout::kRecordFlagKeyNull |
                                               (length < 0 ? layout::kRecordFlagValueNull : 0));
    at += size;
  }
  out.header->row_count = row;
  out.header->arena_used = static_cast<std::uint32_t>(at);
  into->row_count = row;
  into->arena_used = static_cast<std::uint32_t>(at);
  *taken = i;
  return Status::kOk;
}

}  // namespace millrace::kernel
