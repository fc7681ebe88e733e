// Conversion of one librdkafka record to a row of a batch.
#pragma once

#include <cstdint>
#include <cstring>

#include "broker/library.h"
#include "layout/layouts.gen.h"

namespace millrace::broker {

inline std::size_t HeaderBytes(const rd_kafka_headers_t* headers) {
  const char* name = nullptr;
  const void* value = nullptr;
  std::size_t size = 0;
  std::size_t bytes = 0;
  for (std::size_t i = 0;
       rd_kafka_header_get_all(headers, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR;
       i++) {
    bytes += layout::RecordHeader::kBytes + std::strlen(name) + (value == nullptr ? 0 : size);
  }
  return bytes;
}

// False only where the record certainly has no headers. librdkafka must allocate to find out; the
// wire format is cheaper: a record of format 2 (recognized by its leader epoch) has the number of
// its headers directly behind its value, and 0 is one zero byte.
inline bool MayHaveHeaders(const rd_kafka_message_t* message) {
  // The pointer of an empty value does not point into the record.
  if (message->payload == nullptr || message->len == 0) return true;
  if (rd_kafka_message_leader_epoch(message) < 0) return true;
  return static_cast<const std::uint8_t*>(message->payload)[message->len] != 0;
}

inline void CopyHeaders(const rd_kafka_headers_t* headers, std::uint8_t* to) {
  const char* name = nullptr;
  const void* value = nullptr;
  std::size_t size = 0;
  for (std::size_t i = 0;
       rd_kafka_header_get_all(headers, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR;
       i++) {
    const auto name_length = static_cast<std::uint32_t>(std::strlen(name));
    const std::int32_t value_length =
        value == nullptr ? layout::kSpanNull : static_cast<std::int32_t>(size);
    std::memcpy(to + layout::RecordHeader::kNameLengthAt, &name_length, 4);
    std::memcpy(to + layout::RecordHeader::kValueLengthAt, &value_length, 4);
    to += layout::RecordHeader::kBytes;
    std::memcpy(to, name, name_length);
    to += name_length;
    if (value != nullptr) std::memcpy(to, value, size);
    if (value != nullptr) to += size;
  }
}

// Writes one record. REQUIRES: the row exists, and the arena has room for key, value and headers
// from `at` on.
inline void WriteRecord(const layout::RecordBatch& batch, std::uint32_t row, std::uint32_t at,
                        const rd_kafka_message_t* message, std::uint32_t topic_index,
                        const rd_kafka_headers_t* headers, std::size_t header_bytes) {
  const std::size_t key_bytes = message->key == nullptr ? 0 : message->key_len;
  const std::size_t value_bytes = message->payload == nullptr ? 0 : message->len;
  rd_kafka_timestamp_type_t type = RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
  batch.offset[row] = message->offset;
  batch.timestamp[row] = rd_kafka_message_timestamp(message, &type);
  batch.timestamp_type[row] = static_cast<std::uint8_t>(type);
  batch.topic_index[row] = static_cast<std::int32_t>(topic_index);
  batch.partition[row] = message->partition;
  batch.key_start[row] = at;
  batch.key_length[row] =
      message->key == nullptr ? layout::kSpanNull : static_cast<std::int32_t>(key_bytes);
  if (key_bytes > 0) std::memcpy(batch.arena + at, message->key, key_bytes);
  at += static_cast<std::uint32_t>(key_bytes);
  batch.value_start[row] = at;
  batch.value_length[row] =
      message->payload == nullptr ? layout::kSpanNull : static_cast<std::int32_t>(value_bytes);
  if (value_bytes > 0) std::memcpy(batch.arena + at, message->payload, value_bytes);
  at += static_cast<std::uint32_t>(value_bytes);
  batch.headers_start[row] = at;
  batch.headers_length[row] = static_cast<std::int32_t>(header_bytes);
  if (header_bytes > 0) CopyHeaders(headers, batch.arena + at);
  batch.flags[row] =
      static_cast<std::uint8_t>((message->key == nullptr ? layout::kRecordFlagKeyNull : 0) |
                                (message->payload == nullptr ? layout::kRecordFlagValueNull : 0) |
                                (header_bytes > 0 ? layout::kRecordFlagHasHeaders : 0));
}

}  // namespace millrace::broker
