// Run: rows in ascending order, written to files beside the store and ingested as a whole.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "state/store.h"

namespace millrace::state {

struct RunReport {
  std::uint64_t rows = 0;
  std::uint64_t bytes = 0;  // bytes of its files
  std::uint32_t files = 0;
};

// Not thread-safe: one thread at a time. The first failure ends the run: every later call returns
// it.
class Run {
 public:
  Run(std::shared_ptr<Store> store, std::size_t family);
  // Deletes the files of a run that was not ingested.
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Appends rows. The report counts every record, however many records one value holds.
  Status Append(const Rows& rows);
  // Appends rows in any order; the last of those with equal keys stays.
  // REQUIRES: the shape is kSpans or kKeyed.
  Status AppendUnsorted(const Rows& rows);
  // Ingests the files. Afterwards all rows are visible and durable; a partial run is never visible.
  Status Finish(RunReport* report);

 private:
  using Writer = Held<rocksdb_sstfilewriter_t, rocksdb_sstfilewriter_destroy>;

  Status Add(const Rows& rows);
  Status AddSorted(const Rows& rows);
  Status AddRow(const Bytes& key, const Bytes& value);
  Status NextFile();
  Status EndFile();

  std::shared_ptr<Store> store_;
  std::size_t family_;
  Held<rocksdb_envoptions_t, rocksdb_envoptions_destroy> env_;
  Writer writer_;
  std::uint64_t file_payload_ = 0;
  std::vector<std::string> files_;
  std::string last_key_;  // last key of the previous file
  RunReport report_;
  Status status_;
};

}  // namespace millrace::state
