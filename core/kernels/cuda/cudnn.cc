#include <cudnn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/shared_library.h"
#include "core/kernels/cuda/convolution_library.h"

// cuDNN's graph interface: descriptors of tensors and of operations make an
// operation graph, heuristics list engine configurations for it, the best
// first, and one of them becomes an execution plan.
namespace replicant::kernels::cuda {
namespace {

// Workspace that a plan may take.
constexpr int64_t kMaxWorkspaceBytes = int64_t{256} << 20;

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

cudnnDataType_t DataTypeOf(DType dtype) {
  return dtype == DType::kBF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

// A tensor [n, h, w, c] with channels last, in cuDNN's order of dimensions.
// A virtual one has no memory: it lies between two operations.
Descriptor MakeTensor(const Functions& f, int64_t id, DType dtype,
                      const std::array<int64_t, 4>& nhwc,
                      bool is_virtual = false) {
  const auto [n, h, w, c] = nhwc;
  Descriptor tensor(f, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::vector{id});
  tensor.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
             std::vector{DataTypeOf(dtype)});
  tensor.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64,
             std::vector{int64_t{16}});
  tensor.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
             std::vector{n, c, h, w});
  tensor.Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
             std::vector{h * w * c, int64_t{1}, w * c, c});
  tensor.Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN,
             std::vector<char>{is_virtual});
  tensor.Finalize("tensor");
  return tensor;
}

// Ids of the tensors of a plan.
constexpr int64_t kX = 1;
constexpr int64_t kW = 2;
constexpr int64_t kY = 3;
constexpr int64_t kBias = 4;
constexpr int64_t kProducts = 5;  // of a fused convolution
constexpr int64_t kSums = 6;      // products and bias

// The names of one operation's attributes.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, conv, x, w, y;
};

OperationNames NamesOf(ConvolutionKind kind) {
  switch (kind) {
    case ConvolutionKind::kForward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
    case ConvolutionKind::kInputGradient:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    case ConvolutionKind::kWeightGradient:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
}

Descriptor MakeConvolution(const Functions& f, const ConvolutionProblem& p) {
  Descriptor conv(f, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const std::vector<int64_t> paddings = {p.padding, p.padding};
  conv.Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64,
           std::vector{int64_t{2}});
  conv.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
           std::vector{CUDNN_DATA_FLOAT});
  conv.Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
           std::vector{CUDNN_CROSS_CORRELATION});
  conv.Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, paddings);
  conv.Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, paddings);
  conv.Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64,
           std::vector{int64_t{1}, int64_t{1}});
  conv.Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64,
           std::vector{p.stride, p.stride});
  conv.Finalize("convolution");
  return conv;
}

// y = mode(x) or mode(x, b), computed in f32.
Descriptor MakePointwise(const Functions& f, cudnnPointwiseMode_t mode,
                         const Descriptor& x, const Descriptor* b,
                         const Descriptor& y) {
  Descriptor pointwise(f, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  pointwise.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE,
                std::vector{mode});
  pointwise.Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                std::vector{CUDNN_DATA_FLOAT});
  pointwise.Finalize("pointwise");
  Descriptor operation(f, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
  operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b != nullptr) operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  operation.Finalize("pointwise operation");
  return operation;
}

Descriptor MakeGraph(const Functions& f, const Target& target,
                     const ConvolutionProblem& p) {
  const std::array<int64_t, 4> y_shape = {p.b, p.yh, p.yw, p.o};
  const Descriptor x = MakeTensor(f, kX, p.dtype, {p.b, p.h, p.w, p.c});
  const Descriptor w = MakeTensor(f, kW, p.dtype, {p.o, p.kh, p.kw, p.c});
  const Descriptor y = MakeTensor(f, kY, p.dtype, y_shape);
  const Descriptor bias = MakeTensor(f, kBias, p.dtype, {1, 1, 1, p.o});
  const Descriptor products =
      MakeTensor(f, kProducts, DType::kF32, y_shape, /*is_virtual=*/true);
  const Descriptor sums =
      MakeTensor(f, kSums, DType::kF32, y_shape, /*is_virtual=*/true);
  const Descriptor conv = MakeConvolution(f, p);
  const OperationNames names = NamesOf(p.kind);
  std::vector<Descriptor> operations;
  Descriptor& product = operations.emplace_back(f, names.type);
  product.Set(names.conv, conv);
  product.Set(names.x, x);
  product.Set(names.w, w);
  product.Set(names.y, p.has_bias ? products : y);
  product.Set(names.alpha, CUDNN_TYPE_FLOAT, std::vector{1.0F});
  product.Set(names.beta, CUDNN_TYPE_FLOAT, std::vector{0.0F});
  product.Finalize("operation");
  if (p.has_bias) {
    operations.push_back(MakePointwise(f, CUDNN_POINTWISE_ADD, products, &bias,
                                       p.has_relu ? sums : y));
  }
  if (p.has_relu) {
    operations.push_back(
        MakePointwise(f, CUDNN_POINTWISE_RELU_FWD, sums, nullptr, y));
  }
  Descriptor graph(f, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (target.handle != nullptr) {
    graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE,
              std::vector{target.handle});
  }
  std::vector<cudnnBackendDescriptor_t> handles;
  handles.reserve(operations.size());
  for (const Descriptor& operation : operations) {
    handles.push_back(operation.get());
  }
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            handles);
  graph.Finalize("operation graph");
  return graph;
}

// Engine configurations for a graph, the best first.
std::vector<Descriptor> FindEngines(const Functions& f, const Target& target,
                                    const Descriptor& graph) {
  Descriptor heuristics(f, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
                 std::vector{CUDNN_HEUR_MODE_A});
  if (target.properties != nullptr) {
    heuristics.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties);
  }
  heuristics.Finalize("engine heuristics");
  int64_t count = 0;
  f.Check(f.get_attribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
          "cudnnBackendGetAttribute(number of engines)");
  std::vector<Descriptor> engines;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < count; ++i) {
    engines.emplace_back(f, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    handles.push_back(engines.back().get());
  }
  int64_t num_found = 0;
  f.Check(f.get_attribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &num_found,
                          handles.data()),
          "cudnnBackendGetAttribute(engines)");
  while (std::ssize(engines) > num_found) engines.pop_back();
  return engines;
}

// The engine of a configuration.
Descriptor EngineOf(const Functions& f, const Descriptor& config) {
  Descriptor engine(f, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.get();
  int64_t count = 0;
  f.Check(f.get_attribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &handle),
          "cudnnBackendGetAttribute(engine)");
  return engine;
}

int64_t NumberOf(const Functions& f, const Descriptor& engine) {
  int64_t number = -1;
  int64_t count = 0;
  f.Check(f.get_attribute(engine.get(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                          CUDNN_TYPE_INT64, 1, &count, &number),
          "cudnnBackendGetAttribute(engine number)");
  return number;
}

// Whether an engine uses tensor cores, which round f32 operands to TF32.
bool UsesTensorCores(const Functions& f, const Descriptor& engine) {
  int64_t count = 0;
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT>
      notes{};
  f.Check(
      f.get_attribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                      CUDNN_TYPE_NUMERICAL_NOTE,
                      static_cast<int64_t>(notes.size()), &count, notes.data()),
      "cudnnBackendGetAttribute(numerical notes)");
  return std::find(notes.begin(), notes.begin() + count,
                   CUDNN_NUMERICAL_NOTE_TENSOR_CORE) != notes.begin() + count;
}

int64_t WorkspaceOf(const Functions& f, const Descriptor& plan) {
  int64_t size_bytes = 0;
  int64_t count = 0;
  f.Check(f.get_attribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                          CUDNN_TYPE_INT64, 1, &count, &size_bytes),
          "cudnnBackendGetAttribute(workspace)");
  return size_bytes;
}

struct ChosenPlan {
  Descriptor plan;
  ConvolutionChoice choice;
};

// The execution plan of the first configuration that the device supports.
std::optional<ChosenPlan> TryMakePlan(const Functions& f, const Target& target,
                                      const ConvolutionProblem& p) {
  const Descriptor graph = MakeGraph(f, target, p);
  const std::vector<Descriptor> configs = FindEngines(f, target, graph);
  for (const Descriptor& config : configs) {
    const Descriptor engine = EngineOf(f, config);
    if (p.dtype == DType::kF32 && !p.allows_tf32 &&
        UsesTensorCores(f, engine)) {
      continue;
    }
    Descriptor plan(f, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (target.handle != nullptr) {
      plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
               std::vector{target.handle});
    } else {
      plan.Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
    }
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (plan.TryFinalize() == CUDNN_STATUS_SUCCESS &&
        WorkspaceOf(f, plan) <= kMaxWorkspaceBytes) {
      return ChosenPlan{.plan = std::move(plan),
                        .choice = {.engine = NumberOf(f, engine),
                                   .num_candidates = std::ssize(configs)}};
    }
  }
  return std::nullopt;
}

// The library with what its plans share.
class Cudnn {
 public:
  explicit Cudnn(const std::string& device_properties)
      : library_(fmt::format("libcudnn.so.{}", CUDNN_MAJOR),
                 "install cuDNN, and name its folder in LD_LIBRARY_PATH"),
        f_(library_) {
    if (device_properties.empty()) {
      f_.Check(f_.create(&target_.handle), "cudnnCreate");
      return;
    }
    properties_.emplace_back(f_, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    properties_[0].Set(
        CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
        std::vector(device_properties.begin(), device_properties.end()));
    properties_[0].Finalize("device properties");
    target_.properties = properties_.data();
  }
  ~Cudnn() {
    if (target_.handle != nullptr) f_.destroy(target_.handle);
  }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  const Functions& functions() const { return f_; }
  const Target& target() const { return target_; }

 private:
  const SharedLibrary library_;
  const Functions f_;
  std::vector<Descriptor> properties_;  // one, or none
  Target target_;
};

class CudnnPlan : public ConvolutionPlan {
 public:
  CudnnPlan(std::shared_ptr<const Cudnn> cudnn, ChosenPlan chosen,
            bool has_bias)
      : cudnn_(std::move(cudnn)),
        has_bias_(has_bias),
        choice_(chosen.choice),
        plan_(std::move(chosen.plan)),
        workspace_size_bytes_(WorkspaceOf(cudnn_->functions(), plan_)) {}

  size_t workspace_size_bytes() const override {
    return static_cast<size_t>(workspace_size_bytes_);
  }
  ConvolutionChoice choice() const override { return choice_; }

  void Launch(const ConvolutionOperands& operands, CUstream stream) override {
    const Functions& f = cudnn_->functions();
    const cudnnHandle_t handle = cudnn_->target().handle;
    if (handle == nullptr) {
      throw DeviceError("a plan for described device properties cannot run");
    }
    const auto pointer = [](CUdeviceptr address) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr)
      return reinterpret_cast<void*>(address);
    };
    std::vector<int64_t> ids = {kX, kW, kY};
    std::vector<void*> pointers = {pointer(operands.x), pointer(operands.w),
                                   pointer(operands.y)};
    if (has_bias_) {
      ids.push_back(kBias);
      pointers.push_back(pointer(operands.bias));
    }
    Descriptor pack(f, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
    pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             pointers);
    pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
             std::vector{pointer(operands.workspace)});
    pack.Finalize("variant pack");
    f.Check(f.set_stream(handle, stream), "cudnnSetStream");
    f.Check(f.execute(handle, plan_.get(), pack.get()), "cudnnBackendExecute");
  }

 private:
  const std::shared_ptr<const Cudnn> cudnn_;
  const bool has_bias_;
  const ConvolutionChoice choice_;
  const Descriptor plan_;
  const int64_t workspace_size_bytes_;
};

class CudnnLibrary : public ConvolutionLibrary {
 public:
  explicit CudnnLibrary(std::string device_properties)
      : device_properties_(std::move(device_properties)) {}

  std::unique_ptr<ConvolutionPlan> Plan(
      const ConvolutionProblem& problem) override {
    const MutexLock lock(mutex_);
    Load();
    std::optional<ChosenPlan> plan =
        TryMakePlan(cudnn_->functions(), cudnn_->target(), problem);
    if (!plan) return nullptr;
    return std::make_unique<CudnnPlan>(cudnn_, *std::move(plan),
                                       problem.has_bias);
  }
  std::string version() override {
    const MutexLock lock(mutex_);
    Load();
    const size_t number = cudnn_->functions().version();
    return fmt::format("cuDNN {}.{}.{}", number / 10000, number / 100 % 100,
                       number % 100);
  }

 private:
  void Load() REQUIRES(mutex_) {
    if (cudnn_ != nullptr) return;
    cudnn_ = std::make_shared<const Cudnn>(device_properties_);
  }

  const std::string device_properties_;
  Mutex mutex_;
  std::shared_ptr<const Cudnn> cudnn_ GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<ConvolutionLibrary> MakeCudnn(std::string device_properties) {
  return std::make_unique<CudnnLibrary>(std::move(device_properties));
}

}  // namespace replicant::kernels::cuda
