// Entry of the addon: layout fingerprint and ABI number first, then the exports in the order of
// src/addon/raw.ts. It runs once for every environment (main thread and each worker); environments
// share only code.
#include <node_api.h>

#include "binding/args.h"
#include "binding/handle.h"
#include "binding/register.h"
#include "layout/layouts.gen.h"

namespace millrace::binding {
namespace {

// ABI number. It grows when an exported function changes its meaning.
constexpr std::uint32_t kAbi = 6;

void SetNumber(napi_env env, napi_value exports, const char* name, double value) {
  if (napi_set_named_property(env, exports, name, ToNumber(env, value)) != napi_ok) {
    Throw(env, kInternal, "cannot export %s", name);
  }
}

}  // namespace
}  // namespace millrace::binding

NAPI_MODULE_INIT() {
  using namespace millrace::binding;
  if (!Environment::Create(env)) return nullptr;
  SetNumber(env, exports, "layoutFingerprint", millrace::layout::kFingerprint);
  SetNumber(env, exports, "abi", kAbi);
  RegisterKernels(env, exports);
  RegisterCodec(env, exports);
  RegisterEncode(env, exports);
  RegisterJson(env, exports);
  RegisterKeys(env, exports);
  RegisterGen(env, exports);
  RegisterWindows(env, exports);
  RegisterSessions(env, exports);
  RegisterFiles(env, exports);
  RegisterBroker(env, exports);
  return exports;
}
