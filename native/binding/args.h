// Arguments, results and errors of calls from JavaScript. Everything is checked here, so that
// kernels only see spans inside real memory.
//
// Conventions: (1) a getter that returns false has thrown, and the caller returns nullptr
// immediately; (2) wrong types are TypeErrors with code ERR_INVALID_ARG_TYPE, all other errors
// carry a code of src/core/errors.ts; (3) `null` means omitted, `undefined` is an error; (4) spans
// borrow the caller's memory until the call returns. An asynchronous call that keeps borrowing
// holds a reference to the buffer and checks the buffer again when it ends: only the owner in
// JavaScript can promise not to detach it in between.
#pragma once

#include <node_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernel/batch.h"
#include "kernel/codec/decoder.h"
#include "kernel/span.h"

namespace millrace::binding {

using kernel::Span;

// Error codes of src/core/errors.ts.
inline constexpr char kLayoutMismatch[] = "layout_mismatch";
inline constexpr char kOutOfRange[] = "out_of_range";
inline constexpr char kClosed[] = "closed";
inline constexpr char kInternal[] = "internal";

// Throws an Error with `code`; the message is truncated to kMessageBytes. Keeps an exception that
// is already pending.
inline constexpr std::size_t kMessageBytes = 256;
[[gnu::format(printf, 3, 4)]] void Throw(napi_env env, const char* code, const char* format, ...);
[[gnu::format(printf, 2, 3)]] void ThrowType(napi_env env, const char* format, ...);
// Throws the error of a kernel's status; `what` names the argument.
void ThrowStatus(napi_env env, kernel::Status status, const char* what);

// All bytes of an ArrayBuffer or of any view. Does not throw: false for any other value, and for
// detached memory. Shared memory arrives as a view, because Node-API cannot access a
// SharedArrayBuffer itself.
bool BytesOf(napi_env env, napi_value value, Span<std::uint8_t>* out);

// Payloads [from, to) of a buffer.
struct PayloadRange {
  kernel::codec::Payloads payloads;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
};

// Throws the error of a kernel that read payloads: it is about them, or about its target `into`.
void ThrowPayloadStatus(napi_env env, kernel::Status status);

// Arguments of one call.
class Call {
 public:
  static constexpr std::size_t kArgumentsMax = 12;

  Call(napi_env env, napi_callback_info info);

  napi_env env() const { return env_; }
  void* data() const { return data_; }
  napi_value operator[](std::size_t index) const { return values_[index]; }

  // False after a throw: the call does not have exactly `count` arguments.
  [[nodiscard]] bool HasArguments(std::size_t count);

  [[nodiscard]] bool IsNull(std::size_t index) const;
  [[nodiscard]] bool Boolean(std::size_t index, const char* name, bool* out);
  [[nodiscard]] bool Number(std::size_t index, const char* name, double* out);
  // A whole number in [least, greatest]; out_of_range otherwise. REQUIRES: both bounds are within
  // 2^53.
  [[nodiscard]] bool Integer(std::size_t index, const char* name, std::int64_t least,
                             std::int64_t greatest, std::int64_t* out);
  [[nodiscard]] bool Uint32(std::size_t index, const char* name, std::uint32_t* out);
  [[nodiscard]] bool Int32(std::size_t index, const char* name, std::int32_t* out);
  // A BigInt in [0, 2^64); out_of_range otherwise.
  [[nodiscard]] bool BigUint64(std::size_t index, const char* name, std::uint64_t* out);
  // UTF-8 text of at most `bytes_max` bytes.
  [[nodiscard]] bool Text(std::size_t index, const char* name, std::size_t bytes_max,
                          std::string* out);

  // Typed arrays of ordinary or shared memory; detached arrays are refused.
  [[nodiscard]] bool Array(std::size_t index, const char* name, Span<std::uint8_t>* out);
  [[nodiscard]] bool Array(std::size_t index, const char* name, Span<std::int32_t>* out);
  [[nodiscard]] bool Array(std::size_t index, const char* name, Span<std::uint32_t>* out);
  [[nodiscard]] bool Array(std::size_t index, const char* name, Span<std::int64_t>* out);
  [[nodiscard]] bool Array(std::size_t index, const char* name, Span<std::uint64_t>* out);
  [[nodiscard]] bool Array(std::size_t index, const char* name, Span<double>* out);

  // An ArrayBuffer or any view, as bytes.
  [[nodiscard]] bool Bytes(std::size_t index, const char* name, Span<std::uint8_t>* out);

  // Five arguments from `index` on: payloads, start, length, from, to. The kernel checks the spans.
  [[nodiscard]] bool Payloads(std::size_t index, PayloadRange* out);

  // A batch of layout L (kernel::Rows<layout::EventBatch> …) in an ArrayBuffer or a view of all its
  // bytes. The numbers of the header are checked against the real size of the buffer.
  template <typename L>
  [[nodiscard]] bool Batch(std::size_t index, const char* name, kernel::Rows<L>* out) {
    Span<std::uint8_t> bytes;
    if (!Bytes(index, name, &bytes)) return false;
    const kernel::Status status = kernel::View(bytes, out);
    if (status == kernel::Status::kOk) return true;
    ThrowStatus(env_, status, name);
    return false;
  }

 private:
  bool TypedArray(std::size_t index, const char* name, napi_typedarray_type type,
                  std::size_t cell_bytes, const char* type_name, Span<std::uint8_t>* out);

  napi_env env_;
  void* data_ = nullptr;
  std::size_t count_ = 0;
  napi_value values_[kArgumentsMax] = {};
};

napi_value ToNumber(napi_env env, double value);
napi_value ToText(napi_env env, const char* text, std::size_t length = NAPI_AUTO_LENGTH);
napi_value Undefined(napi_env env);

// Adds a function to the exports. Call::data returns `data`.
void Export(napi_env env, napi_value exports, const char* name, napi_callback callback,
            void* data = nullptr);

}  // namespace millrace::binding
