// Records of the answers: latencies, one digest for each key, and the ledger that `millrace
// reconcile` reads.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace load {

// Log-linear histogram: a bucket is at most 1/128 of its value wide, up to 2^40 ns (18 minutes).
class Histogram {
 public:
  void Record(std::int64_t ns) {
    const auto value = static_cast<std::uint64_t>(ns < 0 ? 0 : ns);
    counts_[BucketOf(value)]++;
    total_++;
    if (value > largest_) largest_ = value;
  }
  std::uint64_t total() const { return total_; }
  double MaxMs() const { return static_cast<double>(largest_) / 1e6; }
  // Upper bound of the bucket that contains the quantile.
  double QuantileMs(double q) const {
    if (total_ == 0) return 0;
    const double want = q * static_cast<double>(total_);
    std::uint64_t seen = 0;
    for (std::size_t bucket = 0; bucket < counts_.size(); bucket++) {
      seen += counts_[bucket];
      if (static_cast<double>(seen) >= want && seen > 0) {
        return static_cast<double>(std::min(BoundOf(bucket), largest_)) / 1e6;
      }
    }
    return MaxMs();
  }

 private:
  static constexpr int kSubBits = 7;
  static constexpr std::uint64_t kSub = 1 << kSubBits;
  static constexpr std::uint64_t kLargest = (1ULL << 40) - 1;

  static std::size_t BucketOf(std::uint64_t value) {
    if (value > kLargest) value = kLargest;
    if (value < kSub) return value;
    const int shift = std::bit_width(value) - 1 - kSubBits;
    return (static_cast<std::size_t>(shift) + 1) * kSub + ((value >> shift) - kSub);
  }
  static std::uint64_t BoundOf(std::size_t bucket) {
    if (bucket < kSub) return bucket;
    const std::size_t shift = bucket / kSub - 1;
    return ((kSub + bucket % kSub + 1) << shift) - 1;
  }

  std::vector<std::uint64_t> counts_ = std::vector<std::uint64_t>((40 - kSubBits + 1) * kSub);
  std::uint64_t total_ = 0;
  std::uint64_t largest_ = 0;
};

using Digest = std::array<std::uint8_t, 32>;

// SHA-256 (FIPS 180-4).
class Sha256 {
 public:
  static Digest Of(std::string_view text) {
    std::uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                              0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const auto* at = reinterpret_cast<const std::uint8_t*>(text.data());
    std::size_t left = text.size();
    for (; left >= 64; at += 64, left -= 64) Block(state, at);
    std::uint8_t tail[128] = {};
    std::memcpy(tail, at, left);
    tail[left] = 0x80;
    const std::size_t size = left < 56 ? 64 : 128;
    const std::uint64_t bits = static_cast<std::uint64_t>(text.size()) * 8;
    for (int i = 0; i < 8; i++) tail[size - 1 - i] = static_cast<std::uint8_t>(bits >> (8 * i));
    for (std::size_t done = 0; done < size; done += 64) Block(state, tail + done);
    Digest digest;
    for (int i = 0; i < 32; i++) {
      digest[i] = static_cast<std::uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
    }
    return digest;
  }

 private:
  // Fractions of the cube roots of the first 64 primes.
  static constexpr std::uint32_t kRounds[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
      0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
      0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
      0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
      0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
      0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
      0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
      0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
      0xc67178f2};

  static void Block(std::uint32_t* state, const std::uint8_t* bytes) {
    std::uint32_t w[64];
    for (int i = 0; i < 16; i++) {
      w[i] = static_cast<std::uint32_t>(bytes[4 * i]) << 24 |
             static_cast<std::uint32_t>(bytes[4 * i + 1]) << 16 |
             static_cast<std::uint32_t>(bytes[4 * i + 2]) << 8 | bytes[4 * i + 3];
    }
    for (int i = 16; i < 64; i++) {
      const std::uint32_t a = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
      const std::uint32_t b = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    std::uint32_t v[8];
    std::memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
      const std::uint32_t s1 = std::rotr(v[4], 6) ^ std::rotr(v[4], 11) ^ std::rotr(v[4], 25);
      const std::uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
      const std::uint32_t one = v[7] + s1 + choice + kRounds[i] + w[i];
      const std::uint32_t s0 = std::rotr(v[0], 2) ^ std::rotr(v[0], 13) ^ std::rotr(v[0], 22);
      const std::uint32_t two = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      std::memmove(v + 1, v, 7 * sizeof v[0]);
      v[4] += one;
      v[0] = one + two;
    }
    for (int i = 0; i < 8; i++) state[i] += v[i];
  }
};

// Ledger in the format of docs/reference/generator.md. Buffered: the file is complete once the
// loader has ended.
class Ledger {
 public:
  bool Open(const char* path) {
    file_ = std::fopen(path, "wx");
    if (file_ != nullptr) std::setvbuf(file_, nullptr, _IOFBF, 1 << 20);
    return file_ != nullptr;
  }
  ~Ledger() { Close(); }
  bool Close() {
    if (file_ == nullptr) return true;
    const bool good = std::fclose(file_) == 0;
    file_ = nullptr;
    return good;
  }
  template <typename... Args>
  void Line(const char* format, Args... args) {
    if (file_ != nullptr) std::fprintf(file_, format, args...);
  }
  bool on() const { return file_ != nullptr; }

 private:
  std::FILE* file_ = nullptr;
};

inline std::string Hex(const Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(64);
  for (const std::uint8_t byte : digest) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace load
