#include "state/options.h"

#include <algorithm>

namespace millrace::state {
namespace {

constexpr std::uint64_t kMiB = 1U << 20;
constexpr std::uint64_t kMemtableBytesMax = 256 * kMiB;
// Least size that the library accepts.
constexpr std::uint64_t kFamilyMemtableBytesMin = 64U << 10;
// A second memtable fills while the first is flushed.
constexpr int kMemtables = 2;

constexpr std::size_t kRunBlockBytes = 32U << 10;
constexpr std::size_t kRowBlockBytes = 8U << 10;
constexpr double kBloomBits = 10;

constexpr int kOpenFilesMax = 512;
constexpr std::uint64_t kSyncEveryBytes = kMiB;
constexpr std::size_t kCompactionReadBytes = 512U << 10;
constexpr std::size_t kLogBytesMax = kMiB;
constexpr std::size_t kManifestBytesMax = 16 * kMiB;
constexpr std::uint64_t kRowFileBytes = 64 * kMiB;

// Values of enumerations that the C interface passes as numbers.
constexpr int kWarnings = 2;
constexpr int kTolerateCutTail = 0;
constexpr char kXxh3 = 4;
constexpr int kFormatVersion = 5;

}  // namespace

Budget SplitBudget(std::uint64_t bytes) {
  Budget budget;
  budget.memtable_bytes = std::min(bytes / 4, kMemtableBytesMax);
  budget.cache_bytes = bytes - budget.memtable_bytes;
  return budget;
}

Options MakeOptions(Use use, const Budget& budget, std::size_t families, rocksdb_cache_t* cache) {
  Options made(rocksdb_options_create());
  rocksdb_options_t* options = made.get();

  // Memory. Each family's memtables are bounded, so their sum is bounded at any write rate.
  const std::uint64_t memtable = std::max(
      budget.memtable_bytes / (kMemtables * std::uint64_t{families}), kFamilyMemtableBytesMin);
  rocksdb_options_set_db_write_buffer_size(options, budget.memtable_bytes);
  rocksdb_options_set_write_buffer_size(options, memtable);
  rocksdb_options_set_max_write_buffer_number(options, kMemtables);
  rocksdb_options_set_max_open_files(options, kOpenFilesMax);
  rocksdb_options_compaction_readahead_size(options, kCompactionReadBytes);

  // Files. Log and manifest are bounded; obsolete files are deleted immediately.
  rocksdb_options_set_bytes_per_sync(options, kSyncEveryBytes);
  rocksdb_options_set_info_log_level(options, kWarnings);
  rocksdb_options_set_max_log_file_size(options, kLogBytesMax);
  rocksdb_options_set_keep_log_file_num(options, 2);
  rocksdb_options_set_max_manifest_file_size(options, kManifestBytesMax);
  rocksdb_options_set_stats_dump_period_sec(options, 0);
  rocksdb_options_set_stats_persist_period_sec(options, 0);
  rocksdb_options_set_skip_stats_update_on_db_open(options, 1);
  rocksdb_options_set_advise_random_on_open(options, 0);
  // Damage in the middle of the write-ahead log is an error; a truncated last record is the normal
  // trace of a crash.
  rocksdb_options_set_wal_recovery_mode(options, kTolerateCutTail);

  rocksdb_options_set_max_background_jobs(options, 2);
  rocksdb_options_set_compression(options, rocksdb_lz4_compression);
  rocksdb_options_set_disable_auto_compactions(options, use == Use::kRuns ? 1 : 0);
  rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
  rocksdb_options_set_target_file_size_base(options, kRowFileBytes);

  // Index and filters are partitioned and live in the cache, so that they count against the budget.
  const TableOptions table_held(rocksdb_block_based_options_create());
  rocksdb_block_based_table_options_t* table = table_held.get();
  rocksdb_block_based_options_set_block_cache(table, cache);
  rocksdb_block_based_options_set_block_size(table,
                                             use == Use::kRuns ? kRunBlockBytes : kRowBlockBytes);
  rocksdb_block_based_options_set_format_version(table, kFormatVersion);
  rocksdb_block_based_options_set_checksum(table, kXxh3);
  rocksdb_block_based_options_set_index_type(
      table, rocksdb_block_based_table_index_type_two_level_index_search);
  rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
  rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(table, 1);
  rocksdb_block_based_options_set_pin_top_level_index_and_filter(table, 1);
  if (use == Use::kRows) {
    rocksdb_block_based_options_set_partition_filters(table, 1);
    rocksdb_block_based_options_set_filter_policy(
        table, rocksdb_filterpolicy_create_bloom_full(kBloomBits));
  }
  rocksdb_options_set_block_based_table_factory(options, table);
  return made;
}

}  // namespace millrace::state
