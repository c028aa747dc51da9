#include "base/error.h"
#include "engine/kernels/cuda/nccl_library.h"

// In a build without nccl.h.
namespace replicant::kernels::cuda {
namespace {

class NoNccl : public NcclLibrary {
 public:
  std::string version() override { Refuse(); }
  std::string NewUniqueId() override { Refuse(); }
  std::unique_ptr<NcclRank> Join(const std::string& /*unique_id*/, int /*rank*/,
                                 int /*size*/) override {
    Refuse();
  }

 private:
  [[noreturn]] static void Refuse() {
    throw DeviceError(
        "this build has no NCCL; hint: build it where CMake finds nccl.h, or "
        "set learner.replication.collectives: host");
  }
};

}  // namespace

std::unique_ptr<NcclLibrary> MakeNccl(std::string /*file*/) {
  return std::make_unique<NoNccl>();
}

}  // namespace replicant::kernels::cuda
