// Record batches as a broker writes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "broker/wire/crc32c.h"

namespace millrace::test {

inline void PutVarint(std::string* out, std::int64_t number) {
  auto value = (static_cast<std::uint64_t>(number) << 1) ^ static_cast<std::uint64_t>(number >> 63);
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80U));
  out->push_back(static_cast<char>(value));
}

inline void PutNumber(std::string* out, std::uint64_t value, unsigned size) {
  for (unsigned i = size; i > 0; i--) out->push_back(static_cast<char>(value >> (8 * (i - 1))));
}

inline void PutSpan(std::string* out, const std::string* text) {
  PutVarint(out, text == nullptr ? -1 : static_cast<std::int64_t>(text->size()));
  if (text != nullptr) out->append(*text);
}

struct PlainRecord {
  std::int64_t offset_delta;
  std::int64_t timestamp_delta;
  const std::string* key;
  const std::string* value;
  std::vector<std::pair<std::string, const std::string*>> headers;
};

inline std::string RecordsOf(const std::vector<PlainRecord>& records) {
  std::string out;
  for (const PlainRecord& record : records) {
    std::string one(1, '\0');
    PutVarint(&one, record.timestamp_delta);
    PutVarint(&one, record.offset_delta);
    PutSpan(&one, record.key);
    PutSpan(&one, record.value);
    PutVarint(&one, static_cast<std::int64_t>(record.headers.size()));
    for (const auto& [name, value] : record.headers) {
      PutSpan(&one, &name);
      PutSpan(&one, value);
    }
    PutVarint(&out, static_cast<std::int64_t>(one.size()));
    out += one;
  }
  return out;
}

struct PlainBatch {
  std::int64_t base_offset = 0;
  std::int16_t attributes = 0;
  std::int32_t last_offset_delta = 0;
  std::int64_t base_timestamp = 1000;
  std::int64_t max_timestamp = 2000;
  std::int64_t producer_id = -1;
  std::int32_t count = 0;
  std::int8_t magic = 2;
  // Compressed as the attributes say.
  std::string records;
};

inline std::string BatchOf(const PlainBatch& batch) {
  std::string body;
  PutNumber(&body, static_cast<std::uint16_t>(batch.attributes), 2);
  PutNumber(&body, static_cast<std::uint32_t>(batch.last_offset_delta), 4);
  PutNumber(&body, static_cast<std::uint64_t>(batch.base_timestamp), 8);
  PutNumber(&body, static_cast<std::uint64_t>(batch.max_timestamp), 8);
  PutNumber(&body, static_cast<std::uint64_t>(batch.producer_id), 8);
  PutNumber(&body, 0, 2);
  PutNumber(&body, 0, 4);
  PutNumber(&body, static_cast<std::uint32_t>(batch.count), 4);
  body += batch.records;
  std::string out;
  PutNumber(&out, static_cast<std::uint64_t>(batch.base_offset), 8);
  PutNumber(&out, body.size() + 9, 4);
  PutNumber(&out, 7, 4);  // leader epoch
  out.push_back(static_cast<char>(batch.magic));
  PutNumber(&out,
            broker::wire::Crc32cByTables(reinterpret_cast<const std::uint8_t*>(body.data()),
                                         body.size()),
            4);
  return out + body;
}

}  // namespace millrace::test
