#include "engine/kernels/cuda/cuda_kernels.h"

// Systems of linear equations. Products of batches are in matmul.cc.
namespace replicant::kernels::cuda {
namespace {

// inputs: a, b
void MakeCholeskySolve(KernelBuilder& builder) {
  const Shape& shape = builder.output().shape;
  const int rank = shape.rank();
  const int64_t batch = rank == 3 ? shape[0] : 1;
  const int64_t n = shape[rank - 2];
  const int64_t m = shape[rank - 1];
  if (shape.num_elements() == 0) return;
  const size_t work = builder.AddScratch(
      static_cast<size_t>(batch * n * (n + m)) * sizeof(double));
  DispatchFloat(builder.output().dtype, [&]<typename T>() {
    using Body = CholeskySolve<T>;
    builder.Launch(Body{.n = n, .m = m}, batch,
                   [work](Body& body, const KernelBindings& bindings) {
                     body.a = In<T>(bindings, 0);
                     body.b = In<T>(bindings, 1);
                     body.x = Out<T>(bindings);
                     body.work = Scratch<double>(bindings, work);
                   });
  });
}

}  // namespace

void AddLinalgKernels(CudaKernelTable& table) {
  table["CholeskySolve"] = {&MakeCholeskySolve, &WhyNotF32OrBF16};
}

}  // namespace replicant::kernels::cuda
