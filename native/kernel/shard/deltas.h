// Deltas of the rows of one shard in a batch, with an index over them by key, and their encoded
// columns where there are several shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/batch.h"
#include "kernel/packed.h"
#include "kernel/rows/form.h"
#include "kernel/rows/memory.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel {

struct ShardDeltas {
  RowMemory deltas;
  std::size_t count = 0;
  // Number of a delta, from 1, below the low bits of the hash of its key; 0: empty.
  std::vector<std::uint32_t> index;
  ShardColumns encoded;
  Status status = Status::kOk;

  // Makes room for the deltas of so many rows, and empties the index.
  Status Prepare(std::uint32_t rows, const RowForm& form);
  // Frees the sketches of the deltas, and forgets them.
  void Clear(const RowForm& form);
};

}  // namespace millrace::kernel
