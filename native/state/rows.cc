#include "state/rows.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace millrace::state {
namespace {

const char* Text(const std::uint8_t* data) { return reinterpret_cast<const char*>(data); }

std::uint64_t WordAt(const std::uint8_t* data) {
  std::uint64_t word = 0;
  std::memcpy(&word, data, sizeof word);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

void PutBig(std::uint64_t word, char* out) {
  if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
  std::memcpy(out, &word, sizeof word);
}

bool Holds(std::size_t size, std::uint64_t count, std::uint64_t stride) {
  return count * stride <= size;
}

}  // namespace

Status Rows::Check() const {
  const auto bad = [](const char* why) { return Status{Code::kBadRows, why}; };
  switch (shape) {
    case Shape::kSpans:
      if (ends.size / 2 < count) return bad("ends: two cells are needed for each row");
      return {};
    case Shape::kFixed:
      if (key_bytes < 1 || key_bytes > kKeyBytesMax || value_bytes > kValueBytesMax)
        return bad("a key or value is outside its bounds");
      if (!Holds(bytes.size, count, std::uint64_t{key_bytes} + value_bytes))
        return bad("bytes: fewer than the rows need");
      return {};
    case Shape::kRecords:
      if (prefix.size() + kWordBytes > kKeyBytesMax) return bad("prefix: too long");
      if (value_bytes < kWordBytes || value_bytes > kValueBytesMax ||
          word_at > value_bytes - kWordBytes) {
        return bad("the word of the key lies outside the record");
      }
      if (per_value < 1 || per_value > kValueBytesMax / value_bytes)
        return bad("too many records for one value");
      if (!Holds(bytes.size, count, value_bytes)) return bad("bytes: fewer than the records need");
      return {};
    case Shape::kKeyed:
      if (value_bytes > kValueBytesMax || zero_bytes > value_bytes)
        return bad("a value is outside its bounds");
      if (ends.size < count) return bad("ends: a cell is needed for each key");
      if (!Holds(bytes.size, count, value_bytes)) return bad("bytes: fewer than the records need");
      return {};
  }
  return bad("no such shape");
}

void KeyedRow::Compose(std::uint32_t row, std::size_t key_at, std::size_t key_end, Bytes* key,
                       Bytes* value) {
  key_.resize(rows_.prefix.size());
  key_.append(Text(rows_.keys.data) + key_at, key_end - key_at);
  const std::size_t zeros = rows_.zero_bytes;
  const std::uint8_t* const record = rows_.bytes.data + std::size_t{row} * rows_.value_bytes;
  std::memcpy(value_.data() + zeros, record + zeros, value_.size() - zeros);
  *key = {key_.data(), key_.size()};
  *value = {value_.data(), value_.size()};
}

bool RowReader::Bad(Code code, const char* what) {
  status_ = {code, "row " + std::to_string(row_) + ": " + what};
  return false;
}

bool RowReader::Next(Bytes* key, Bytes* value) {
  if (!status_.ok() || row_ >= rows_.count) return false;
  switch (rows_.shape) {
    case Shape::kSpans:
      return NextSpan(key, value);
    case Shape::kRecords:
      return NextRecords(key, value);
    case Shape::kKeyed:
      return NextKeyed(key, value);
    case Shape::kFixed:
      *key = {Text(rows_.bytes.data) + at_, rows_.key_bytes};
      *value = {key->data + rows_.key_bytes, rows_.value_bytes};
      at_ += std::size_t{rows_.key_bytes} + rows_.value_bytes;
      row_++;
      return true;
  }
  return false;
}

bool RowReader::NextSpan(Bytes* key, Bytes* value) {
  const volatile std::uint32_t* cell = rows_.ends.data + std::size_t{row_} * 2;
  const std::size_t key_end = cell[0];
  const std::size_t value_end = cell[1];
  if (key_end < at_ || value_end < key_end || value_end > rows_.bytes.size)
    return Bad(Code::kBadRows, "its span leaves the buffer");
  if (key_end == at_ || key_end - at_ > kKeyBytesMax || value_end - key_end > kValueBytesMax)
    return Bad(Code::kBadRows, "its key or value is outside its bounds");
  *key = {Text(rows_.bytes.data) + at_, key_end - at_};
  *value = {Text(rows_.bytes.data) + key_end, value_end - key_end};
  at_ = value_end;
  row_++;
  return true;
}

bool RowReader::NextRecords(Bytes* key, Bytes* value) {
  const std::size_t record = rows_.value_bytes;
  const std::uint32_t take = std::min(rows_.per_value, rows_.count - row_);
  const std::uint8_t* first = rows_.bytes.data + row_ * record;
  PutBig(WordAt(first + rows_.word_at), key_.data() + rows_.prefix.size());
  for (std::uint32_t i = 0; i < take; i++) {
    const std::uint64_t word = WordAt(first + i * record + rows_.word_at);
    if (row_ + i > 0 && word <= last_word_) return Bad(Code::kUnsorted, "records do not ascend");
    last_word_ = word;
  }
  *key = {key_.data(), key_.size()};
  *value = {Text(first), take * record};
  row_ += take;
  return true;
}

bool RowReader::NextKeyed(Bytes* key, Bytes* value) {
  const volatile std::uint32_t* cell = rows_.ends.data + row_;
  const std::size_t end = *cell;
  if (end < at_ || end > rows_.keys.size) return Bad(Code::kBadRows, "its key leaves the buffer");
  const std::size_t size = rows_.prefix.size() + end - at_;
  if (size < 1 || size > kKeyBytesMax) return Bad(Code::kBadRows, "its key is outside its bounds");
  keyed_.Compose(row_, at_, end, key, value);
  at_ = end;
  row_++;
  return true;
}

Status Keys::Check() const {
  // An empty array may have no memory.
  if (count == 0) return {};
  if (ends.data != nullptr) {
    if (ends.size >= count) return {};
    return {Code::kBadRows, "ends: a cell is needed for each key"};
  }
  if (key_bytes < 1 || key_bytes > kKeyBytesMax)
    return {Code::kBadRows, "a key is outside its bounds"};
  if (Holds(bytes.size, count, key_bytes)) return {};
  return {Code::kBadRows, "bytes: fewer than the keys need"};
}

bool Keys::At(std::uint32_t row, std::size_t* start, Bytes* key) const {
  const volatile std::uint32_t* cell = ends.data == nullptr ? nullptr : ends.data + row;
  const std::size_t end = cell == nullptr ? *start + key_bytes : *cell;
  if (end <= *start || end > bytes.size || end - *start > kKeyBytesMax) return false;
  *key = {Text(bytes.data) + *start, end - *start};
  *start = end;
  return true;
}

}  // namespace millrace::state
