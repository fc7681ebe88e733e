// Common binding of the two keyed states, as a template over the kernel's class: the handle, the
// calls that only differ in that class, and plain getters.
#pragma once

#include <memory>
#include <type_traits>

#include "binding/args.h"
#include "binding/handle.h"
#include "binding/window/values.h"

namespace millrace::binding {

template <typename Kernel>
class StateResource : public Resource {
 public:
  template <typename... Args>
  explicit StateResource(Args... args) : tables(std::make_unique<Kernel>(args...)) {}
  void Close() override { tables.reset(); }
  std::unique_ptr<Kernel> tables;
};

template <typename Kernel, const HandleType& kType>
struct KeyedState {
  using Handle = std::shared_ptr<StateResource<Kernel>>;

  static bool Of(const Call& call, Handle* out) {
    *out = Open<StateResource<Kernel>>(call, 0, "state", kType);
    return *out != nullptr;
  }

  // (state)
  static napi_value Close(napi_env env, napi_callback_info info) {
    const Call call(env, info);
    return CloseHandle(call, 0, "state", kType) ? Undefined(env) : nullptr;
  }

  // (state, events, admitted, values | null, valid | null, capacity | null, texts | null)
  static napi_value Accumulate(napi_env env, napi_callback_info info) {
    Call call(env, info);
    Handle state;
    kernel::Rows<layout::EventBatch> events;
    kernel::Rows<layout::AdmittedBatch> admitted;
    kernel::Values values;
    if (!call.HasArguments(7) || !Of(call, &state) || !call.Batch(1, "events", &events) ||
        !call.Batch(2, "admitted", &admitted) || !ValuesOf(&call, 3, &values)) {
      return nullptr;
    }
    return Answer(env, state->tables->Accumulate(events, admitted, values), "admitted");
  }

  // (state, out): number
  static napi_value EncodeDeltas(napi_env env, napi_callback_info info) {
    Call call(env, info);
    Handle state;
    Span<std::uint8_t> out;
    if (!call.HasArguments(2) || !Of(call, &state) || !call.Array(1, "out", &out)) return nullptr;
    std::size_t written = 0;
    const kernel::Status status = state->tables->EncodeDeltas(out, &written);
    return AnswerNumber(env, status, "out", written);
  }

  // (state, bytes, seq, covered | null): number
  static napi_value ApplyDeltas(napi_env env, napi_callback_info info) {
    Call call(env, info);
    Handle state;
    Span<std::uint8_t> bytes;
    kernel::Cover cover;
    if (!call.HasArguments(4) || !Of(call, &state) || !call.Array(1, "bytes", &bytes) ||
        !CoverOf(&call, 2, 3, &cover)) {
      return nullptr;
    }
    std::int32_t verdict = 0;
    const kernel::Status status =
        state->tables->ApplyDeltas({bytes.data, bytes.size}, cover, &verdict);
    return AnswerNumber(env, status, "state", static_cast<std::size_t>(verdict));
  }

  // (state): the result of the kernel's method, a number or nothing
  template <auto kMethod>
  static napi_value Call0(napi_env env, napi_callback_info info) {
    Call call(env, info);
    Handle state;
    if (!call.HasArguments(1) || !Of(call, &state)) return nullptr;
    Kernel& tables = *state->tables;
    if constexpr (std::is_void_v<decltype((tables.*kMethod)())>) {
      (tables.*kMethod)();
      return Undefined(env);
    } else {
      return ToNumber(env, static_cast<double>((tables.*kMethod)()));
    }
  }
};

}  // namespace millrace::binding
