#include "state/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace millrace::state {
namespace {

using ReadOptions = Held<rocksdb_readoptions_t, rocksdb_readoptions_destroy>;
using WriteOptions = Held<rocksdb_writeoptions_t, rocksdb_writeoptions_destroy>;
using WriteBatch = Held<rocksdb_writebatch_t, rocksdb_writebatch_destroy>;
using Iterator = Held<rocksdb_iterator_t, rocksdb_iter_destroy>;

// Family that every RocksDB database has; the families of this store have other names.
constexpr char kBaseFamily[] = "default";
// Number of keys that are looked up together.
constexpr std::uint32_t kLookupKeys = 128;

const char* CText(const std::string& text) { return text.c_str(); }

// Greatest bound below `to` for keys of at most kKeyBytesMax bytes: the library deletes files by a
// range that includes its upper end.
std::string Below(std::string to) {
  const char last = to.back();
  to.pop_back();
  if (last == '\0') return to;
  to.push_back(static_cast<char>(static_cast<unsigned char>(last) - 1));
  to.append(kKeyBytesMax, '\xff');
  return to;
}

// Refuses families of the store that the settings do not name: they would have no options.
Status CheckFamilies(const rocksdb_options_t* options, const Settings& settings) {
  std::size_t count = 0;
  char* error = nullptr;
  char** names = rocksdb_list_column_families(options, CText(settings.folder), &count, &error);
  if (error != nullptr) return StatusOf(error);
  Status status;
  for (std::size_t i = 0; i < count; i++) {
    const std::string name = names[i];
    const bool known =
        name == kBaseFamily || std::any_of(settings.families.begin(), settings.families.end(),
                                           [&](const FamilySpec& one) { return one.name == name; });
    if (!known) {
      status = {Code::kVersion, "it holds the family \"" + name + "\", which is not known here"};
      break;
    }
  }
  rocksdb_list_column_families_destroy(names, count);
  return status;
}

}  // namespace

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

Status FolderLock::Acquire(const std::string& folder) {
  fd_ = open(CText(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0 || flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return {};
  return {Code::kLocked, "it is open already, in this process or another"};
}

Status Store::Open(const Settings& settings, std::shared_ptr<Store>* out) {
  const Budget budget = SplitBudget(settings.budget_bytes);
  std::shared_ptr<Store> store(new Store());
  store->folder_ = settings.folder;
  const Status locked = store->lock_.Acquire(settings.folder);
  if (!locked.ok()) return locked;
  store->cache_.reset(rocksdb_cache_create_lru(budget.cache_bytes));
  const std::size_t shares = settings.families.size();
  store->base_ = MakeOptions(Use::kRows, budget, shares, store->cache_.get());
  rocksdb_options_set_create_if_missing(store->base_.get(), settings.make ? 1 : 0);
  rocksdb_options_set_create_missing_column_families(store->base_.get(), 1);
  if (!settings.make) {
    Status status = CheckFamilies(store->base_.get(), settings);
    if (!status.ok()) return status;
  }
  std::vector<const char*> names = {kBaseFamily};
  std::vector<const rocksdb_options_t*> options = {store->base_.get()};
  for (const FamilySpec& one : settings.families) {
    store->families_.push_back(
        {MakeOptions(one.use, budget, shares, store->cache_.get()), nullptr});
    names.push_back(CText(one.name));
    options.push_back(store->families_.back().options.get());
  }
  std::vector<rocksdb_column_family_handle_t*> handles(names.size());
  char* error = nullptr;
  store->db_ = rocksdb_open_column_families(store->base_.get(), CText(settings.folder),
                                            static_cast<int>(names.size()), names.data(),
                                            options.data(), handles.data(), &error);
  if (error != nullptr) {
    store->db_ = nullptr;
    return StatusOf(error);
  }
  store->base_handle_ = handles[0];
  for (std::size_t i = 0; i < store->families_.size(); i++) {
    store->families_[i].handle = handles[i + 1];
  }
  *out = std::move(store);
  return {};
}

Store::~Store() {
  if (db_ == nullptr) return;
  rocksdb_cancel_all_background_work(db_, 1);
  for (const Family& family : families_) rocksdb_column_family_handle_destroy(family.handle);
  rocksdb_column_family_handle_destroy(base_handle_);
  rocksdb_close(db_);
}

Status Store::Write(rocksdb_writebatch_t* batch, Wal wal) {
  const WriteOptions options(rocksdb_writeoptions_create());
  rocksdb_writeoptions_disable_WAL(options.get(), wal == Wal::kOff ? 1 : 0);
  rocksdb_writeoptions_set_sync(options.get(), wal == Wal::kSync ? 1 : 0);
  char* error = nullptr;
  rocksdb_write(db_, options.get(), batch, &error);
  return StatusOf(error);
}

Status Store::Put(std::size_t family, const Rows& rows, Wal wal) {
  const WriteBatch batch(rocksdb_writebatch_create());
  rocksdb_column_family_handle_t* into = handle(family);
  RowReader reader(rows);
  Bytes key;
  Bytes value;
  while (reader.Next(&key, &value)) {
    rocksdb_writebatch_put_cf(batch.get(), into, key.data, key.size, value.data, value.size);
  }
  if (!reader.status().ok()) return reader.status();
  return Write(batch.get(), wal);
}

Status Store::Get(std::size_t family, const Keys& keys, Values* out) {
  const ReadOptions options(rocksdb_readoptions_create());
  std::array<const char*, kLookupKeys> data;
  std::array<std::size_t, kLookupKeys> size;
  std::array<rocksdb_pinnableslice_t*, kLookupKeys> found;
  std::array<char*, kLookupKeys> errors;
  out->start.reserve(keys.count);
  out->length.reserve(keys.count);
  std::size_t at = 0;
  for (std::uint32_t row = 0; row < keys.count;) {
    const std::uint32_t count = std::min(kLookupKeys, keys.count - row);
    for (std::uint32_t i = 0; i < count; i++, row++) {
      Bytes key;
      if (!keys.At(row, &at, &key))
        return {Code::kBadRows, "key " + std::to_string(row) + " is outside its bounds"};
      data[i] = key.data;
      size[i] = key.size;
    }
    rocksdb_batched_multi_get_cf(db_, options.get(), handle(family), count, data.data(),
                                 size.data(), found.data(), errors.data(), false);
    Status status;
    for (std::uint32_t i = 0; i < count; i++) {
      Status one = StatusOf(errors[i]);
      if (status.ok()) status = std::move(one);
      std::int32_t length = -1;
      out->start.push_back(static_cast<std::uint32_t>(out->bytes.size()));
      if (found[i] != nullptr) {
        std::size_t bytes = 0;
        const char* value = rocksdb_pinnableslice_value(found[i], &bytes);
        length = static_cast<std::int32_t>(bytes);
        if (out->bytes.size() + bytes <= UINT32_MAX) {
          out->bytes.append(value, bytes);
        } else if (status.ok()) {
          status = {Code::kTooLarge, "the values of one call exceed 4 GiB"};
        }
        rocksdb_pinnableslice_destroy(found[i]);
      }
      out->length.push_back(length);
    }
    if (!status.ok()) return status;
  }
  return {};
}

Status Store::DeleteRange(std::size_t family, const Bound& from, const Bound& to, Wal wal) {
  const std::string low = from.value_or(std::string());
  if (to.has_value() && *to <= low) return {};
  rocksdb_column_family_handle_t* in = handle(family);
  const std::string last = to.has_value() ? Below(*to) : std::string();
  char* error = nullptr;
  rocksdb_delete_file_in_range_cf(db_, in, from.has_value() ? low.data() : nullptr, low.size(),
                                  to.has_value() ? last.data() : nullptr, last.size(), &error);
  if (error != nullptr) return StatusOf(error);

  const ReadOptions options(rocksdb_readoptions_create());
  rocksdb_readoptions_set_fill_cache(options.get(), 0);
  if (to.has_value())
    rocksdb_readoptions_set_iterate_upper_bound(options.get(), to->data(), to->size());
  const Iterator left(rocksdb_create_iterator_cf(db_, options.get(), in));
  rocksdb_iter_seek(left.get(), low.data(), low.size());
  rocksdb_iter_get_error(left.get(), &error);
  if (error != nullptr) return StatusOf(error);
  if (rocksdb_iter_valid(left.get()) == 0) return {};
  std::string end;
  if (to.has_value()) {
    end = *to;
  } else {
    rocksdb_iter_seek_to_last(left.get());
    rocksdb_iter_get_error(left.get(), &error);
    if (error != nullptr) return StatusOf(error);
    std::size_t size = 0;
    const char* key = rocksdb_iter_key(left.get(), &size);
    end.assign(key, size);
    end.push_back('\0');
  }
  const WriteBatch batch(rocksdb_writebatch_create());
  rocksdb_writebatch_delete_range_cf(batch.get(), in, low.data(), low.size(), end.data(),
                                     end.size());
  return Write(batch.get(), wal);
}

Status Store::Flush() {
  const Held<rocksdb_flushoptions_t, rocksdb_flushoptions_destroy> options(
      rocksdb_flushoptions_create());
  rocksdb_flushoptions_set_wait(options.get(), 1);
  for (const Family& family : families_) {
    char* error = nullptr;
    rocksdb_flush_cf(db_, options.get(), family.handle, &error);
    if (error != nullptr) return StatusOf(error);
  }
  return {};
}

Status Store::Checkpoint(const std::string& folder) {
  char* error = nullptr;
  const Held<rocksdb_checkpoint_t, rocksdb_checkpoint_object_destroy> checkpoint(
      rocksdb_checkpoint_object_create(db_, &error));
  if (error != nullptr) return StatusOf(error);
  // 0: the memtables are flushed first, including those without a write-ahead log.
  rocksdb_checkpoint_create(checkpoint.get(), CText(folder), 0, &error);
  return StatusOf(error);
}

double Store::Property(std::size_t family, const char* name) {
  std::uint64_t value = 0;
  if (rocksdb_property_int_cf(db_, handle(family), name, &value) != 0) return 0;
  return static_cast<double>(value);
}

Stats Store::Measure() {
  Stats stats;
  stats.cache = static_cast<double>(rocksdb_cache_get_usage(cache_.get()));
  stats.pinned = static_cast<double>(rocksdb_cache_get_pinned_usage(cache_.get()));
  for (std::size_t i = 0; i < families_.size(); i++) {
    stats.memtables += Property(i, "rocksdb.size-all-mem-tables");
    stats.table_readers += Property(i, "rocksdb.estimate-table-readers-mem");
    stats.disk += Property(i, "rocksdb.total-sst-files-size");
    stats.pending_compaction += Property(i, "rocksdb.estimate-pending-compaction-bytes");
    rocksdb_column_family_metadata_t* metadata =
        rocksdb_get_column_family_metadata_cf(db_, handle(i));
    if (metadata == nullptr) continue;
    stats.files += static_cast<double>(rocksdb_column_family_metadata_get_file_count(metadata));
    rocksdb_column_family_metadata_destroy(metadata);
  }
  return stats;
}

}  // namespace millrace::state
