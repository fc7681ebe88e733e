// A walk over a range of keys, page by page, as the family was when it began.
#pragma once

#include <memory>

#include "kernel/span.h"
#include "state/store.h"

namespace millrace::state {

struct ScanSpec {
  std::size_t family = 0;
  Bound from;
  Bound to;
  // What a page takes: keys and values with their ends, rows of one size, or values alone.
  Shape shape = Shape::kSpans;
  std::uint32_t key_bytes = 0;    // kFixed
  std::uint32_t value_bytes = 0;  // kFixed, and kRecords: of a record
  bool keep_blocks = false;       // whether what is read goes into the cache
};

// For one thread at a time.
class Cursor {
 public:
  Cursor(std::shared_ptr<Store> store, ScanSpec spec);
  ~Cursor();
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;

  // Takes the snapshot and goes to the first row.
  Status Start();
  // As many rows as the page holds; none at the end. A row that no page of this size can hold is an
  // error, and the cursor stays before it.
  Status Next(kernel::Span<std::uint8_t> page, kernel::Span<std::uint32_t> ends,
              std::uint32_t* rows);

 private:
  std::shared_ptr<Store> store_;
  ScanSpec spec_;
  Held<rocksdb_readoptions_t, rocksdb_readoptions_destroy> options_;
  // Goes before the options whose bound it points to.
  Held<rocksdb_iterator_t, rocksdb_iter_destroy> iterator_;
};

}  // namespace millrace::state
