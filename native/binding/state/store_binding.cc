// Exported functions of a store.
#include <cstring>

#include "binding/state/register.h"
#include "binding/state/store_handle.h"

namespace millrace::binding {
namespace {

using state::Status;

constexpr std::size_t kPathBytesMax = 4096;
constexpr std::size_t kNameBytesMax = 64;

// Reads the names of the families and, from the Uint8Array behind them, the use of each.
bool FamiliesOf(Call& call, std::size_t index, std::vector<state::FamilySpec>* out) {
  const napi_env env = call.env();
  Span<std::uint8_t> uses;
  bool is = false;
  std::uint32_t count = 0;
  if (napi_is_array(env, call[index], &is) != napi_ok || !is ||
      napi_get_array_length(env, call[index], &count) != napi_ok) {
    ThrowType(env, "families: expected an array of strings");
    return false;
  }
  if (!call.Array(index + 1, "uses", &uses)) return false;
  if (count < 1 || count > state::kFamiliesMax || uses.size != count) {
    Throw(env, kOutOfRange, "families: from 1 to %zu with a use each", state::kFamiliesMax);
    return false;
  }
  for (std::uint32_t i = 0; i < count; i++) {
    napi_value item = nullptr;
    char name[kNameBytesMax + 1];
    std::size_t length = 0;
    if (napi_get_element(env, call[index], i, &item) != napi_ok ||
        napi_get_value_string_utf8(env, item, name, sizeof name, &length) != napi_ok) {
      ThrowType(env, "families: expected an array of strings");
      return false;
    }
    const std::uint8_t use = uses.data[i];
    if (use > static_cast<std::uint8_t>(state::Use::kRows)) {
      Throw(env, kOutOfRange, "uses: %u is not a known use of a family",
            static_cast<unsigned>(use));
      return false;
    }
    out->push_back({std::string(name, length), static_cast<state::Use>(use)});
  }
  return true;
}

// (folder, budgetBytes, families, uses, make) -> handle
napi_value StateOpen(napi_env env, napi_callback_info info) {
  Call call(env, info);
  state::Settings settings;
  std::int64_t budget = 0;
  if (!call.HasArguments(5) || !call.Text(0, "folder", kPathBytesMax, &settings.folder) ||
      !call.Integer(1, "budgetBytes", static_cast<std::int64_t>(state::kBudgetBytesMin),
                    static_cast<std::int64_t>(state::kBudgetBytesMax), &budget) ||
      !FamiliesOf(call, 2, &settings.families) || !call.Boolean(4, "make", &settings.make)) {
    return nullptr;
  }
  settings.budget_bytes = static_cast<std::uint64_t>(budget);
  auto handle = std::make_shared<StoreHandle>(std::move(settings));
  if (!handle->Open(env)) return nullptr;
  return NewHandle(env, kStoreType, std::move(handle));
}

// (handle) -> promise; opens the folder
napi_value StateStart(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (!call.HasArguments(1)) return nullptr;
  auto handle = Open<StoreHandle>(call, 0, "store", kStoreType);
  if (handle == nullptr) return nullptr;
  auto job = std::make_unique<StateJob<Nothing>>(
      [slot = handle->slot(), settings = handle->settings()](Nothing*) {
        std::shared_ptr<state::Store> store;
        Status status = state::Store::Open(settings, &store);
        if (status.ok()) slot->Set(std::move(store));
        return status;
      });
  return handle->Post(env, Lane::kWrite, std::move(job));
}

bool WalOf(Call& call, std::size_t index, state::Wal* out) {
  std::int64_t number = 0;
  if (!call.Integer(index, "wal", 0, static_cast<std::int64_t>(state::Wal::kSync), &number))
    return false;
  *out = static_cast<state::Wal>(number);
  return true;
}

// (handle, family, wal, …rows) -> promise
napi_value StatePut(napi_env env, napi_callback_info info) {
  Call call(env, info);
  OpenStore open;
  std::size_t family = 0;
  state::Wal wal = state::Wal::kOff;
  state::Rows rows;
  if (!call.HasArguments(3 + kRowsArguments) || !StoreOf(call, &open) ||
      !FamilyOf(call, 1, *open.handle, &family) || !WalOf(call, 2, &wal) ||
      !RowsOf(call, 3, &rows)) {
    return nullptr;
  }
  auto job =
      std::make_unique<StateJob<Nothing>>([store = open.store, family, wal, rows = std::move(rows)](
                                              Nothing*) { return store->Put(family, rows, wal); });
  KeepRows(env, call, 3, job.get());
  return open.handle->Post(env, Lane::kWrite, std::move(job));
}

template <typename Cell>
napi_value ToCells(napi_env env, napi_typedarray_type type, const Cell* cells, std::size_t count) {
  napi_value buffer = nullptr;
  napi_value array = nullptr;
  void* data = nullptr;
  if (napi_create_arraybuffer(env, count * sizeof(Cell), &data, &buffer) != napi_ok ||
      napi_create_typedarray(env, type, count, buffer, 0, &array) != napi_ok) {
    Throw(env, kInternal, "cannot make an array of %zu cells", count);
    return nullptr;
  }
  if (count > 0) std::memcpy(data, cells, count * sizeof(Cell));
  return array;
}

// (handle, family, bytes, ends | null, count, keyBytes) -> promise of [bytes, start, length]
napi_value StateGet(napi_env env, napi_callback_info info) {
  Call call(env, info);
  OpenStore open;
  std::size_t family = 0;
  state::Keys keys;
  if (!call.HasArguments(6) || !StoreOf(call, &open) || !FamilyOf(call, 1, *open.handle, &family) ||
      !call.Bytes(2, "bytes", &keys.bytes) ||
      (!call.IsNull(3) && !call.Array(3, "ends", &keys.ends)) ||
      !call.Uint32(4, "count", &keys.count) || !call.Uint32(5, "keyBytes", &keys.key_bytes)) {
    return nullptr;
  }
  const Status status = keys.Check();
  if (!status.ok()) {
    Throw(env, kOutOfRange, "%s", status.message.c_str());
    return nullptr;
  }
  const auto make = [](napi_env to, const state::Values& found) {
    napi_value list = nullptr;
    napi_create_array_with_length(to, 3, &list);
    napi_set_element(to, list, 0,
                     ToCells(to, napi_uint8_array, found.bytes.data(), found.bytes.size()));
    napi_set_element(to, list, 1,
                     ToCells(to, napi_uint32_array, found.start.data(), found.start.size()));
    napi_set_element(to, list, 2,
                     ToCells(to, napi_int32_array, found.length.data(), found.length.size()));
    return list;
  };
  auto job = std::make_unique<StateJob<state::Values>>(
      [store = open.store, family, keys](state::Values* out) {
        return store->Get(family, keys, out);
      },
      make);
  KeepRows(env, call, 2, job.get());
  return open.handle->Post(env, Lane::kRead, std::move(job));
}

// (handle, family, from | null, to | null, wal) -> promise
napi_value StateDeleteRange(napi_env env, napi_callback_info info) {
  Call call(env, info);
  OpenStore open;
  std::size_t family = 0;
  state::Bound from;
  state::Bound to;
  state::Wal wal = state::Wal::kOff;
  if (!call.HasArguments(5) || !StoreOf(call, &open) || !FamilyOf(call, 1, *open.handle, &family) ||
      !BoundOf(call, 2, "from", &from) || !BoundOf(call, 3, "to", &to) || !WalOf(call, 4, &wal)) {
    return nullptr;
  }
  auto job =
      std::make_unique<StateJob<Nothing>>([store = open.store, family, from, to, wal](Nothing*) {
        return store->DeleteRange(family, from, to, wal);
      });
  return open.handle->Post(env, Lane::kWrite, std::move(job));
}

// (handle) -> promise
napi_value StateFlush(napi_env env, napi_callback_info info) {
  Call call(env, info);
  OpenStore open;
  if (!call.HasArguments(1) || !StoreOf(call, &open)) return nullptr;
  auto job = std::make_unique<StateJob<Nothing>>(
      [store = open.store](Nothing*) { return store->Flush(); });
  return open.handle->Post(env, Lane::kWrite, std::move(job));
}

// (handle, folder) -> promise
napi_value StateCheckpoint(napi_env env, napi_callback_info info) {
  Call call(env, info);
  OpenStore open;
  std::string folder;
  if (!call.HasArguments(2) || !StoreOf(call, &open) ||
      !call.Text(1, "folder", kPathBytesMax, &folder))
    return nullptr;
  auto job = std::make_unique<StateJob<Nothing>>(
      [store = open.store, folder](Nothing*) { return store->Checkpoint(folder); });
  return open.handle->Post(env, Lane::kWrite, std::move(job));
}

// (handle) -> promise of numbers in the order of state::Stats
napi_value StateStats(napi_env env, napi_callback_info info) {
  Call call(env, info);
  OpenStore open;
  if (!call.HasArguments(1) || !StoreOf(call, &open)) return nullptr;
  const auto make = [](napi_env to, const state::Stats& stats) {
    const double numbers[] = {stats.cache,         stats.pinned, stats.memtables,
                              stats.table_readers, stats.disk,   stats.pending_compaction,
                              stats.files};
    return ToCells(to, napi_float64_array, numbers, sizeof numbers / sizeof *numbers);
  };
  auto job = std::make_unique<StateJob<state::Stats>>(
      [store = open.store](state::Stats* out) {
        *out = store->Measure();
        return Status();
      },
      make);
  return open.handle->Post(env, Lane::kRead, std::move(job));
}

// (handle) -> promise; flushes the memtables and releases the folder. Only close may follow.
napi_value StateLeave(napi_env env, napi_callback_info info) {
  Call call(env, info);
  OpenStore open;
  if (!call.HasArguments(1) || !StoreOf(call, &open)) return nullptr;
  open.store.reset();
  auto job = std::make_unique<StateJob<Nothing>>([slot = open.handle->slot()](Nothing*) {
    const std::shared_ptr<state::Store> last = slot->Detach();
    return last == nullptr ? Status() : last->Flush();
  });
  return open.handle->Post(env, Lane::kWrite, std::move(job));
}

napi_value StateClose(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (call.HasArguments(1) && CloseHandle(call, 0, "store", kStoreType)) return Undefined(env);
  return nullptr;
}

}  // namespace

void RegisterStore(napi_env env, napi_value exports) {
  Export(env, exports, "stateOpen", StateOpen);
  Export(env, exports, "stateStart", StateStart);
  Export(env, exports, "statePut", StatePut);
  Export(env, exports, "stateGet", StateGet);
  Export(env, exports, "stateDeleteRange", StateDeleteRange);
  Export(env, exports, "stateFlush", StateFlush);
  Export(env, exports, "stateCheckpoint", StateCheckpoint);
  Export(env, exports, "stateStats", StateStats);
  Export(env, exports, "stateLeave", StateLeave);
  Export(env, exports, "stateClose", StateClose);
}

}  // namespace millrace::binding
