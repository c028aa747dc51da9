#include "python/src/bound_model.h"

#include <fmt/format.h>
#include <mujoco/mjxmacro.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace replicant::python {
namespace nb = nanobind;
namespace {

// Names without which a model cannot be drawn. Others that a version lacks are
// 0: it does not have the feature either.
constexpr std::array<std::string_view, 26> kNeeded = {
    "mesh_vertadr",   "mesh_vertnum",    "mesh_faceadr",
    "mesh_facenum",   "mesh_normaladr",  "mesh_texcoordadr",
    "mesh_vert",      "mesh_normal",     "mesh_texcoord",
    "mesh_face",      "mesh_facenormal", "mesh_facetexcoord",
    "hfield_size",    "hfield_nrow",     "hfield_ncol",
    "hfield_adr",     "hfield_data",     "tex_type",
    "tex_height",     "tex_width",       "tex_nchannel",
    "tex_adr",        "tex_data",        "mat_texid",
    "mat_texuniform", "mat_texrepeat"};

[[noreturn]] void Refuse(const std::string& what) {
  const nb::object version =
      nb::module_::import_("mujoco").attr("mj_versionString")();
  throw env::UnsupportedScene(fmt::format(
      "raycast: MuJoCo {}: {}", nb::cast<std::string>(version), what));
}

template <typename T>
constexpr const char* TypeName() {
  if constexpr (std::is_same_v<T, float>) return "float32";
  if constexpr (std::is_same_v<T, double>) return "float64";
  if constexpr (sizeof(T) == 1) return "uint8";
  return sizeof(T) == 4 ? "int32" : "int64";
}

// The numbers of `owner.name` as type T, in one piece.
template <typename T>
nb::object NumbersOf(const nb::object& owner, const char* name) {
  return nb::module_::import_("numpy").attr("ascontiguousarray")(
      owner.attr(name), TypeName<T>());
}

int64_t SizeOf(const nb::object& array) {
  return nb::cast<int64_t>(array.attr("size"));
}

const void* DataOf(const nb::object& array) {
  return nb::cast<nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>>(array)
      .data();
}

template <typename T>
void TakeNumber(const nb::object& owner, const char* name, T& number) {
  if constexpr (std::is_floating_point_v<T>) {
    number = static_cast<T>(nb::cast<double>(owner.attr(name)));
  } else {
    // an enumerator of the bindings, too
    number = static_cast<T>(nb::cast<int64_t>(nb::int_(owner.attr(name))));
  }
}

template <size_t kSize>
void TakeVector(const nb::object& owner, const char* name,
                float (&numbers)[kSize]) {
  const auto view =
      nb::cast<nb::ndarray<const float, nb::c_contig, nb::device::cpu>>(
          owner.attr(name));
  if (view.size() != kSize) {
    Refuse(fmt::format("{} has {} numbers, want {}", name, view.size(), kSize));
  }
  std::copy_n(view.data(), kSize, numbers);
}

bool Has(const nb::object& owner, const char* name) {
  return nb::hasattr(owner, name);
}

void TakeGeom(const nb::object& from, mjvGeom& geom) {
  TakeNumber(from, "type", geom.type);
  TakeNumber(from, "dataid", geom.dataid);
  TakeNumber(from, "objtype", geom.objtype);
  TakeNumber(from, "objid", geom.objid);
  TakeNumber(from, "category", geom.category);
  TakeNumber(from, "matid", geom.matid);
  TakeNumber(from, "texcoord", geom.texcoord);
  TakeNumber(from, "segid", geom.segid);
  geom.texid = -1;
  if (Has(from, "texid")) {
    TakeNumber(from, "texid", geom.texid);
    TakeNumber(from, "texuniform", geom.texuniform);
    TakeVector(from, "texrepeat", geom.texrepeat);
  }
  TakeVector(from, "size", geom.size);
  TakeVector(from, "pos", geom.pos);
  const auto matrix =
      nb::cast<nb::ndarray<const float, nb::c_contig, nb::device::cpu>>(
          from.attr("mat"));
  if (matrix.size() != 9) Refuse("mat has not 9 numbers");
  std::copy_n(matrix.data(), 9, geom.mat);
  TakeVector(from, "rgba", geom.rgba);
  TakeNumber(from, "emission", geom.emission);
  TakeNumber(from, "specular", geom.specular);
  TakeNumber(from, "shininess", geom.shininess);
  TakeNumber(from, "reflectance", geom.reflectance);
  TakeNumber(from, "camdist", geom.camdist);
  TakeNumber(from, "modelrbound", geom.modelrbound);
  TakeNumber(from, "transparent", geom.transparent);
  // only whether it has one matters
  geom.label[0] = nb::len(nb::str(from.attr("label"))) > 0 ? '?' : '\0';
#if mjVERSION_HEADER >= 4000000
  geom.castshadow = 1;
  if (Has(from, "castshadow")) TakeNumber(from, "castshadow", geom.castshadow);
#else
  int casts_shadow = 1;
  if (Has(from, "castshadow")) TakeNumber(from, "castshadow", casts_shadow);
  if (casts_shadow == 0) {
    Refuse("a geom without a shadow (castshadow) cannot be drawn");
  }
#endif
}

void TakeLight(const nb::object& from, mjvLight& light) {
  light.id = -1;
  if (Has(from, "id")) TakeNumber(from, "id", light.id);
  if (Has(from, "type")) {
    TakeNumber(from, "type", light.type);
  } else {
    int is_directional = 0;
    TakeNumber(from, "directional", is_directional);
    light.type = is_directional != 0 ? mjLIGHT_DIRECTIONAL : mjLIGHT_SPOT;
  }
  TakeVector(from, "pos", light.pos);
  TakeVector(from, "dir", light.dir);
  TakeVector(from, "attenuation", light.attenuation);
  TakeNumber(from, "cutoff", light.cutoff);
  TakeNumber(from, "exponent", light.exponent);
  TakeVector(from, "ambient", light.ambient);
  TakeVector(from, "diffuse", light.diffuse);
  TakeVector(from, "specular", light.specular);
  TakeNumber(from, "headlight", light.headlight);
  TakeNumber(from, "castshadow", light.castshadow);
}

void TakeCamera(const nb::object& from, mjvGLCamera& camera) {
  TakeVector(from, "pos", camera.pos);
  TakeVector(from, "forward", camera.forward);
  TakeVector(from, "up", camera.up);
  TakeNumber(from, "frustum_center", camera.frustum_center);
  TakeNumber(from, "frustum_width", camera.frustum_width);
  TakeNumber(from, "frustum_bottom", camera.frustum_bottom);
  TakeNumber(from, "frustum_top", camera.frustum_top);
  TakeNumber(from, "frustum_near", camera.frustum_near);
  TakeNumber(from, "frustum_far", camera.frustum_far);
  TakeNumber(from, "orthographic", camera.orthographic);
}

// Rendering flags stand at other places in other versions.
void TakeFlags(const nb::object& scene, mjtByte* flags) {
  const nb::object names = nb::module_::import_("mujoco").attr("mjtRndFlag");
  struct Flag {
    const char* name;
    int place;
  };
  constexpr std::array<Flag, 9> kFlags{{{"mjRND_SHADOW", mjRND_SHADOW},
                                        {"mjRND_WIREFRAME", mjRND_WIREFRAME},
                                        {"mjRND_REFLECTION", mjRND_REFLECTION},
                                        {"mjRND_ADDITIVE", mjRND_ADDITIVE},
                                        {"mjRND_SKYBOX", mjRND_SKYBOX},
                                        {"mjRND_FOG", mjRND_FOG},
                                        {"mjRND_HAZE", mjRND_HAZE},
                                        {"mjRND_SEGMENT", mjRND_SEGMENT},
                                        {"mjRND_CULL_FACE", mjRND_CULL_FACE}}};
  const nb::object values = scene.attr("flags");
  for (const Flag& flag : kFlags) {
    const nb::int_ place(names.attr(flag.name));
    flags[flag.place] =
        nb::cast<bool>(nb::bool_(nb::object(values[place]))) ? 1 : 0;
  }
}

// Numbers that this build gives to types of geoms, textures and categories:
// a scene of a version with others cannot be read.
void CheckEnumerators() {
  struct Enumerator {
    const char* type;
    const char* name;
    int value;
  };
  constexpr std::array<Enumerator, 17> kKnown{
      {{"mjtGeom", "mjGEOM_PLANE", mjGEOM_PLANE},
       {"mjtGeom", "mjGEOM_HFIELD", mjGEOM_HFIELD},
       {"mjtGeom", "mjGEOM_SPHERE", mjGEOM_SPHERE},
       {"mjtGeom", "mjGEOM_CAPSULE", mjGEOM_CAPSULE},
       {"mjtGeom", "mjGEOM_ELLIPSOID", mjGEOM_ELLIPSOID},
       {"mjtGeom", "mjGEOM_CYLINDER", mjGEOM_CYLINDER},
       {"mjtGeom", "mjGEOM_BOX", mjGEOM_BOX},
       {"mjtGeom", "mjGEOM_MESH", mjGEOM_MESH},
       {"mjtGeom", "mjGEOM_ARROW", mjGEOM_ARROW},
       {"mjtGeom", "mjGEOM_LINE", mjGEOM_LINE},
       {"mjtGeom", "mjGEOM_SKIN", mjGEOM_SKIN},
       {"mjtGeom", "mjGEOM_TRIANGLE", mjGEOM_TRIANGLE},
       {"mjtCatBit", "mjCAT_DECOR", mjCAT_DECOR},
       {"mjtTexture", "mjTEXTURE_2D", mjTEXTURE_2D},
       {"mjtTexture", "mjTEXTURE_CUBE", mjTEXTURE_CUBE},
       {"mjtTexture", "mjTEXTURE_SKYBOX", mjTEXTURE_SKYBOX},
       {"mjtTextureRole", "mjTEXROLE_RGB", mjTEXROLE_RGB}}};
  const nb::module_ mujoco = nb::module_::import_("mujoco");
  for (const Enumerator& known : kKnown) {
    if (!Has(mujoco, known.type) || !Has(mujoco.attr(known.type), known.name)) {
      Refuse(fmt::format("{} is missing", known.name));
    }
    const auto value =
        nb::cast<int>(nb::int_(mujoco.attr(known.type).attr(known.name)));
    if (value != known.value) {
      Refuse(fmt::format("{} is {}, want {}", known.name, value, known.value));
    }
  }
}

}  // namespace

template <typename T>
void BoundModel::Copy(const nb::object& model, const char* name, int64_t count,
                      T*& field) {
  const auto bytes = static_cast<size_t>(count) * sizeof(T);
  // never null
  memory_.push_back(std::make_unique<std::byte[]>(bytes + sizeof(T)));
  field = reinterpret_cast<T*>(memory_.back().get());
  if (!Has(model, name)) {
    if (std::find(kNeeded.begin(), kNeeded.end(), name) == kNeeded.end()) {
      return;
    }
    Refuse(fmt::format("model.{} is missing", name));
  }
  const nb::object array = NumbersOf<T>(model, name);
  if (SizeOf(array) != count) {
    Refuse(fmt::format("model.{} has {} numbers, want {}", name, SizeOf(array),
                       count));
  }
  if (count > 0) std::memcpy(field, DataOf(array), bytes);
}

BoundModel::BoundModel(const nb::object& model) {
  CheckEnumerators();
#define X(name) \
  if (Has(model, #name)) TakeNumber(model, #name, model_.name);
  MJMODEL_SIZES
#undef X
#define X(type, name, rows, columns)                                       \
  Copy(model, #name, static_cast<int64_t>(model_.rows) * int64_t{columns}, \
       model_.name);
  MJMODEL_POINTERS_MESH
  MJMODEL_POINTERS_SKIN
  MJMODEL_POINTERS_HFIELD
  MJMODEL_POINTERS_TEXTURE
  MJMODEL_POINTERS_MATERIAL
#undef X
  const nb::object statistic = model.attr("stat");
  TakeNumber(statistic, "extent", model_.stat.extent);
  const nb::object quality = model.attr("vis").attr("quality");
  TakeNumber(quality, "shadowsize", model_.vis.quality.shadowsize);
  TakeNumber(quality, "offsamples", model_.vis.quality.offsamples);
  TakeNumber(quality, "numslices", model_.vis.quality.numslices);
  TakeNumber(quality, "numstacks", model_.vis.quality.numstacks);
  TakeNumber(quality, "numquads", model_.vis.quality.numquads);
  const nb::object map = model.attr("vis").attr("map");
  TakeNumber(map, "znear", model_.vis.map.znear);
  TakeNumber(map, "zfar", model_.vis.map.zfar);
  TakeNumber(map, "shadowclip", model_.vis.map.shadowclip);
  TakeNumber(map, "shadowscale", model_.vis.map.shadowscale);
  TakeNumber(map, "fogstart", model_.vis.map.fogstart);
  TakeNumber(map, "fogend", model_.vis.map.fogend);
  TakeNumber(map, "haze", model_.vis.map.haze);
  const nb::object rgba = model.attr("vis").attr("rgba");
  TakeVector(rgba, "fog", model_.vis.rgba.fog);
  TakeVector(rgba, "haze", model_.vis.rgba.haze);
}

const mjvScene& BoundScene::Take(const nb::object& scene) {
  memory_.clear();
  TakeNumber(scene, "maxgeom", scene_.maxgeom);
  TakeNumber(scene, "ngeom", scene_.ngeom);
  geoms_.resize(static_cast<size_t>(scene_.ngeom));
  scene_.geoms = geoms_.data();
  const nb::object geoms = scene.attr("geoms");
  for (size_t i = 0; i < geoms_.size(); ++i) TakeGeom(geoms[i], geoms_[i]);
  TakeNumber(scene, "nlight", scene_.nlight);
  scene_.nlight = std::min(scene_.nlight, mjMAXLIGHT);
  const nb::object lights = scene.attr("lights");
  for (int i = 0; i < scene_.nlight; ++i) {
    TakeLight(lights[i], scene_.lights[i]);
  }
  const nb::object cameras = scene.attr("camera");
  for (int i = 0; i < 2; ++i) TakeCamera(cameras[i], scene_.camera[i]);
  TakeNumber(scene, "enabletransform", scene_.enabletransform);
  TakeNumber(scene, "stereo", scene_.stereo);
  TakeFlags(scene, scene_.flags);

  const auto copy = [&]<typename T>(const char* name, T*& field) {
    const nb::object array = NumbersOf<T>(scene, name);
    const auto bytes = static_cast<size_t>(SizeOf(array)) * sizeof(T);
    auto& memory = memory_.emplace_back(bytes + sizeof(T));
    if (bytes > 0) std::memcpy(memory.data(), DataOf(array), bytes);
    field = reinterpret_cast<T*>(memory.data());
  };
  TakeNumber(scene, "nskin", scene_.nskin);
  if (scene_.nskin > 0) {
    copy("skinfacenum", scene_.skinfacenum);
    copy("skinvertadr", scene_.skinvertadr);
    copy("skinvertnum", scene_.skinvertnum);
    copy("skinvert", scene_.skinvert);
    copy("skinnormal", scene_.skinnormal);
  }
  TakeNumber(scene, "nflex", scene_.nflex);
  if (scene_.nflex > 0) {
    Refuse("a scene with a flex cannot be drawn");
  }
  return scene_;
}

}  // namespace replicant::python
