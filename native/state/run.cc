#include "state/run.h"

#include <unistd.h>

#include <string_view>

#include "state/row_order.h"

namespace millrace::state {
namespace {

// Payload of a file, before compression; a larger run has several files.
constexpr std::uint64_t kFilePayloadBytes = 64U << 20;
// Folder of unfinished runs, inside the store's own folder so that ingestion can link the files. It
// is emptied whenever the store is opened.
constexpr char kIncoming[] = "/incoming/";

}  // namespace

Run::Run(std::shared_ptr<Store> store, std::size_t family)
    : store_(std::move(store)), family_(family), env_(rocksdb_envoptions_create()) {}

Run::~Run() {
  writer_.reset();
  for (const std::string& file : files_) unlink(file.c_str());
}

Status Run::NextFile() {
  files_.push_back(store_->folder() + kIncoming + std::to_string(store_->NextFileNumber()) +
                   ".sst");
  writer_.reset(rocksdb_sstfilewriter_create(env_.get(), store_->options(family_)));
  file_payload_ = 0;
  char* error = nullptr;
  rocksdb_sstfilewriter_open(writer_.get(), files_.back().c_str(), &error);
  return StatusOf(error);
}

Status Run::EndFile() {
  char* error = nullptr;
  rocksdb_sstfilewriter_finish(writer_.get(), &error);
  Status status = StatusOf(error);
  if (status.ok()) {
    std::uint64_t bytes = 0;
    rocksdb_sstfilewriter_file_size(writer_.get(), &bytes);
    report_.bytes += bytes;
  }
  writer_.reset();
  return status;
}

Status Run::AddRow(const Bytes& key, const Bytes& value) {
  if (writer_ == nullptr) {
    Status status = NextFile();
    if (!status.ok()) return status;
    // Inside a file the writer checks the order.
    if (std::string_view(key.data, key.size) <= last_key_)
      return {Code::kUnsorted, "a run's keys must ascend from page to page"};
  }
  char* error = nullptr;
  rocksdb_sstfilewriter_put(writer_.get(), key.data, key.size, value.data, value.size, &error);
  if (error != nullptr) return StatusOf(error);
  file_payload_ += key.size + value.size;
  if (file_payload_ < kFilePayloadBytes) return {};
  last_key_.assign(key.data, key.size);
  return EndFile();
}

Status Run::Add(const Rows& rows) {
  RowReader reader(rows);
  Bytes key;
  Bytes value;
  while (reader.Next(&key, &value)) {
    Status status = AddRow(key, value);
    if (!status.ok()) return status;
  }
  report_.rows += rows.count;
  return reader.status();
}

Status Run::AddSorted(const Rows& rows) {
  RowOrder order(rows);
  Status status = order.Sort();
  Bytes key;
  Bytes value;
  while (status.ok() && order.Next(&key, &value)) {
    status = AddRow(key, value);
    report_.rows++;
  }
  return status;
}

Status Run::Append(const Rows& rows) {
  if (status_.ok()) status_ = Add(rows);
  return status_;
}

Status Run::AppendUnsorted(const Rows& rows) {
  if (status_.ok()) status_ = AddSorted(rows);
  return status_;
}

Status Run::Finish(RunReport* report) {
  if (status_.ok() && writer_ != nullptr) status_ = EndFile();
  if (!status_.ok()) return status_;
  if (!files_.empty()) {
    const Held<rocksdb_ingestexternalfileoptions_t, rocksdb_ingestexternalfileoptions_destroy>
        options(rocksdb_ingestexternalfileoptions_create());
    rocksdb_ingestexternalfileoptions_set_move_files(options.get(), 1);
    std::vector<const char*> names;
    names.reserve(files_.size());
    for (const std::string& file : files_) names.push_back(file.c_str());
    char* error = nullptr;
    rocksdb_ingest_external_file_cf(store_->db(), store_->handle(family_), names.data(),
                                    names.size(), options.get(), &error);
    status_ = StatusOf(error);
    if (!status_.ok()) return status_;
  }
  report_.files = static_cast<std::uint32_t>(files_.size());
  *report = report_;
  status_ = {Code::kInternal, "the run was finished already"};
  return {};
}

}  // namespace millrace::state
