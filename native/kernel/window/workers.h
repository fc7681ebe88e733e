// Threads that process the shards of one call in parallel. The calling thread takes part, and Run
// returns when all shards are done.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace millrace::kernel {

class Workers {
 public:
  // Threads start with the first Run.
  explicit Workers(std::uint32_t count) : count_(count) {}
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Calls work(0) … work(count - 1) once each, each on a thread of its own; work(0) runs on the
  // calling thread.
  void Run(const std::function<void(std::uint32_t)>& work);

 private:
  void Serve(std::uint32_t number);

  std::uint32_t count_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable ended_;
  const std::function<void(std::uint32_t)>* work_ = nullptr;
  std::uint64_t round_ = 0;
  std::uint32_t running_ = 0;
  bool stopping_ = false;
};

}  // namespace millrace::kernel
