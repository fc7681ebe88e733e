// Result of a store operation, as a value.
#pragma once

#include <cstdint>
#include <string>

namespace millrace::state {

// Error codes, in the order of KV_CODES in src/io/rocksdb/port.ts.
enum class Code : std::int32_t {
  kOk = 0,
  kCorrupt = 1,   // a file of the store is damaged, truncated or missing; the message names it
  kFull = 2,      // no space left for a write
  kLocked = 3,    // another process, or this one, has the folder open
  kVersion = 4,   // made by an unknown version of the store, or with unknown families
  kIo = 5,        // any other failure of the disk
  kMissing = 6,   // no store in the folder
  kExists = 7,    // the folder of a checkpoint exists already
  kUnsorted = 8,  // keys of a run do not ascend
  kTooLarge = 9,  // a row does not fit the page that it is read into
  kBadRows = 10,  // a span leaves its buffer, or a key or value is outside its bounds
  kInternal = 11,
};

struct [[nodiscard]] Status {
  Code code = Code::kOk;
  std::string message;

  bool ok() const { return code == Code::kOk; }
};

// Status of a call into the library. Frees `error`, the text of the failure; null means success.
Status StatusOf(char* error);

}  // namespace millrace::state
