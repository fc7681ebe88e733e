#include "binding/handle.h"

namespace millrace::binding {

// Box of a resource, shared by the JavaScript object (through its finalizer) and the environment's
// set of open handles.
struct Environment::Box {
  std::shared_ptr<Resource> resource;  // empty once closed
  std::shared_ptr<Environment> environment;

  void Close() {
    environment->open_.erase(this);
    const std::shared_ptr<Resource> last = std::move(resource);
    if (last != nullptr) last->Close();
  }
};

namespace {

using Slot = std::shared_ptr<Environment>;

}  // namespace

bool Environment::Create(napi_env env) {
  // Shared ownership, because finalizers of handles may run after the finalizer of the instance
  // data.
  auto* slot = new Slot(std::make_shared<Environment>());
  const auto finalize = [](napi_env, void* data, void*) { delete static_cast<Slot*>(data); };
  if (napi_set_instance_data(env, slot, finalize, nullptr) != napi_ok) {
    delete slot;
    Throw(env, kInternal, "cannot keep data of the environment");
    return false;
  }
  if (napi_add_env_cleanup_hook(env, CloseAll, slot->get()) != napi_ok) {
    Throw(env, kInternal, "cannot register the end of the environment");
    return false;
  }
  return true;
}

Environment* Environment::Of(napi_env env) {
  void* data = nullptr;
  if (napi_get_instance_data(env, &data) != napi_ok || data == nullptr) return nullptr;
  return static_cast<Slot*>(data)->get();
}

std::size_t Environment::OpenHandles(napi_env env) {
  const Environment* environment = Of(env);
  return environment == nullptr ? 0 : environment->open_.size();
}

void Environment::CloseAll(void* data) {
  auto* environment = static_cast<Environment*>(data);
  while (!environment->open_.empty()) (*environment->open_.begin())->Close();
}

void Environment::FinalizeBox(napi_env, void* data, void*) {
  auto* box = static_cast<Box*>(data);
  box->Close();
  delete box;
}

Environment::Box* Environment::BoxOf(const Call& call, std::size_t index, const char* name,
                                     const HandleType& type) {
  bool matches = false;
  void* data = nullptr;
  napi_valuetype kind = napi_undefined;
  if (napi_typeof(call.env(), call[index], &kind) != napi_ok || kind != napi_object ||
      napi_check_object_type_tag(call.env(), call[index], &type.tag, &matches) != napi_ok ||
      !matches || napi_unwrap(call.env(), call[index], &data) != napi_ok) {
    ThrowType(call.env(), "%s: expected a %s", name, type.name);
    return nullptr;
  }
  return static_cast<Box*>(data);
}

napi_value NewHandle(napi_env env, const HandleType& type, std::shared_ptr<Resource> resource) {
  void* data = nullptr;
  napi_value object = nullptr;
  if (napi_get_instance_data(env, &data) != napi_ok || data == nullptr ||
      napi_create_object(env, &object) != napi_ok ||
      napi_type_tag_object(env, object, &type.tag) != napi_ok) {
    resource->Close();
    Throw(env, kInternal, "cannot make a %s", type.name);
    return nullptr;
  }
  auto* box = new Environment::Box{std::move(resource), *static_cast<Slot*>(data)};
  box->environment->open_.insert(box);
  if (napi_wrap(env, object, box, Environment::FinalizeBox, nullptr, nullptr) != napi_ok) {
    box->Close();
    delete box;
    Throw(env, kInternal, "cannot make a %s", type.name);
    return nullptr;
  }
  return object;
}

std::shared_ptr<Resource> OpenResource(const Call& call, std::size_t index, const char* name,
                                       const HandleType& type) {
  const Environment::Box* box = Environment::BoxOf(call, index, name, type);
  if (box == nullptr) return nullptr;
  if (box->resource == nullptr) {
    Throw(call.env(), kClosed, "%s: the %s is closed", name, type.name);
    return nullptr;
  }
  return box->resource;
}

bool CloseHandle(const Call& call, std::size_t index, const char* name, const HandleType& type) {
  Environment::Box* box = Environment::BoxOf(call, index, name, type);
  if (box == nullptr) return false;
  box->Close();
  return true;
}

}  // namespace millrace::binding
