// The embedded store: families of sorted rows in one folder, under one bound on memory.
//
// Everything here may be called from any thread but is meant for threads that may wait. Runs and
// cursors share the store's ownership, so the folder stays open until the last of them is gone.
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

// A folder for one opener, in this process or any other. The library takes its own lock only after
// it has put the store's LOG aside and read the manifest, which disturbs who has it open.
class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // kLocked while another has it. Where the disk knows no such lock, the library's alone stands.
  Status Take(const std::string& folder);

 private:
  int fd_ = -1;
};

struct Settings {
  std::string folder;
  std::uint64_t budget_bytes = 0;
  std::vector<FamilySpec> families;
  bool make = true;  // whether a folder without a store gets one
};

// What a put leaves behind when the process dies before the next flush.
enum class Wal : std::uint8_t {
  kOff = 0,   // nothing: the caller has a log of its own
  kOn = 1,    // everything, unless the machine dies too
  kSync = 2,  // everything
};

// An edge of a range of keys; none means no edge.
using Bound = std::optional<std::string>;

struct Values {
  std::string bytes;
  std::vector<std::uint32_t> start;
  std::vector<std::int32_t> length;  // -1: no such key
};

// Bytes, in the order of KV_STATS in src/io/rocksdb/addon.ts.
struct Stats {
  double cache = 0;
  double pinned = 0;
  double memtables = 0;
  double table_readers = 0;
  double disk = 0;
  double pending_compaction = 0;
  double files = 0;  // a count
};

class Store {
 public:
  static Status Open(const Settings& settings, std::shared_ptr<Store>* out);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  std::size_t families() const { return families_.size(); }
  const std::string& folder() const { return folder_; }

  // All rows or, after a crash, none.
  Status Put(std::size_t family, const Rows& rows, Wal wal);
  Status Get(std::size_t family, const Keys& keys, Values* out);
  // Files that lie in [from, to) as a whole at once, then a mark over the rest if there is one.
  Status DeleteRange(std::size_t family, const Bound& from, const Bound& to, Wal wal);
  // What was put is in files, durably.
  Status Flush();
  // A store of its own in a folder that is not there yet: hard links where the disk has them.
  Status Checkpoint(const std::string& folder);
  Stats Measure();

  // For runs and cursors.
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
  FolderLock lock_;  // before what it protects, so that it goes last
  Cache cache_;
  Options base_;
  rocksdb_t* db_ = nullptr;
  rocksdb_column_family_handle_t* base_handle_ = nullptr;
  std::vector<Family> families_;
  std::atomic<std::uint64_t> next_file_ = 1;
};

}  // namespace millrace::state
