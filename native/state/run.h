// A run: rows in ascending order, written to files beside the store and taken in as a whole.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "state/store.h"

namespace millrace::state {

struct RunReport {
  std::uint64_t rows = 0;
  std::uint64_t bytes = 0;  // of its files
  std::uint32_t files = 0;
};

// For one thread at a time. The first failure ends the run: every later call answers with it.
class Run {
 public:
  Run(std::shared_ptr<Store> store, std::size_t family);
  // Removes the files of a run that was not taken in.
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Rows of a record count one each, whatever number of them one value holds.
  Status Append(const Rows& rows);
  // All rows are visible, and durable, once this answers; nobody sees a part of them.
  Status Finish(RunReport* report);

 private:
  using Writer = Held<rocksdb_sstfilewriter_t, rocksdb_sstfilewriter_destroy>;

  Status Add(const Rows& rows);
  Status NextFile();
  Status EndFile();

  std::shared_ptr<Store> store_;
  std::size_t family_;
  Held<rocksdb_envoptions_t, rocksdb_envoptions_destroy> env_;
  Writer writer_;
  std::uint64_t file_payload_ = 0;
  std::vector<std::string> files_;
  std::string last_key_;  // of the file before
  RunReport report_;
  Status status_;
};

}  // namespace millrace::state
