#include "broker/wire/inflate.h"

#include <lz4frame.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace millrace::broker::wire {
namespace {

constexpr std::size_t kFirstBytes = 64 * 1024;
// Blocks of the Java client's snappy format begin with this, a version and its least reader, four
// bytes each. Other clients write one block without a head.
constexpr std::uint8_t kXerialMagic[8] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};
constexpr std::size_t kXerialHeadBytes = 16;
// Window of 16 bits, gzip or zlib by the head.
constexpr int kGzipWindowBits = 15 + 32;

}  // namespace

const char* NameOf(Codec codec) {
  switch (codec) {
    case Codec::kNone:
      return "none";
    case Codec::kGzip:
      return "gzip";
    case Codec::kSnappy:
      return "snappy";
    case Codec::kLz4:
      return "lz4";
    case Codec::kZstd:
      return "zstd";
  }
  return "unknown";
}

void Inflater::Free::operator()(std::uint8_t* bytes) const { std::free(bytes); }

Inflater::~Inflater() {
  ZSTD_freeDCtx(zstd_);
  LZ4F_freeDecompressionContext(lz4_);
}

bool Inflater::Grow(std::size_t wanted) {
  const std::size_t least = std::min(bytes_max_, used_ + std::max<std::size_t>(wanted, 1));
  if (least <= used_) return false;
  if (least <= capacity_) return true;
  if (is_fixed_) return false;
  const std::size_t size =
      std::min(bytes_max_, std::max({least, kFirstBytes, std::min(2 * own_capacity_, bytes_max_)}));
  auto* larger = static_cast<std::uint8_t*>(std::realloc(bytes_.get(), size));
  if (larger == nullptr) return false;
  static_cast<void>(bytes_.release());
  bytes_.reset(larger);
  own_capacity_ = size;
  out_ = larger;
  capacity_ = size;
  return true;
}

Inflation Inflater::Stopped() const {
  if (used_ >= bytes_max_) return Inflation::kTooLarge;
  return is_fixed_ ? Inflation::kNoRoom : Inflation::kNoMemory;
}

Inflation Inflater::Inflate(Codec codec, Bytes from, Bytes* out) {
  out_ = bytes_.get();
  capacity_ = own_capacity_;
  is_fixed_ = false;
  return Run(codec, from, out);
}

Inflation Inflater::InflateTo(std::uint8_t* to, std::size_t room, Codec codec, Bytes from,
                              Bytes* out) {
  out_ = to;
  capacity_ = room;
  is_fixed_ = true;
  return Run(codec, from, out);
}

bool Inflater::Copy(Bytes from, Bytes* out) {
  out_ = bytes_.get();
  capacity_ = own_capacity_;
  is_fixed_ = false;
  used_ = 0;
  if (from.size > 0 && !Grow(from.size)) return false;
  if (from.size > 0) std::memcpy(out_, from.data, from.size);
  used_ = from.size;
  *out = {out_, used_};
  return true;
}

Inflation Inflater::Run(Codec codec, Bytes from, Bytes* out) {
  used_ = 0;
  Inflation result = Inflation::kBad;
  switch (codec) {
    case Codec::kNone:
      *out = from;
      return Inflation::kDone;
    case Codec::kGzip:
      result = InflateGzip(from);
      break;
    case Codec::kSnappy:
      result = InflateSnappy(from);
      break;
    case Codec::kLz4:
      result = InflateLz4(from);
      break;
    case Codec::kZstd:
      result = InflateZstd(from);
      break;
  }
  *out = {out_, used_};
  return used_ > limit_ ? Inflation::kTooLarge : result;
}

Inflation Inflater::InflateGzip(Bytes from) {
  if (from.size > UINT_MAX) return Inflation::kBad;
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindowBits) != Z_OK) return Inflation::kNoMemory;
  // zlib does not write to its input.
  stream.next_in = const_cast<Bytef*>(from.data);
  stream.avail_in = static_cast<uInt>(from.size);
  Inflation result = Inflation::kBad;
  for (;;) {
    if (used_ == capacity_ || used_ == bytes_max_) {
      if (!Grow(from.size)) {
        result = Stopped();
        break;
      }
    }
    const std::size_t room =
        std::min<std::size_t>(std::min(capacity_, bytes_max_) - used_, UINT_MAX);
    stream.next_out = out_ + used_;
    stream.avail_out = static_cast<uInt>(room);
    const int code = inflate(&stream, Z_NO_FLUSH);
    used_ += room - stream.avail_out;
    if (code == Z_STREAM_END) {
      if (stream.avail_in == 0) result = Inflation::kDone;
      // Another member may follow.
      if (stream.avail_in == 0 || inflateReset(&stream) != Z_OK) break;
    } else if (code != Z_OK || (stream.avail_in == 0 && stream.avail_out > 0)) {
      break;
    }
  }
  inflateEnd(&stream);
  return result;
}

Inflation Inflater::AppendSnappy(Bytes block) {
  std::size_t size = 0;
  const char* data = reinterpret_cast<const char*>(block.data);
  if (snappy_uncompressed_length(data, block.size, &size) != SNAPPY_OK) return Inflation::kBad;
  if (size > limit_ - std::min(limit_, used_)) return Inflation::kTooLarge;
  if (size > 0 && !Grow(size)) return Stopped();
  std::uint8_t none = 0;
  char* into = size == 0 ? reinterpret_cast<char*>(&none) : reinterpret_cast<char*>(out_ + used_);
  if (snappy_uncompress(data, block.size, into, &size) != SNAPPY_OK) return Inflation::kBad;
  used_ += size;
  return Inflation::kDone;
}

Inflation Inflater::InflateSnappy(Bytes from) {
  const bool is_xerial = from.size >= kXerialHeadBytes &&
                         std::memcmp(from.data, kXerialMagic, sizeof kXerialMagic) == 0;
  if (!is_xerial) return AppendSnappy(from);
  Reader reader(from.data + kXerialHeadBytes, from.size - kXerialHeadBytes);
  while (reader.left() > 0) {
    const Bytes block = reader.Block();
    if (!reader.ok()) return Inflation::kBad;
    if (const Inflation one = AppendSnappy(block); one != Inflation::kDone) return one;
  }
  return Inflation::kDone;
}

Inflation Inflater::InflateLz4(Bytes from) {
  if (lz4_ == nullptr && LZ4F_isError(LZ4F_createDecompressionContext(&lz4_, LZ4F_VERSION)) != 0)
    return Inflation::kNoMemory;
  LZ4F_resetDecompressionContext(lz4_);
  std::size_t hint = 1;
  while (from.size > 0 || hint != 0) {
    if (used_ == capacity_ || used_ == bytes_max_) {
      if (!Grow(4 * from.size)) return Stopped();
    }
    std::size_t read = from.size;
    std::size_t written = std::min(capacity_, bytes_max_) - used_;
    const bool was_empty = read == 0;
    hint = LZ4F_decompress(lz4_, out_ + used_, &written, from.data, &read, nullptr);
    if (LZ4F_isError(hint) != 0) return Inflation::kBad;
    used_ += written;
    from.data += read;
    from.size -= read;
    if (was_empty && written == 0 && hint != 0) return Inflation::kBad;
    if (!was_empty && read == 0 && written == 0) return Inflation::kBad;
  }
  return Inflation::kDone;
}

Inflation Inflater::InflateZstd(Bytes from) {
  if (zstd_ == nullptr) zstd_ = ZSTD_createDCtx();
  if (zstd_ == nullptr) return Inflation::kNoMemory;
  ZSTD_DCtx_reset(zstd_, ZSTD_reset_session_only);
  const unsigned long long size = ZSTD_getFrameContentSize(from.data, from.size);
  if (size == ZSTD_CONTENTSIZE_ERROR) return Inflation::kBad;
  const bool is_known = size != ZSTD_CONTENTSIZE_UNKNOWN;
  if (is_known && size > limit_) return Inflation::kTooLarge;
  if (!Grow(is_known ? static_cast<std::size_t>(size) : 4 * from.size)) return Stopped();
  ZSTD_inBuffer in{from.data, from.size, 0};
  for (;;) {
    ZSTD_outBuffer to{out_, std::min(capacity_, bytes_max_), used_};
    const std::size_t before = in.pos;
    const std::size_t hint = ZSTD_decompressStream(zstd_, &to, &in);
    if (ZSTD_isError(hint) != 0) return Inflation::kBad;
    const bool is_stuck = in.pos == before && to.pos == used_;
    used_ = to.pos;
    if (hint == 0 && in.pos == in.size) return Inflation::kDone;
    if (to.pos == to.size) {
      if (!Grow(from.size)) return Stopped();
    } else if (is_stuck || in.pos == in.size) {
      return Inflation::kBad;
    }
  }
}

}  // namespace millrace::broker::wire
