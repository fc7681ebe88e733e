// What went wrong in the store, as a value.
#pragma once

#include <cstdint>
#include <string>

namespace millrace::state {

// The order of KV_CODES in src/io/rocksdb/port.ts.
enum class Code : std::int32_t {
  kOk = 0,
  kCorrupt = 1,   // a file of the store is damaged, cut or gone; the message names it
  kFull = 2,      // no space left for a write
  kLocked = 3,    // another process, or this one, has the folder open
  kVersion = 4,   // made by a version of the store, or with families, that this one does not know
  kIo = 5,        // any other failure of the disk
  kMissing = 6,   // no store in the folder
  kExists = 7,    // the folder of a checkpoint is there already
  kUnsorted = 8,  // keys of a run do not ascend
  kTooLarge = 9,  // a row does not fit the page it is read into
  kBadRows = 10,  // a span leaves its buffer, or a key or value is outside its bounds
  kInternal = 11,
};

struct [[nodiscard]] Status {
  Code code = Code::kOk;
  std::string message;

  bool ok() const { return code == Code::kOk; }
};

// Takes over and frees the text that the library answered with; null means none.
Status Taken(char* error);

}  // namespace millrace::state
