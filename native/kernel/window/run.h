// Sorted run, read in pages: a sealed slice ascending by account_id (unsigned), fired sessions by
// their end, or detached open sessions by account_id and start. The rows stay where the tables
// stored them; the sort orders pointers to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernel/batch.h"
#include "kernel/rows/form.h"
#include "kernel/rows/memory.h"
#include "kernel/rows/pool.h"
#include "kernel/span.h"
#include "kernel/window/row.h"

namespace millrace::kernel {

class SortedRun {
 public:
  enum class Order { kByKey, kByEnd, kByStart };

  // Takes over stored rows, of which `row_count` are not empty. kByKey: keys are unique.
  // kByEnd: rows are sessions; those of one end ascend by key. kByStart: rows are sessions; those
  // of one key ascend by start. The destructor gives the rows to the pool, where there is one.
  SortedRun(Order order, std::vector<RowMemory> rows, std::size_t row_count, RowForm form = {},
            std::shared_ptr<RowPool> pool = nullptr)
      : order_by_(order),
        rows_(std::move(rows)),
        row_count_(row_count),
        form_(std::move(form)),
        pool_(std::move(pool)) {}
  ~SortedRun();
  SortedRun(const SortedRun&) = delete;
  SortedRun& operator=(const SortedRun&) = delete;

  // Sorts the run. REQUIRES: called once, on any thread, while no other thread uses the run.
  void Sort();

  // Copies rows to a page from row `from` on, as many as fit, and returns their number. REQUIRES:
  // sorted.
  std::size_t Read(std::size_t from, Span<Accumulator> into) const;
  // Stored row of a key; null where there is none. REQUIRES: sorted by key.
  const Accumulator* Row(std::uint64_t account_id) const;

  Order order() const { return order_by_; }
  std::size_t row_count() const { return row_count_; }
  const RowForm& form() const { return form_; }
  // Bytes of the rows with their blocks, and of the sort order.
  std::size_t bytes() const;

 private:
  // Sort key and pointer to the row.
  struct Entry {
    std::uint64_t key;
    const Accumulator* row;
  };
  // Calls each(row) for the rows that are not empty.
  template <typename Each>
  void ForEachRow(const Each& each) const {
    for (const RowMemory& memory : rows_) {
      for (std::size_t i = 0; i < memory.held(); i += form_.lines()) {
        Accumulator* const row = memory.rows() + i;
        if (row->count != 0) each(row);
      }
    }
  }
  void SortRows();
  void SortByKey();
  void SortStarts();
  void SortByDigits();

  Order order_by_;
  std::vector<RowMemory> rows_;
  std::size_t row_count_;
  const RowForm form_;
  std::shared_ptr<RowPool> pool_;
  std::vector<Entry> order_;
  std::size_t block_bytes_ = 0;
};

// Merges sorted runs of rows of pages, page by page; rows of equal keys are folded into one.
// Input i has the rows pages[i] and three cells of `cursors`: the next row, the number of rows of
// the page, and 1 when this is its last page, else 0. Stops when `into` is full, or when a page
// ends that is not the last of its run: the caller loads the next page and calls again. `written`
// is the number of rows written; the cursors have moved. kBadArgument when a cursor leaves its
// page, a row has a count of 0, or keys of a page do not ascend; then cursors and `into` are
// invalid.
inline constexpr std::size_t kMergeRunsMax = 1024;
Status MergeRuns(const RowForm& form, Span<const Span<const Accumulator>> pages,
                 Span<std::uint32_t> cursors, Span<Accumulator> into, std::size_t* written);

}  // namespace millrace::kernel
