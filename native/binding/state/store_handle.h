// Handle of a store: its threads, and the jobs that run on them.
//
// Invariants: (1) jobs of one lane run in the order in which they were posted; lanes run in
// parallel; (2) jobs own the store, never the handle, so no thread can join itself; (3) rows, pages
// and their ends are protected from garbage collection until the job is settled.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "binding/async.h"
#include "binding/handle.h"
#include "state/store.h"

namespace millrace::binding {

enum class Lane : std::size_t {
  kWrite = 0,  // puts, deletions, flushes, checkpoints
  kRead = 1,   // lookups and scans
  kRun = 2,    // pages of runs
};
inline constexpr std::size_t kLanes = 3;

// Holds the store while it is open; shared by the handle and the jobs that open and close it.
class StoreSlot {
 public:
  void Set(std::shared_ptr<state::Store> store);
  std::shared_ptr<state::Store> Get();
  std::shared_ptr<state::Store> Detach();

 private:
  std::mutex mutex_;
  std::shared_ptr<state::Store> store_;
};

class StoreHandle final : public Resource {
 public:
  explicit StoreHandle(state::Settings settings) : settings_(std::move(settings)) {}
  ~StoreHandle() override { Shut(); }

  // Opens the channel and starts the threads. False after a throw.
  bool Open(napi_env env);
  void Close() override { Shut(); }

  napi_value Post(napi_env env, Lane lane, std::unique_ptr<Job> job);
  const state::Settings& settings() const { return settings_; }
  const std::shared_ptr<StoreSlot>& slot() const { return slot_; }

 private:
  void Shut();

  state::Settings settings_;
  std::shared_ptr<StoreSlot> slot_ = std::make_shared<StoreSlot>();
  std::shared_ptr<Channel> channel_ = std::make_shared<Channel>();
  std::array<JobQueue, kLanes> jobs_;
  std::array<std::thread, kLanes> threads_;
};

// Handle of argument 0 and its store. StoreOf returns false after a throw; the error is `closed`
// where the store is not open.
struct OpenStore {
  std::shared_ptr<StoreHandle> handle;
  std::shared_ptr<state::Store> store;
};
bool StoreOf(Call& call, OpenStore* out);

extern const HandleType kStoreType;

// [null or [code, message], payload or null]: the result of every call.
napi_value ToAnswer(napi_env env, const state::Status& status, napi_value payload);

struct Nothing {};

// Runs `act` on a lane; `make` converts its result to a JavaScript value.
template <typename Out>
class StateJob final : public Job {
 public:
  using Act = std::function<state::Status(Out*)>;
  using Make = napi_value (*)(napi_env env, const Out& out);

  explicit StateJob(Act act, Make make = nullptr) : act_(std::move(act)), make_(make) {}

  bool Run() override {
    status_ = act_(&out_);
    // Destroys what the job owned on the job's own thread.
    act_ = nullptr;
    return true;
  }
  napi_value Result(napi_env env) override {
    napi_value payload = nullptr;
    if (status_.ok() && make_ != nullptr) payload = make_(env, out_);
    return ToAnswer(env, status_, payload);
  }

 private:
  Act act_;
  Make make_;
  Out out_ = {};
  state::Status status_;
};

// Arguments that several functions have.
[[nodiscard]] bool FamilyOf(Call& call, std::size_t index, const StoreHandle& handle,
                            std::size_t* out);
// Reads a key, or null: no bound.
[[nodiscard]] bool BoundOf(Call& call, std::size_t index, const char* name, state::Bound* out);
// Reads nine arguments from `index` on: bytes, ends | null, prefix | null, keys | null, count,
// keyBytes, valueBytes, wordAt or for rows with keys zeroBytes, perValue. Only the counts are
// checked, not the content of `ends`.
inline constexpr std::size_t kRowsArguments = 9;
[[nodiscard]] bool RowsOf(Call& call, std::size_t index, state::Rows* out);
void KeepRows(napi_env env, const Call& call, std::size_t index, Job* job);

}  // namespace millrace::binding
