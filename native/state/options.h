// RocksDB options: one memory budget, and two kinds of column families (Use).
#pragma once

#include <rocksdb/c.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace millrace::state {

// Deleter that calls the library's own function.
template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* held) const {
    Free(held);
  }
};
template <typename T, auto Free>
using Held = std::unique_ptr<T, Freed<Free>>;

using Options = Held<rocksdb_options_t, rocksdb_options_destroy>;
using TableOptions = Held<rocksdb_block_based_table_options_t, rocksdb_block_based_options_destroy>;
using Cache = Held<rocksdb_cache_t, rocksdb_cache_destroy>;

enum class Use : std::uint8_t {
  kRuns = 0,  // ingested sorted, scanned, dropped by range; not compacted, no filters
  kRows = 1,  // put and ingested, read by key; compacted, with Bloom filters
};

struct FamilySpec {
  std::string name;
  Use use = Use::kRows;
};

inline constexpr std::uint64_t kBudgetBytesMin = 8U << 20;
inline constexpr std::uint64_t kBudgetBytesMax = std::uint64_t{1} << 40;
inline constexpr std::size_t kFamiliesMax = 16;

// Split of the budget: the block cache, and the memtables.
struct Budget {
  std::uint64_t cache_bytes = 0;
  std::uint64_t memtable_bytes = 0;
};
Budget SplitBudget(std::uint64_t bytes);

// Options of one family. Those of the first family also apply to the database. `families` is the
// number of families that share the memtables.
Options MakeOptions(Use use, const Budget& budget, std::size_t families, rocksdb_cache_t* cache);

}  // namespace millrace::state
