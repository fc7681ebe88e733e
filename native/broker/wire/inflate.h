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

enum class Inflation { kDone, kBad, kTooLarge, kNoMemory, kNoRoom };

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
  // Decompresses all of `from` to the caller's `room` bytes. kNoRoom, with some of them written,
  // where they do not suffice. Not for kNone, which has no bytes to write.
  Inflation InflateTo(std::uint8_t* to, std::size_t room, Codec codec, Bytes from, Bytes* out);
  // Bytes of a record in the last batch that was inflated, rounded up; 0 before the first. Written
  // by the user of the output, to expect the size of the next one.
  std::size_t record_bytes = 0;
  // Copies bytes to the output buffer. False without memory.
  bool Copy(Bytes from, Bytes* out);

 private:
  struct Free {
    void operator()(std::uint8_t* bytes) const;
  };
  Inflation Run(Codec codec, Bytes from, Bytes* out);
  // Makes room for at least one byte behind `used_`. False at the limit, in the caller's room, or
  // without memory.
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
  std::size_t own_capacity_ = 0;
  // Output of the current call: the own buffer, or the caller's room.
  std::uint8_t* out_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t used_ = 0;
  bool is_fixed_ = false;
  ZSTD_DCtx_s* zstd_ = nullptr;
  LZ4F_dctx_s* lz4_ = nullptr;
};

}  // namespace millrace::broker::wire
