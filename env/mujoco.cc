#include "env/mujoco.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "env/model_path.h"

namespace replicant::env {
namespace {

// MuJoCo's error text as one line.
std::string OneLine(std::string_view text) {
  std::string line;
  for (const char c : text) line += c == '\n' ? ' ' : c;
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

// Throws IoError unless the MuJoCo whose structures are compiled in is loaded:
// Python's modules are not linked with it. Their functions are bound at their
// first call, and every model comes from ParseMjcf().
void RequireMujoco() {
  const auto version =
      reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "mj_version"));
  if (version != nullptr && version() == mjVERSION_HEADER) return;
  const auto text = [](int number) {
    return fmt::format("{}.{}.{}", number / 1'000'000, number / 1000 % 1000,
                       number % 1000);
  };
  throw IoError(fmt::format(
      "MuJoCo {0} is needed, but {1}; hint: pip install mujoco=={0} into a new "
      "environment",
      text(mjVERSION_HEADER),
      version == nullptr
          ? "Python's package mujoco is missing or has another version"
          : text(version()) + " is loaded"));
}

// Sets MuJoCo's global callbacks. By default MuJoCo writes its warnings and
// errors to a file in the current folder, and an error ends the process. Here
// warnings go to the debug log, because Physics::Step() reports an invalid
// simulation; a handler that a Python program has set stays. Errors, such as an
// arena that is too small, are thrown.
void InstallCallbacks() {
  using Callback = void (*)(const char*);
  static std::once_flag once;
  std::call_once(once, [] {
    RequireMujoco();
    // by name: variables, unlike functions, are not bound at their first use
    const auto handler = [](const char* name) -> Callback& {
      return *static_cast<Callback*>(::dlsym(RTLD_DEFAULT, name));
    };
    Callback& on_warning = handler("mju_user_warning");
    if (on_warning == nullptr) {
      on_warning = [](const char* text) { spdlog::debug("mujoco: {}", text); };
    }
    handler("mju_user_error") = [](const char* text) {
      throw Error(fmt::format("MuJoCo: {}", OneLine(text)));
    };
  });
}

// The folder of the plugins that MuJoCo's package has (PID controllers, cables,
// signed distance fields), beside its library.
std::filesystem::path PluginFolder() {
  Dl_info info{};
  ::dladdr(::dlsym(RTLD_DEFAULT, "mj_version"), &info);
  return std::filesystem::path(info.dli_fname).parent_path() / "plugin";
}

// Parses by `parse`; if the model wants a plugin, once more after loading those
// of PluginFolder(): most models want none. Returns null with a message.
template <typename Parse>
MjSpecPtr ParseWithPlugins(const Parse& parse, std::string& message) {
  std::array<char, 1024> error{};
  const auto size = static_cast<int>(error.size());
  MjSpecPtr spec(parse(error.data(), size));
  if (spec != nullptr) return spec;
  const auto wants_plugin = [&] {
    const std::string_view text(error.data());
    return text.find("plugin") != std::string_view::npos &&
           text.find("not found") != std::string_view::npos;
  };
  if (!wants_plugin()) {
    message = OneLine(error.data());
    return nullptr;
  }
  const std::filesystem::path folder = PluginFolder();
  static std::once_flag once;
  std::call_once(once, [&] {
    if (!std::filesystem::is_directory(folder)) return;
    mj_loadAllPluginLibraries(folder.c_str(), /*callback=*/nullptr);
  });
  spec.reset(parse(error.data(), size));
  message = OneLine(error.data());
  if (wants_plugin()) {
    message +=
        fmt::format("; hint: plugins are loaded from {}", folder.string());
  }
  return spec;
}

}  // namespace

MjSpecPtr ParseMjcf(const std::filesystem::path& path) {
  InstallCallbacks();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(MujocoPath(path), ignored)) {
    throw IoError(fmt::format("MJCF: {}: no such file", path.string()));
  }
  if (IsMisnamedArchive(path)) {
    throw IoError(
        fmt::format("MJCF: {}: MuJoCo knows an archive by .mjz or "
                    ".zip in small letters; hint: rename it",
                    path.string()));
  }
  std::string message;
  MjSpecPtr spec = ParseWithPlugins(
      [&](char* error, int size) {
        return IsModelArchive(path)
                   ? mj_parse(path.c_str(), /*content_type=*/nullptr,
                              /*vfs=*/nullptr, error, size)
                   : mj_parseXML(path.c_str(), /*vfs=*/nullptr, error, size);
      },
      message);
  if (spec == nullptr) {
    throw IoError(fmt::format("MJCF: {}: {}", path.string(), message));
  }
  return spec;
}

MjSpecPtr ParseMjcfText(const std::string& text, const std::string& name) {
  InstallCallbacks();
  std::string message;
  MjSpecPtr spec = ParseWithPlugins(
      [&](char* error, int size) {
        return mj_parseXMLString(text.c_str(), /*vfs=*/nullptr, error, size);
      },
      message);
  if (spec == nullptr) {
    throw IoError(fmt::format("MJCF: {}: {}", name, message));
  }
  return spec;
}

MjModelPtr CompileModel(mjSpec& spec, const std::filesystem::path& path) {
  InstallCallbacks();
  // it takes a file that was written anew within a second for the old one
  mj_clearCache(mj_getCache());
  MjModelPtr model(mj_compile(&spec, /*vfs=*/nullptr));
  if (model == nullptr) {
    throw IoError(fmt::format("MJCF: {}: {}", path.string(),
                              OneLine(mjs_getError(&spec))));
  }
  const std::span<const mjtSize> starts(model->tex_adr,
                                        static_cast<size_t>(model->ntex));
  if (std::ranges::find(starts, -1) == starts.end()) return model;
  // a texture is left in its file (compiler passthrough, texture embed): the
  // renderers read pixels, and a model does not change with its files
  std::array<char, 1024> error{};
  MjModelPtr whole(mj_embedAssets(model.get(), error.data(),
                                  static_cast<int>(error.size())));
  if (whole == nullptr) {
    throw IoError(
        fmt::format("MJCF: {}: {}", path.string(), OneLine(error.data())));
  }
  return whole;
}

MjModelPtr CopyModel(const mjModel& model) {
  if (auto image = ModelImage::Of(model)) {
    if (mjModel* shared = image->Copy(model)) {
      return MjModelPtr(shared, MjModelDeleter{std::move(image)});
    }
  }
  MjModelPtr copy(mj_copyModel(nullptr, &model));
  REPLICANT_CHECK(copy != nullptr, "mj_copyModel");
  return copy;
}

MjDataPtr MakeData(const mjModel& model) {
  InstallCallbacks();
  MjDataPtr data(mj_makeData(&model));
  REPLICANT_CHECK(data != nullptr, "mj_makeData");
  return data;
}

}  // namespace replicant::env
