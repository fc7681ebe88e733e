// Cursor over a range of keys, page by page, on a snapshot of the family from its start.
#pragma once

#include <memory>

#include "kernel/span.h"
#include "state/store.h"

namespace millrace::state {

struct ScanSpec {
  std::size_t family = 0;
  Bound from;
  Bound to;
  // Layout of a page: keys and values with their ends, rows of one size, or values alone.
  Shape shape = Shape::kSpans;
  std::uint32_t key_bytes = 0;    // kFixed
  std::uint32_t value_bytes = 0;  // kFixed: of a value; kRecords: of a record
  bool keep_blocks = false;       // true: blocks that were read stay in the cache
};

// Not thread-safe: one thread at a time.
class Cursor {
 public:
  Cursor(std::shared_ptr<Store> store, ScanSpec spec);
  ~Cursor();
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;

  // Takes the snapshot and seeks the first row.
  Status Start();
  // Reads as many rows as the page holds; 0 rows at the end. A row that does not fit an empty page
  // is an error, and the cursor stays at it.
  Status Next(kernel::Span<std::uint8_t> page, kernel::Span<std::uint32_t> ends,
              std::uint32_t* rows);

 private:
  std::shared_ptr<Store> store_;
  ScanSpec spec_;
  Held<rocksdb_readoptions_t, rocksdb_readoptions_destroy> options_;
  // Destroyed before the options: it points to their bound.
  Held<rocksdb_iterator_t, rocksdb_iter_destroy> iterator_;
};

}  // namespace millrace::state
