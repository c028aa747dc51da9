#include "env/model_image.h"

#include <mujoco/mjxmacro.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "base/mutex.h"

namespace replicant::env {

std::shared_ptr<const ModelImage> ModelImage::Of(const mjModel& model) {
  // a few pages are copied as fast as they are mapped
  constexpr mjtSize kSmallest = 1 << 16;
  if (model.nbuffer < kSmallest) return nullptr;
  static Mutex mutex;
  static std::vector<std::weak_ptr<const ModelImage>> living;
  const MutexLock lock(mutex);
  std::erase_if(living, [](const auto& image) { return image.expired(); });
  for (const auto& image : living) {
    const auto held = image.lock();
    if (held && held->IsOf(model)) return held;
  }
  std::shared_ptr<const ModelImage> made(new ModelImage(model));
  if (made->view_ == nullptr) return nullptr;
  living.push_back(made);
  return made;
}

ModelImage::ModelImage(const mjModel& model)
    : file_(memfd_create("mjModel", MFD_CLOEXEC)),
      size_(static_cast<size_t>(model.nbuffer)) {
  if (file_ < 0) return;
  // write() reports full memory, where a mapping would end the process
  const auto* bytes = static_cast<const std::byte*>(model.buffer);
  for (size_t done = 0; done < size_;) {
    const ssize_t count = write(file_, bytes + done, size_ - done);
    if (count <= 0) return;
    done += static_cast<size_t>(count);
  }
  void* view = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file_, 0);
  if (view != MAP_FAILED) view_ = view;
}

ModelImage::~ModelImage() {
  if (view_ != nullptr) munmap(view_, size_);
  if (file_ >= 0) close(file_);
}

bool ModelImage::IsOf(const mjModel& model) const {
  return static_cast<size_t>(model.nbuffer) == size_ &&
         std::memcmp(model.buffer, view_, size_) == 0;
}

mjModel* ModelImage::Copy(const mjModel& model) const {
  void* buffer = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_NORESERVE, file_, 0);
  if (buffer == MAP_FAILED) return nullptr;
  auto* copy = static_cast<mjModel*>(mju_malloc(sizeof(mjModel)));
  *copy = model;
  copy->buffer = buffer;
  const auto* from = static_cast<const std::byte*>(model.buffer);
  auto* to = static_cast<std::byte*>(buffer);
#define X(type, name, rows, columns)    \
  copy->name = reinterpret_cast<type*>( \
      to + (reinterpret_cast<const std::byte*>(model.name) - from));
  MJMODEL_POINTERS
#undef X
  return copy;
}

void ModelImage::Release(mjModel* model) {
  munmap(model->buffer, static_cast<size_t>(model->nbuffer));
  mju_free(model);
}

}  // namespace replicant::env
