#include "env/renderer/gl_context.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"

namespace replicant::env {
namespace {

struct PlatformName {
  GlPlatform platform;
  std::string_view name;
};
constexpr std::array<PlatformName, 4> kPlatformNames{{
    {GlPlatform::kAuto, "auto"},
    {GlPlatform::kOsMesa, "osmesa"},
    {GlPlatform::kEglDevice, "egl"},
    {GlPlatform::kEglSurfaceless, "egl-surfaceless"},
}};

// A shared library that stays loaded, with its symbols visible to MuJoCo.
class Library {
 public:
  Library(const char* file, const char* debian_package) : file_(file) {
    handle_ = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    if (handle_ == nullptr) {
      throw DeviceError(
          fmt::format("OpenGL: {}; hint: install the Debian package {}, or use "
                      "the renderer raycast, which needs no OpenGL",
                      dlerror(), debian_package));
    }
  }

  template <typename Function>
  void Find(const char* name, Function** function) const {
    void* symbol = dlsym(handle_, name);
    if (symbol == nullptr) {
      throw DeviceError(fmt::format("OpenGL: {} has no {}", file_, name));
    }
    *function = reinterpret_cast<Function*>(symbol);
  }

 private:
  const char* file_;
  void* handle_;
};

// ------------------------------------------------------------------- OSMesa

// Names and values of osmesa.h (Mesa 22.3) and gl.h.
struct OsMesaApi {
  static constexpr unsigned kRgba = 0x1908;
  static constexpr unsigned kUnsignedByte = 0x1401;

  OsMesaApi() {
    const Library library("libOSMesa.so.8", "libosmesa6");
    library.Find("OSMesaCreateContextExt", &create_context);
    library.Find("OSMesaMakeCurrent", &make_current);
    library.Find("OSMesaDestroyContext", &destroy_context);
  }
  static const OsMesaApi& Get() {
    static const OsMesaApi api;
    return api;
  }

  void* (*create_context)(unsigned format, int depth_bits, int stencil_bits,
                          int accum_bits, void* share);
  unsigned char (*make_current)(void* context, void* buffer, unsigned type,
                                int width, int height);
  void (*destroy_context)(void* context);
};

class OsMesaContext : public GlContext {
 public:
  OsMesaContext() : api_(OsMesaApi::Get()) {
    context_ = api_.create_context(OsMesaApi::kRgba, /*depth_bits=*/24,
                                   /*stencil_bits=*/8, /*accum_bits=*/0,
                                   /*share=*/nullptr);
    if (context_ == nullptr) {
      throw DeviceError("OpenGL: OSMesa refused to create a context");
    }
  }
  ~OsMesaContext() override { api_.destroy_context(context_); }
  OsMesaContext(const OsMesaContext&) = delete;
  OsMesaContext& operator=(const OsMesaContext&) = delete;

 private:
  void MakeCurrent() override {
    if (api_.make_current(context_, buffer_.data(), OsMesaApi::kUnsignedByte,
                          kSide, kSide) == 0) {
      throw DeviceError("OpenGL: OSMesaMakeCurrent failed");
    }
  }
  void Release() override { api_.make_current(nullptr, nullptr, 0, 0, 0); }

  // OSMesa requires a window buffer; MuJoCo draws into its own
  static constexpr int kSide = 16;
  const OsMesaApi& api_;
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(4 * kSide * kSide);
  void* context_;
};

// ---------------------------------------------------------------------- EGL

// Names and values of egl.h and eglext.h (EGL 1.5, EXT_device_enumeration,
// EXT_platform_device, MESA_platform_surfaceless).
struct EglApi {
  using Display = void*;
  using Config = void*;
  using Context = void*;
  using Device = void*;
  static constexpr unsigned kPlatformDevice = 0x313F;
  static constexpr unsigned kPlatformSurfaceless = 0x31DD;
  static constexpr unsigned kOpenGlApi = 0x30A2;
  static constexpr int32_t kNone = 0x3038;
  static constexpr std::array<int32_t, 19> kConfigAttributes = {
      0x3024, 8,       // EGL_RED_SIZE
      0x3023, 8,       // EGL_GREEN_SIZE
      0x3022, 8,       // EGL_BLUE_SIZE
      0x3021, 8,       // EGL_ALPHA_SIZE
      0x3025, 24,      // EGL_DEPTH_SIZE
      0x3026, 8,       // EGL_STENCIL_SIZE
      0x303F, 0x308E,  // EGL_COLOR_BUFFER_TYPE: EGL_RGB_BUFFER
      0x3033, 0x0001,  // EGL_SURFACE_TYPE: EGL_PBUFFER_BIT
      0x3040, 0x0008,  // EGL_RENDERABLE_TYPE: EGL_OPENGL_BIT
      kNone};

  EglApi() {
    const Library library("libEGL.so.1", "libegl1");
    library.Find("eglGetProcAddress", &get_proc_address);
    library.Find("eglInitialize", &initialize);
    library.Find("eglBindAPI", &bind_api);
    library.Find("eglChooseConfig", &choose_config);
    library.Find("eglCreateContext", &create_context);
    library.Find("eglDestroyContext", &destroy_context);
    library.Find("eglMakeCurrent", &make_current);
    library.Find("eglGetError", &get_error);
    FindExtension("eglGetPlatformDisplayEXT", &get_platform_display);
    FindExtension("eglQueryDevicesEXT", &query_devices);
  }
  static const EglApi& Get() {
    static const EglApi api;
    return api;
  }

  template <typename Function>
  void FindExtension(const char* name, Function** function) const {
    *function = reinterpret_cast<Function*>(get_proc_address(name));
    if (*function == nullptr) {
      throw DeviceError(fmt::format("OpenGL: this EGL has no {}", name));
    }
  }

  // An initialised display of the device or of the surfaceless platform.
  Display OpenDisplay(GlPlatform platform, int device_number) const {
    Display display = nullptr;
    if (platform == GlPlatform::kEglDevice) {
      constexpr int kMaxDevices = 64;
      std::array<Device, kMaxDevices> devices{};
      int32_t count = 0;
      if (query_devices(kMaxDevices, devices.data(), &count) == 0) count = 0;
      if (device_number < 0 || device_number >= count) {
        throw DeviceError(fmt::format(
            "OpenGL: egl_device {} given; allowed: {}", device_number,
            count == 0 ? "none, since EGL lists no devices"
                       : fmt::format("0 to {}, the devices that EGL lists",
                                     count - 1)));
      }
      display = get_platform_display(
          kPlatformDevice, devices[static_cast<size_t>(device_number)],
          nullptr);
    } else {
      display = get_platform_display(kPlatformSurfaceless, nullptr, nullptr);
    }
    if (display == nullptr || initialize(display, nullptr, nullptr) == 0) {
      throw DeviceError(fmt::format(
          "OpenGL: EGL cannot open the display of {} {} (error {:#x})",
          ToString(platform), device_number, get_error()));
    }
    return display;
  }

  void* (*get_proc_address)(const char* name);
  unsigned (*initialize)(Display display, int32_t* major, int32_t* minor);
  unsigned (*bind_api)(unsigned api);
  unsigned (*choose_config)(Display display, const int32_t* attributes,
                            Config* configs, int32_t size, int32_t* count);
  Context (*create_context)(Display display, Config config, Context share,
                            const int32_t* attributes);
  unsigned (*destroy_context)(Display display, Context context);
  unsigned (*make_current)(Display display, void* draw, void* read,
                           Context context);
  int32_t (*get_error)();
  Display (*get_platform_display)(unsigned platform, void* native,
                                  const int32_t* attributes);
  unsigned (*query_devices)(int32_t max_devices, Device* devices,
                            int32_t* count);
};

class EglContext : public GlContext {
 public:
  EglContext(GlPlatform platform, int device_number) : api_(EglApi::Get()) {
    // contexts share the display, so it is never closed: that would end the
    // other contexts too
    display_ = api_.OpenDisplay(platform, device_number);
    EglApi::Config config = nullptr;
    int32_t count = 0;
    api_.bind_api(EglApi::kOpenGlApi);
    api_.choose_config(display_, EglApi::kConfigAttributes.data(), &config, 1,
                       &count);
    if (count > 0) {
      context_ = api_.create_context(display_, config, nullptr, nullptr);
    }
    if (context_ == nullptr) {
      throw DeviceError(fmt::format(
          "OpenGL: EGL refused to create a context on {} {} (error {:#x})",
          ToString(platform), device_number, api_.get_error()));
    }
  }
  ~EglContext() override { api_.destroy_context(display_, context_); }
  EglContext(const EglContext&) = delete;
  EglContext& operator=(const EglContext&) = delete;

 private:
  void MakeCurrent() override {
    api_.bind_api(EglApi::kOpenGlApi);
    if (api_.make_current(display_, nullptr, nullptr, context_) == 0) {
      throw DeviceError(fmt::format("OpenGL: eglMakeCurrent failed ({:#x})",
                                    api_.get_error()));
    }
  }
  void Release() override {
    api_.make_current(display_, nullptr, nullptr, nullptr);
  }

  const EglApi& api_;
  EglApi::Display display_ = nullptr;
  EglApi::Context context_ = nullptr;
};

std::unique_ptr<GlContext> MakeOn(GlPlatform platform, int egl_device) {
  if (platform == GlPlatform::kOsMesa) return std::make_unique<OsMesaContext>();
  return std::make_unique<EglContext>(platform, egl_device);
}

// The platform of this process, chosen by its first context.
struct Chosen {
  Mutex mutex;
  std::optional<GlPlatform> platform GUARDED_BY(mutex);
};

Chosen& ChosenPlatform() {
  static Chosen chosen;
  return chosen;
}

// Whether a GPU's kernel driver is present. Without one, an EGL device is
// Mesa's software renderer, which OSMesa provides more simply.
bool HasGpu() {
  for (const char* file : {"/dev/nvidiactl", "/dev/dri/renderD128"}) {
    if (access(file, R_OK | W_OK) == 0) return true;
  }
  return false;
}

}  // namespace

std::string_view ToString(GlPlatform platform) {
  for (const auto& entry : kPlatformNames) {
    if (entry.platform == platform) return entry.name;
  }
  return "?";
}

GlPlatform ParseGlPlatform(std::string_view name) {
  for (const auto& entry : kPlatformNames) {
    if (entry.name == name) return entry.platform;
  }
  throw InvalidArgument(fmt::format(
      "OpenGL platform '{}' given; allowed: auto, osmesa, egl, egl-surfaceless",
      name));
}

std::unique_ptr<GlContext> GlContext::Make(GlPlatform platform,
                                           int egl_device) {
  Chosen& chosen = ChosenPlatform();
  const MutexLock lock(chosen.mutex);
  setenv("LP_NUM_THREADS", "0", /*overwrite=*/0);
  if (platform == GlPlatform::kAuto && !chosen.platform && HasGpu()) {
    // a container may have the GPU but not its OpenGL
    try {
      auto context = MakeOn(GlPlatform::kEglDevice, egl_device);
      chosen.platform = GlPlatform::kEglDevice;
      return context;
    } catch (const DeviceError& e) {
      spdlog::warn("{}; OpenGL draws on the processor with OSMesa", e.what());
    }
  }
  if (platform == GlPlatform::kAuto) {
    platform = chosen.platform.value_or(GlPlatform::kOsMesa);
  }
  if (chosen.platform.has_value() && *chosen.platform != platform) {
    throw DeviceError(fmt::format(
        "OpenGL: platform {} requested, but this process uses {}; hint: all "
        "renderers of a process share one platform",
        ToString(platform), ToString(*chosen.platform)));
  }
  auto context = MakeOn(platform, egl_device);
  chosen.platform = platform;
  return context;
}

}  // namespace replicant::env
