// Decompression of record batches by the standard libraries, within a limit.
#pragma once

#include <cstdint>
#include <memory>

#include "broker/wire/reader.h"

struct ZSTD_DCtx_s;
struct LZ4F_dctx_s;

namespace millrace::broker::wire {

// Codec numbers in the attributes of a batch. Source: Kafka protocol guide.
enum class Codec : std::uint8_t { kNone = 0, kGzip = 1, kSnappy = 2, kLz4 = 3, kZstd = 4 };
inline constexpr std::uint8_t kCodecsMax = 4;
const char* NameOf(Codec codec);

enum class Inflation { kDone, kBad, kTooLarge, kNoMemory };

// Contexts and the output buffer, reused from batch to batch.
class Inflater {
 public:
  // `bytes_max`: limit of the decompressed bytes of one batch.
  explicit Inflater(std::size_t bytes_max) : limit_(bytes_max), bytes_max_(bytes_max + 1) {}
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Decompresses all of `from`. The output is valid until the next call.
  Inflation Inflate(Codec codec, Bytes from, Bytes* out);

 private:
  struct Free {
    void operator()(std::uint8_t* bytes) const;
  };
  // Makes room for at least one byte behind `used_`. False at the limit, or without memory.
  bool Grow(std::size_t wanted);
  Inflation Stopped() const;
  Inflation InflateGzip(Bytes from);
  Inflation InflateSnappy(Bytes from);
  Inflation AppendSnappy(Bytes block);
  Inflation InflateLz4(Bytes from);
  Inflation InflateZstd(Bytes from);

  std::size_t limit_;
  // One byte more than the limit: an end behind the last byte is read with room for another.
  std::size_t bytes_max_;
  std::unique_ptr<std::uint8_t[], Free> bytes_;
  std::size_t capacity_ = 0;
  std::size_t used_ = 0;
  ZSTD_DCtx_s* zstd_ = nullptr;
  LZ4F_dctx_s* lz4_ = nullptr;
};

}  // namespace millrace::broker::wire
