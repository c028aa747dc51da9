#pragma once

#include <memory>
#include <string_view>

namespace replicant::env {

// Provider of OpenGL.
enum class GlPlatform {
  kAuto,            // an EGL device if a GPU provides one, else OSMesa
  kOsMesa,          // Mesa's software renderer without a window system
  kEglDevice,       // one of the devices that EGL lists, usually a GPU
  kEglSurfaceless,  // EGL of Mesa without any device file: software
};

// "auto", "osmesa", "egl", "egl-surfaceless".
std::string_view ToString(GlPlatform platform);
// Throws InvalidArgument for any other name.
GlPlatform ParseGlPlatform(std::string_view name);

// An OpenGL context without a window.
//
// The libraries are opened with dlopen when the first context is made, so a
// program that never uses OpenGL runs on machines without it. MuJoCo looks up
// OpenGL once per process; all contexts of a process must therefore use one
// platform.
//
// Mesa's software renderer starts a thread per core. Since one process per core
// draws here, LP_NUM_THREADS=0 is set before Mesa is loaded, unless the
// variable is already set.
//
// Thread-safety: any thread may call Make(); only one thread at a time may use
// a context.
class GlContext {
 public:
  virtual ~GlContext() = default;

  // Throws DeviceError if the platform is missing or fails, or if this process
  // has a context of another platform. `egl_device` is an index into EGL's list
  // of devices, from 0; only kEglDevice uses it.
  static std::unique_ptr<GlContext> Make(GlPlatform platform, int egl_device);

  // Binds the context to the calling thread while it lives.
  class Scope {
   public:
    explicit Scope(GlContext& context) : context_(context) {
      context_.MakeCurrent();
    }
    ~Scope() { context_.Release(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    GlContext& context_;
  };

 protected:
  // Throws DeviceError.
  virtual void MakeCurrent() = 0;
  virtual void Release() = 0;
};

}  // namespace replicant::env
