#pragma once

#include <mujoco/mujoco.h>

#include <memory>

namespace replicant::env {

// The arrays of a model in pages that all its copies share: a copy gets a page
// of its own when it first writes to it. Of a model of the Control Suite most
// pages are textures, meshes and skins, which no task changes.
//
// Thread-safety: any thread may use an image.
class ModelImage {
 public:
  // The image of `model`, which is not kept: that of an equal model if copies
  // of it live, else a new one. Null if the model is small or the operating
  // system gives no memory for it.
  static std::shared_ptr<const ModelImage> Of(const mjModel& model);

  ~ModelImage();
  ModelImage(const ModelImage&) = delete;
  ModelImage& operator=(const ModelImage&) = delete;

  // A copy of `model`, the one of Of(); null if the system has no more
  // mappings. Release() frees it.
  mjModel* Copy(const mjModel& model) const;
  static void Release(mjModel* model);

 private:
  explicit ModelImage(const mjModel& model);
  bool IsOf(const mjModel& model) const;

  int file_ = -1;
  size_t size_ = 0;
  void* view_ = nullptr;  // to compare with
};

}  // namespace replicant::env
