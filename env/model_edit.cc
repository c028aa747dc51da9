#include "env/model_edit.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"

namespace replicant::env {
namespace {

[[noreturn]] void ThrowMissing(const char* what, const std::string& name) {
  throw InvalidArgument(
      fmt::format("model edit: no {} named '{}'", what, name));
}

}  // namespace

mjsElement& FindElement(mjSpec& spec, mjtObj type, const std::string& name) {
  mjsElement* element = mjs_findElement(&spec, type, name.c_str());
  if (element == nullptr) ThrowMissing(mju_type2Str(type), name);
  return *element;
}

mjsBody& FindBody(mjSpec& spec, const std::string& name) {
  mjsBody* body = mjs_findBody(&spec, name.c_str());
  if (body == nullptr) ThrowMissing("body", name);
  return *body;
}

mjsGeom& FindGeom(mjSpec& spec, const std::string& name) {
  return *mjs_asGeom(&FindElement(spec, mjOBJ_GEOM, name));
}

const mjsDefault* FindDefault(mjSpec& spec, const std::string& name) {
  const mjsDefault* settings = mjs_findDefault(&spec, name.c_str());
  if (settings == nullptr) ThrowMissing("default class", name);
  return settings;
}

void DeleteElement(mjSpec& spec, mjtObj type, const std::string& name) {
  const int error = mjs_delete(&spec, &FindElement(spec, type, name));
  REPLICANT_CHECK(error == 0, "{}: {}", name, mjs_getError(&spec));
}

void SetName(mjsElement* element, const std::string& name) {
  REPLICANT_CHECK(mjs_setName(element, name.c_str()) == 0, "{}", name);
}

}  // namespace replicant::env
