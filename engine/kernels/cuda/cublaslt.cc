#include <cublasLt.h>
#include <fmt/format.h>

#include <functional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/mutex.h"
#include "base/shared_library.h"
#include "engine/kernels/backend.h"
#include "engine/kernels/cuda/driver.h"
#include "engine/kernels/cuda/matmul_library.h"

// cuBLASLt takes matrices by columns. A row-major matrix [rows, columns] is the
// column-major one of its transpose, so c = op(a) op(b) by rows is computed as
// c^T = op(b)^T op(a)^T by columns: the operands change places, and the bias,
// one value for each column of c, becomes one for each row of c^T, as its
// epilogue needs.
namespace replicant::kernels::cuda {
namespace {

// NVIDIA's advice for Hopper.
constexpr size_t kMaxMatMulWorkspaceBytes = size_t{32} << 20;
// Number of algorithms searched for one by its name.
constexpr int kMaxListed = 64;

struct CublasLtFunctions {
  explicit CublasLtFunctions(const SharedLibrary& library) {
    library.Find("cublasLtCreate", &create);
    library.Find("cublasLtDestroy", &destroy);
    library.Find("cublasLtGetStatusString", &status_text);
    library.Find("cublasLtMatmul", &matmul);
    library.Find("cublasLtMatmulDescCreate", &desc_create);
    library.Find("cublasLtMatmulDescDestroy", &desc_destroy);
    library.Find("cublasLtMatmulDescSetAttribute", &desc_set);
    library.Find("cublasLtMatrixLayoutCreate", &layout_create);
    library.Find("cublasLtMatrixLayoutDestroy", &layout_destroy);
    library.Find("cublasLtMatrixLayoutSetAttribute", &layout_set);
    library.Find("cublasLtMatmulPreferenceCreate", &preference_create);
    library.Find("cublasLtMatmulPreferenceDestroy", &preference_destroy);
    library.Find("cublasLtMatmulPreferenceSetAttribute", &preference_set);
    library.Find("cublasLtMatmulAlgoGetHeuristic", &heuristic);
    library.Find("cublasLtMatmulAlgoConfigGetAttribute", &algo_get);
    library.Find("cublasLtGetVersion", &version);
  }

  void Check(cublasStatus_t status, const char* call) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw DeviceError(fmt::format("{}: {}", call, status_text(status)));
  }

  decltype(cublasLtCreate)* create;
  decltype(cublasLtDestroy)* destroy;
  decltype(cublasLtGetStatusString)* status_text;
  decltype(cublasLtMatmul)* matmul;
  decltype(cublasLtMatmulDescCreate)* desc_create;
  decltype(cublasLtMatmulDescDestroy)* desc_destroy;
  decltype(cublasLtMatmulDescSetAttribute)* desc_set;
  decltype(cublasLtMatrixLayoutCreate)* layout_create;
  decltype(cublasLtMatrixLayoutDestroy)* layout_destroy;
  decltype(cublasLtMatrixLayoutSetAttribute)* layout_set;
  decltype(cublasLtMatmulPreferenceCreate)* preference_create;
  decltype(cublasLtMatmulPreferenceDestroy)* preference_destroy;
  decltype(cublasLtMatmulPreferenceSetAttribute)* preference_set;
  decltype(cublasLtMatmulAlgoGetHeuristic)* heuristic;
  decltype(cublasLtMatmulAlgoConfigGetAttribute)* algo_get;
  decltype(cublasLtGetVersion)* version;
};

// The library's handle of the device that was current when it was made.
struct Handle {
  explicit Handle(std::shared_ptr<const CublasLtFunctions> f)
      : functions(std::move(f)) {
    functions->Check(functions->create(&handle), "cublasLtCreate");
  }
  ~Handle() { functions->destroy(handle); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  std::shared_ptr<const CublasLtFunctions> functions;
  cublasLtHandle_t handle = nullptr;
};

cudaDataType_t CudaTypeOf(DType dtype) {
  return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
}

// One of an algorithm's settings as text; "" for one that it does not have.
template <typename T>
std::string Setting(const CublasLtFunctions& f,
                    const cublasLtMatmulAlgo_t& algorithm,
                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                    const char* name) {
  T value{};
  size_t size_bytes = 0;
  if (f.algo_get(&algorithm, attribute, &value, sizeof value, &size_bytes) !=
      CUBLAS_STATUS_SUCCESS) {
    return {};
  }
  return fmt::format("{} {} ", name, value);
}

// "algo 66 tile 20 ...": everything that distinguishes an algorithm.
std::string AlgorithmName(const CublasLtFunctions& f,
                          const cublasLtMatmulAlgo_t& algorithm) {
  const auto& a = algorithm;
  std::string name =
      Setting<int32_t>(f, a, CUBLASLT_ALGO_CONFIG_ID, "algo") +
      Setting<uint32_t>(f, a, CUBLASLT_ALGO_CONFIG_TILE_ID, "tile") +
      Setting<uint32_t>(f, a, CUBLASLT_ALGO_CONFIG_STAGES_ID, "stages") +
      Setting<int32_t>(f, a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, "split_k") +
      Setting<uint32_t>(f, a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                        "reduction") +
      Setting<uint32_t>(f, a, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, "swizzle") +
      Setting<uint32_t>(f, a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, "custom") +
      Setting<uint16_t>(f, a, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, "inner") +
      Setting<uint16_t>(f, a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, "cluster");
  if (!name.empty()) name.pop_back();
  return name;
}

// A problem as the library describes it.
//
// Thread-safety: any thread; Launch() one at a time.
class Descriptors {
 public:
  Descriptors(std::shared_ptr<const Handle> handle,
              const MatMulProblem& problem)
      : handle_(std::move(handle)), f_(*handle_->functions) {
    try {
      Make(problem);
    } catch (...) {
      Destroy();
      throw;
    }
  }
  ~Descriptors() { Destroy(); }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  const Handle& handle() const { return *handle_; }
  const CublasLtFunctions& functions() const { return f_; }

  // The library's algorithms, the best first, at most `max`. Throws DeviceError
  // if there is none.
  std::vector<cublasLtMatmulHeuristicResult_t> FindAlgorithms(
      const MatMulProblem& p, int max) const {
    cublasLtMatmulPreference_t preference = nullptr;
    f_.Check(f_.preference_create(&preference),
             "cublasLtMatmulPreferenceCreate");
    const auto destroy = [this](cublasLtMatmulPreferenceOpaque_t* made) {
      f_.preference_destroy(made);
    };
    const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, decltype(destroy)>
        owner(preference, destroy);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute,
                            auto value) {
      f_.Check(f_.preference_set(preference, attribute, &value, sizeof value),
               "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxMatMulWorkspaceBytes);
    for (const auto alignment : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(alignment, static_cast<uint32_t>(Backend::kAlignment));
    }
    std::vector<cublasLtMatmulHeuristicResult_t> found(
        static_cast<size_t>(max));
    int num_found = 0;
    const cublasStatus_t status =
        f_.heuristic(handle_->handle, desc_, b_, a_, c_, c_, preference, max,
                     found.data(), &num_found);
    found.resize(
        status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(num_found) : 0);
    std::erase_if(found, [](const cublasLtMatmulHeuristicResult_t& result) {
      return result.state != CUBLAS_STATUS_SUCCESS;
    });
    if (found.empty()) {
      throw DeviceError(fmt::format(
          "cuBLASLt has no algorithm for {} of [{},{}] x [{},{}] in {}: {}",
          p.batch, p.m, p.k, p.k, p.n, DTypeName(p.in),
          f_.status_text(status)));
    }
    return found;
  }

  void Launch(const cublasLtMatmulAlgo_t& algorithm,
              size_t workspace_size_bytes, const MatMulOperands& operands,
              CUstream stream) const {
    if (operands.bias != 0) {
      const void* const bias = PointerOf(operands.bias);
      f_.Check(f_.desc_set(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                           sizeof bias),
               "cublasLtMatmulDescSetAttribute(bias)");
    }
    const float alpha = 1.0F;
    const float beta = 0.0F;
    void* const c = PointerOf(operands.c);
    f_.Check(
        f_.matmul(handle_->handle, desc_, &alpha, PointerOf(operands.b), b_,
                  PointerOf(operands.a), a_, &beta, c, c_, c, c_, &algorithm,
                  PointerOf(operands.workspace), workspace_size_bytes, stream),
        "cublasLtMatmul");
  }

 private:
  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, T value) {
    f_.Check(f_.desc_set(desc_, attribute, &value, sizeof value),
             "cublasLtMatmulDescSetAttribute");
  }

  // The layout of row-major matrices [rows, columns], one behind the other.
  void MakeLayout(cublasLtMatrixLayout_t* layout, DType dtype, int64_t batch,
                  int64_t rows, int64_t columns) {
    f_.Check(f_.layout_create(layout, CudaTypeOf(dtype),
                              static_cast<uint64_t>(columns),
                              static_cast<uint64_t>(rows), columns),
             "cublasLtMatrixLayoutCreate");
    if (batch == 1) return;
    const auto count = static_cast<int32_t>(batch);
    const int64_t stride = rows * columns;
    f_.Check(f_.layout_set(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                           sizeof count),
             "cublasLtMatrixLayoutSetAttribute(count)");
    f_.Check(f_.layout_set(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                           &stride, sizeof stride),
             "cublasLtMatrixLayoutSetAttribute(stride)");
  }

  void Make(const MatMulProblem& p) {
    f_.Check(f_.desc_create(&desc_,
                            p.allows_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                          : CUBLAS_COMPUTE_32F,
                            CUDA_R_32F),
             "cublasLtMatmulDescCreate");
    // the first matrix of the library is b
    Set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.has_bias) {
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE,
          p.has_relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS);
      Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CudaTypeOf(p.out));
    } else if (p.has_relu) {
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU);
    }
    MakeLayout(&a_, p.in, p.batch, p.transpose_a ? p.k : p.m,
               p.transpose_a ? p.m : p.k);
    MakeLayout(&b_, p.in, p.batch, p.transpose_b ? p.n : p.k,
               p.transpose_b ? p.k : p.n);
    MakeLayout(&c_, p.out, p.batch, p.m, p.n);
  }

  void Destroy() {
    if (a_ != nullptr) f_.layout_destroy(a_);
    if (b_ != nullptr) f_.layout_destroy(b_);
    if (c_ != nullptr) f_.layout_destroy(c_);
    if (desc_ != nullptr) f_.desc_destroy(desc_);
  }

  const std::shared_ptr<const Handle> handle_;
  const CublasLtFunctions& f_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr;
  cublasLtMatrixLayout_t c_ = nullptr;
};

class CublasLtPlan : public MatMulPlan {
 public:
  CublasLtPlan(std::shared_ptr<const Descriptors> descriptors,
               const cublasLtMatmulHeuristicResult_t& choice)
      : descriptors_(std::move(descriptors)),
        algorithm_(choice.algo),
        workspace_size_bytes_(choice.workspaceSize) {}

  size_t workspace_size_bytes() const override { return workspace_size_bytes_; }
  std::string name() const override {
    return AlgorithmName(descriptors_->functions(), algorithm_);
  }
  void Launch(const MatMulOperands& operands, CUstream stream) override {
    descriptors_->Launch(algorithm_, workspace_size_bytes_, operands, stream);
  }

 private:
  const std::shared_ptr<const Descriptors> descriptors_;
  const cublasLtMatmulAlgo_t algorithm_;
  const size_t workspace_size_bytes_;
};

class CublasLt : public MatMulLibrary {
 public:
  CublasLt()
      : library_(fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR),
                 "install cuBLAS of the CUDA toolkit, and name its folder in "
                 "LD_LIBRARY_PATH"),
        functions_(std::make_shared<CublasLtFunctions>(library_)) {}

  std::unique_ptr<MatMulPlan> Plan(const MatMulProblem& problem) override {
    std::unique_ptr<MatMulPlan> first;
    Visit(problem, /*max=*/1, [&](std::unique_ptr<MatMulPlan> plan) {
      first = std::move(plan);
      return false;
    });
    return first;
  }
  std::vector<std::unique_ptr<MatMulPlan>> Candidates(
      const MatMulProblem& problem, int max) override {
    std::vector<std::unique_ptr<MatMulPlan>> plans;
    std::set<std::string> names;
    // as many are listed as where one is looked up by its name
    Visit(problem, kMaxListed, [&](std::unique_ptr<MatMulPlan> plan) {
      if (names.insert(plan->name()).second) plans.push_back(std::move(plan));
      return plans.size() < static_cast<size_t>(max);
    });
    return plans;
  }
  std::unique_ptr<MatMulPlan> PlanNamed(const MatMulProblem& problem,
                                        const std::string& name) override {
    std::unique_ptr<MatMulPlan> found;
    Visit(problem, kMaxListed, [&](std::unique_ptr<MatMulPlan> plan) {
      if (plan->name() == name) found = std::move(plan);
      return found == nullptr;
    });
    return found;
  }
  std::string version() override {
    const size_t number = functions_->version();
    return fmt::format("cuBLASLt {}.{}.{}", number / 10000, number / 100 % 100,
                       number % 100);
  }

 private:
  // Calls `visit` with plan after plan, the best first, while it returns true.
  void Visit(const MatMulProblem& problem, int max,
             const std::function<bool(std::unique_ptr<MatMulPlan>)>& visit) {
    const MutexLock lock(mutex_);
    if (handle_ == nullptr) handle_ = std::make_shared<Handle>(functions_);
    // each plan has its own: a launch sets the bias in them
    for (const auto& choice :
         Descriptors(handle_, problem).FindAlgorithms(problem, max)) {
      if (!visit(std::make_unique<CublasLtPlan>(
              std::make_shared<Descriptors>(handle_, problem), choice))) {
        return;
      }
    }
  }

  const SharedLibrary library_;
  const std::shared_ptr<const CublasLtFunctions> functions_;
  Mutex mutex_;
  std::shared_ptr<const Handle> handle_ GUARDED_BY(mutex_);
};

}  // namespace

std::vector<std::unique_ptr<MatMulPlan>> MatMulLibrary::Candidates(
    const MatMulProblem& problem, int /*max*/) {
  std::vector<std::unique_ptr<MatMulPlan>> plans;
  plans.push_back(Plan(problem));
  return plans;
}

std::unique_ptr<MatMulPlan> MatMulLibrary::PlanNamed(
    const MatMulProblem& problem, const std::string& name) {
  std::unique_ptr<MatMulPlan> plan = Plan(problem);
  return plan->name() == name ? std::move(plan) : nullptr;
}

std::unique_ptr<MatMulLibrary> LoadCublasLt() {
  return std::make_unique<CublasLt>();
}

}  // namespace replicant::kernels::cuda
