#include "state/cursor.h"

#include <cstring>

namespace millrace::state {

Cursor::Cursor(std::shared_ptr<Store> store, ScanSpec spec)
    : store_(std::move(store)), spec_(std::move(spec)), options_(rocksdb_readoptions_create()) {}

Cursor::~Cursor() = default;

Status Cursor::Start() {
  if (spec_.to.has_value() && *spec_.to <= spec_.from.value_or(std::string())) return {};
  rocksdb_readoptions_set_fill_cache(options_.get(), spec_.keep_blocks ? 1 : 0);
  rocksdb_readoptions_set_background_purge_on_iterator_cleanup(options_.get(), 1);
  if (spec_.to.has_value()) {
    rocksdb_readoptions_set_iterate_upper_bound(options_.get(), spec_.to->data(), spec_.to->size());
  }
  iterator_.reset(
      rocksdb_create_iterator_cf(store_->db(), options_.get(), store_->handle(spec_.family)));
  if (spec_.from.has_value()) {
    rocksdb_iter_seek(iterator_.get(), spec_.from->data(), spec_.from->size());
  } else {
    rocksdb_iter_seek_to_first(iterator_.get());
  }
  char* error = nullptr;
  rocksdb_iter_get_error(iterator_.get(), &error);
  return StatusOf(error);
}

Status Cursor::Next(kernel::Span<std::uint8_t> page, kernel::Span<std::uint32_t> ends,
                    std::uint32_t* rows) {
  *rows = 0;
  if (iterator_ == nullptr) return {};
  const bool spans = spec_.shape == Shape::kSpans;
  const bool keyed = spec_.shape != Shape::kRecords;
  rocksdb_iterator_t* at = iterator_.get();
  std::size_t used = 0;
  std::uint32_t count = 0;
  for (; rocksdb_iter_valid(at) != 0; rocksdb_iter_next(at)) {
    std::size_t key_size = 0;
    std::size_t value_size = 0;
    const char* key = rocksdb_iter_key(at, &key_size);
    const char* value = rocksdb_iter_value(at, &value_size);
    if (spec_.shape == Shape::kFixed &&
        (key_size != spec_.key_bytes || value_size != spec_.value_bytes)) {
      return {Code::kCorrupt, "a row of " + std::to_string(key_size) + " + " +
                                  std::to_string(value_size) + " bytes among rows of " +
                                  std::to_string(spec_.key_bytes) + " + " +
                                  std::to_string(spec_.value_bytes)};
    }
    if (!keyed && value_size % spec_.value_bytes != 0) {
      return {Code::kCorrupt, "a value of " + std::to_string(value_size) +
                                  " bytes is no sequence of records of " +
                                  std::to_string(spec_.value_bytes)};
    }
    const std::size_t bytes = value_size + (keyed ? key_size : 0);
    if (bytes > page.size - used || (spans && ends.size / 2 <= count)) {
      if (count > 0) break;
      return {Code::kTooLarge, "a row of " + std::to_string(bytes) +
                                   " bytes does not fit a page of " + std::to_string(page.size)};
    }
    std::uint8_t* out = page.data + used;
    if (keyed) {
      std::memcpy(out, key, key_size);
      out += key_size;
    }
    std::memcpy(out, value, value_size);
    used += bytes;
    if (spans) {
      ends.data[std::size_t{count} * 2] = static_cast<std::uint32_t>(used - value_size);
      ends.data[std::size_t{count} * 2 + 1] = static_cast<std::uint32_t>(used);
    }
    count += keyed ? 1 : static_cast<std::uint32_t>(value_size / spec_.value_bytes);
  }
  char* error = nullptr;
  rocksdb_iter_get_error(at, &error);
  if (error != nullptr) return StatusOf(error);
  *rows = count;
  return {};
}

}  // namespace millrace::state
