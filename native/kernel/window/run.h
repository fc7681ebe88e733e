// A sealed slice, its accumulators ascending by account_id (unsigned), or sessions: those that
// fired by their end, those that were taken out open by account_id and start; read in pages. The
// rows stay where the tables put them; what is sorted is where they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernel/batch.h"
#include "kernel/rows/memory.h"
#include "kernel/rows/pool.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

class SortedRun {
 public:
  enum class Order { kByKey, kByEnd, kByStart };

  // Takes rows, empty ones among them, of which `row_count` are not. By key: no key comes twice. By
  // end: they are sessions, and those of one end ascend by key. By start: they are sessions, and
  // those of one key ascend by start.
  // A pool gets the rows in the end.
  SortedRun(Order order, std::vector<RowMemory> rows, std::size_t row_count,
            std::shared_ptr<RowPool> pool = nullptr)
      : order_by_(order), rows_(std::move(rows)), row_count_(row_count), pool_(std::move(pool)) {}
  ~SortedRun();
  SortedRun(const SortedRun&) = delete;
  SortedRun& operator=(const SortedRun&) = delete;

  // Once, on any thread, while nobody else uses the run.
  void Sort();

  // Copies rows [from, from + into.size), fewer at the end; says how many. REQUIRES: sorted.
  std::size_t Read(std::size_t from, Span<Accumulator> into) const;
  // The row of a key; null where there is none. REQUIRES: sorted, by key.
  const Accumulator* Row(std::uint64_t account_id) const;

  Order order() const { return order_by_; }
  std::size_t row_count() const { return row_count_; }
  // Bytes of the rows and of the order.
  std::size_t bytes() const;

 private:
  // What it is sorted by, and where it stands.
  struct Entry {
    std::uint64_t key;
    const Accumulator* row;
  };
  void SortByKey();
  void SortStarts();
  void SortByDigits();

  Order order_by_;
  std::vector<RowMemory> rows_;
  std::size_t row_count_;
  std::shared_ptr<RowPool> pool_;
  std::vector<Entry> order_;
};

// Merges sorted runs of rows page by page; rows of equal keys are folded into one. Input i has rows
// pages[i] and three cells of `cursors`: the next row, how many rows the page holds, and whether
// this is its last page (1) or not (0). Stops when `into` is full or when a page is done whose run
// goes on: the caller puts the next page there and calls again. Says how many rows were written;
// cursors have moved. kBadArgument when a cursor leaves its page, a row has a count of 0, or keys
// of a page do not ascend; then cursors and `into` are of no more use.
inline constexpr std::size_t kMergeRunsMax = 1024;
Status MergeRuns(Span<const Span<const Accumulator>> pages, Span<std::uint32_t> cursors,
                 Span<Accumulator> into, std::size_t* written);

}  // namespace millrace::kernel
