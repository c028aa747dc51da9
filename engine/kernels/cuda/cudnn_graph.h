#pragma once

#include <cudnn.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/shared_library.h"
#include "engine/kernels/cuda/convolution_library.h"

// cuDNN's graph interface, as far as cudnn.cc uses it.
namespace replicant::kernels::cuda::cudnn {

// The entry points, found at run time.
struct Functions {
  explicit Functions(const SharedLibrary& library) {
    library.Find("cudnnCreate", &create);
    library.Find("cudnnDestroy", &destroy);
    library.Find("cudnnSetStream", &set_stream);
    library.Find("cudnnGetErrorString", &error_text);
    library.Find("cudnnBackendCreateDescriptor", &create_descriptor);
    library.Find("cudnnBackendDestroyDescriptor", &destroy_descriptor);
    library.Find("cudnnBackendSetAttribute", &set_attribute);
    library.Find("cudnnBackendGetAttribute", &get_attribute);
    library.Find("cudnnBackendFinalize", &finalize);
    library.Find("cudnnBackendExecute", &execute);
    library.Find("cudnnGetVersion", &version);
  }

  void Check(cudnnStatus_t status, const char* call) const {
    if (status == CUDNN_STATUS_SUCCESS) return;
    throw DeviceError(fmt::format("{}: {}", call, error_text(status)));
  }

  decltype(cudnnCreate)* create;
  decltype(cudnnDestroy)* destroy;
  decltype(cudnnSetStream)* set_stream;
  decltype(cudnnGetErrorString)* error_text;
  decltype(cudnnBackendCreateDescriptor)* create_descriptor;
  decltype(cudnnBackendDestroyDescriptor)* destroy_descriptor;
  decltype(cudnnBackendSetAttribute)* set_attribute;
  decltype(cudnnBackendGetAttribute)* get_attribute;
  decltype(cudnnBackendFinalize)* finalize;
  decltype(cudnnBackendExecute)* execute;
  decltype(cudnnGetVersion)* version;
};

// One of cuDNN's descriptors.
class Descriptor {
 public:
  Descriptor(const Functions& f, cudnnBackendDescriptorType_t type) : f_(&f) {
    f_->Check(f_->create_descriptor(type, &descriptor_),
              "cudnnBackendCreateDescriptor");
  }
  ~Descriptor() {
    if (descriptor_ != nullptr) f_->destroy_descriptor(descriptor_);
  }
  Descriptor(Descriptor&& other) noexcept
      : f_(other.f_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  cudnnBackendDescriptor_t get() const { return descriptor_; }

  template <typename T>
  void Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           const std::vector<T>& values) {
    f_->Check(
        f_->set_attribute(descriptor_, name, type,
                          static_cast<int64_t>(values.size()), values.data()),
        "cudnnBackendSetAttribute");
  }
  void Set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{value.get()});
  }
  cudnnStatus_t TryFinalize() { return f_->finalize(descriptor_); }
  void Finalize(const char* what) {
    const cudnnStatus_t status = TryFinalize();
    if (status == CUDNN_STATUS_SUCCESS) return;
    throw DeviceError(fmt::format("cudnnBackendFinalize({}): {}", what,
                                  f_->error_text(status)));
  }

 private:
  const Functions* f_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

// The device that plans are made for: a handle, or a description.
struct Target {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;
};

// Ids of the tensors of a convolution.
constexpr int64_t kX = 1;
constexpr int64_t kW = 2;
constexpr int64_t kY = 3;
constexpr int64_t kBias = 4;
constexpr int64_t kProducts = 5;  // of a fused convolution
constexpr int64_t kSums = 6;      // products and bias

// The operation graph of a convolution, for engines that support it. Throws
// DeviceError.
Descriptor MakeConvolutionGraph(const Functions& f, const Target& target,
                                const ConvolutionProblem& p);

}  // namespace replicant::kernels::cuda::cudnn
