#include "kernel/window/workers.h"

namespace millrace::kernel {

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::Run(const std::function<void(std::uint32_t)>& work) {
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    round_++;
    running_ = count_ - 1;
  }
  // A thread that starts now sees this round as begun.
  while (threads_.size() + 1 < count_) {
    const auto number = static_cast<std::uint32_t>(threads_.size() + 1);
    threads_.emplace_back([this, number] { Serve(number); });
  }
  begun_.notify_all();
  work(0);
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return running_ == 0; });
  work_ = nullptr;
}

void Workers::Serve(std::uint32_t number) {
  std::uint64_t seen = 0;
  for (;;) {
    const std::function<void(std::uint32_t)>* work = nullptr;
    {
      std::unique_lock lock(mutex_);
      begun_.wait(lock, [this, seen] { return stopping_ || round_ != seen; });
      if (stopping_) return;
      seen = round_;
      work = work_;
    }
    (*work)(number);
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) ended_.notify_one();
  }
}

}  // namespace millrace::kernel
