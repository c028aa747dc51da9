#include "engine/kernels/cpu/shared_packs.h"

#include "base/check.h"

namespace replicant::kernels::cpu {

std::shared_ptr<SharedPack> SharedPacks::Get(const std::string& name,
                                             size_t size_bytes) {
  MutexLock lock(mutex_);
  std::shared_ptr<SharedPack>& pack = packs_[name];
  if (pack == nullptr) pack = std::make_shared<SharedPack>(size_bytes);
  REPLICANT_CHECK_EQ(pack->size_bytes(), size_bytes);
  return pack;
}

}  // namespace replicant::kernels::cpu
