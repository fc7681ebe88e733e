// Entry of the state addon: the embedded store behind Node-API. It is a separate addon, so that a
// machine without the store's library can still load the kernels.
#include <node_api.h>

#include "binding/args.h"
#include "binding/handle.h"
#include "binding/state/register.h"

namespace {

// ABI number. It grows when an exported function changes its meaning; src/addon/state.ts has the
// same number.
constexpr double kStateAbi = 2;

}  // namespace

NAPI_MODULE_INIT() {
  using namespace millrace::binding;
  if (!Environment::Create(env)) return nullptr;
  if (napi_set_named_property(env, exports, "stateAbi", ToNumber(env, kStateAbi)) != napi_ok) {
    Throw(env, kInternal, "cannot export stateAbi");
  }
  RegisterStore(env, exports);
  RegisterRun(env, exports);
  RegisterScan(env, exports);
  return exports;
}
