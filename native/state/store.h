// Embedded store (RocksDB): families of sorted rows in one folder, under one memory budget.
//
// All functions are thread-safe and may block. Runs and cursors share the ownership of the store,
// so the folder stays open until the last of them is destroyed.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "state/options.h"
#include "state/rows.h"
#include "state/status.h"

namespace millrace::state {

// Exclusive lock on a folder, against this process and others. The library acquires its own lock
// too late: it has renamed the store's LOG and read the manifest before, which disturbs the process
// that has the store open.
class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // kLocked while another opener holds the lock. Where the file system has no such lock, only the
  // library's lock protects the folder.
  Status Acquire(const std::string& folder);

 private:
  int fd_ = -1;
};

struct Settings {
  std::string folder;
  std::uint64_t budget_bytes = 0;
  std::vector<FamilySpec> families;
  bool make = true;  // true: creates a store in a folder without one
};

// Durability of a put when the process dies before the next flush.
enum class Wal : std::uint8_t {
  kOff = 0,   // lost: the caller has a log of its own
  kOn = 1,    // kept, unless the machine crashes too
  kSync = 2,  // kept in every case
};

// Bound of a range of keys; no value means unbounded.
using Bound = std::optional<std::string>;

struct Values {
  std::string bytes;
  std::vector<std::uint32_t> start;
  std::vector<std::int32_t> length;  // -1: the key does not exist
};

// Sizes in bytes, in the order of KV_STATS in src/io/rocksdb/addon.ts.
struct Stats {
  double cache = 0;
  double pinned = 0;
  double memtables = 0;
  double table_readers = 0;
  double disk = 0;
  double pending_compaction = 0;
  double files = 0;  // a number of files
};

class Store {
 public:
  static Status Open(const Settings& settings, std::shared_ptr<Store>* out);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  std::size_t families() const { return families_.size(); }
  const std::string& folder() const { return folder_; }

  // Writes all rows atomically.
  Status Put(std::size_t family, const Rows& rows, Wal wal);
  Status Get(std::size_t family, const Keys& keys, Values* out);
  // Deletes the files that lie completely in [from, to), then writes a range tombstone over the
  // rest, if there is a rest.
  Status DeleteRange(std::size_t family, const Bound& from, const Bound& to, Wal wal);
  // Writes the memtables to files, durably.
  Status Flush();
  // Makes a store of its own in a folder that does not exist yet, with hard links where the file
  // system has them.
  Status Checkpoint(const std::string& folder);
  Stats Measure();

  // Access for runs and cursors.
  rocksdb_t* db() { return db_; }
  rocksdb_column_family_handle_t* handle(std::size_t family) { return families_[family].handle; }
  const rocksdb_options_t* options(std::size_t family) { return families_[family].options.get(); }
  std::uint64_t NextFileNumber() { return next_file_.fetch_add(1); }

 private:
  struct Family {
    Options options;
    rocksdb_column_family_handle_t* handle = nullptr;
  };

  Store() = default;
  Status Write(rocksdb_writebatch_t* batch, Wal wal);
  double Property(std::size_t family, const char* name);

  std::string folder_;
  FolderLock lock_;  // before the members that it protects, so that it is destroyed last
  Cache cache_;
  Options base_;
  rocksdb_t* db_ = nullptr;
  rocksdb_column_family_handle_t* base_handle_ = nullptr;
  std::vector<Family> families_;
  std::atomic<std::uint64_t> next_file_ = 1;
};

}  // namespace millrace::state
