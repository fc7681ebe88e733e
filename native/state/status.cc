#include "state/status.h"

#include <rocksdb/c.h>

#include <initializer_list>
#include <string_view>

namespace millrace::state {
namespace {

bool HasOneOf(std::string_view text, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    if (text.find(part) != std::string_view::npos) return true;
  }
  return false;
}

// Derives the code from the text, because the C interface returns nothing else.
Code CodeOf(std::string_view text) {
  const bool is_io = text.starts_with("IO error");
  if (is_io && HasOneOf(text, {"No space left on device", "Disk quota exceeded", "File too large",
                               "Space limit"})) {
    return Code::kFull;
  }
  if (is_io && HasOneOf(text, {"lock hold by", "While lock file"})) return Code::kLocked;
  // A file that the manifest lists is missing in the folder.
  if (is_io && HasOneOf(text, {"No such file"}) && HasOneOf(text, {".sst", "MANIFEST", "CURRENT"}))
    return Code::kCorrupt;
  if (is_io) return Code::kIo;
  if (HasOneOf(text, {"newer version", "nknown Footer version", "Unsupported format_version",
                      "Column family not found", "Column families not opened"})) {
    return Code::kVersion;
  }
  if (text.starts_with("Corruption")) return Code::kCorrupt;
  if (HasOneOf(text, {"create_if_missing is false"})) return Code::kMissing;
  if (HasOneOf(text, {"Directory exists"})) return Code::kExists;
  if (HasOneOf(text, {"strict ascending order"})) return Code::kUnsorted;
  return Code::kInternal;
}

}  // namespace

Status StatusOf(char* error) {
  if (error == nullptr) return {};
  Status status{CodeOf(error), error};
  rocksdb_free(error);
  // The library tries an old file extension last, and names a missing file by it.
  constexpr std::string_view kOld = ".ldb: No such file";
  const std::size_t at = status.message.find(kOld);
  if (at != std::string::npos) status.message.replace(at, 4, ".sst");
  return status;
}

}  // namespace millrace::state
