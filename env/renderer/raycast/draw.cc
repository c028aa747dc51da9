#include "env/renderer/raycast/draw.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "base/instruction_sets.h"
#include "env/renderer/raycast/float3.h"

// Compiled once for each instruction set and, where tests are built, for plain
// C++: they compare its pictures with the others.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "env/renderer/raycast/draw.cc"
#include <hwy/foreach_target.h>

#include "env/renderer/raycast/shade-inl.h"
#include "env/renderer/raycast/visibility-inl.h"

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// ----------------------------------------------------------------- deposits

size_t PixelIndex(int32_t pixel, size_t stride) {
  return static_cast<size_t>(pixel >> 16) * stride +
         static_cast<size_t>(pixel & 0xFFFF);
}

uint32_t CountBits(int32_t samples) {
  return static_cast<uint32_t>(std::popcount(static_cast<uint32_t>(samples)));
}

// Sum of two packed colours, each channel at most 255.
uint32_t AddSaturated(uint32_t a, uint32_t b) {
  constexpr uint32_t kEach = 1 | 1 << kChannelBits | 1 << 2 * kChannelBits;
  const uint32_t sum = a + b;
  // bit 8 of a channel's sum is set beyond 255
  const uint32_t over = sum & (kEach << 8);
  return (sum | (over - (over >> 8))) & (kEach * 255);
}

// `share` of a packed colour over another, rounded to 8 bits, half up.
uint32_t BlendOver(uint32_t over, uint32_t under, float share) {
  uint32_t blend = 0;
  for (int shift = 0; shift < 3 * kChannelBits; shift += kChannelBits) {
    const auto a = static_cast<float>((over >> shift) & kChannelMask);
    const auto b = static_cast<float>((under >> shift) & kChannelMask);
    const float value = a * share + b * (1.0f - share);
    const auto whole = static_cast<int32_t>(value);
    const bool is_up = value - static_cast<float>(whole) >= 0.5f;
    blend |= static_cast<uint32_t>(whole + (is_up ? 1 : 0)) << shift;
  }
  return blend;
}

// Writes `color` to the samples of a pixel.
void KeepSamples(size_t at, int32_t samples, uint32_t color,
                 PerSample<Lanes<uint32_t>>& kept) {
  for (size_t s = 0; s < kNumSamples; ++s) {
    if ((samples >> s & 1) != 0) kept[s].data()[at] = color;
  }
}

// Lays `share` of `color` over the samples of a pixel.
void BlendSamples(size_t at, int32_t samples, uint32_t color, float share,
                  PerSample<Lanes<uint32_t>>& kept) {
  for (size_t s = 0; s < kNumSamples; ++s) {
    if ((samples >> s & 1) == 0) continue;
    uint32_t& under = kept[s].data()[at];
    under = BlendOver(color, under, share);
  }
}

// Whether the vector of the list from `i` on is a run of adjacent, fully
// covered pixels.
HWY_INLINE bool IsRun(const PixelList& list, size_t i) {
  const Int pixels = hn::LoadU(kInt, list.pixels.data() + i);
  const Int samples = hn::LoadU(kInt, list.samples.data() + i);
  return hn::AllTrue(kInt,
                     hn::And(hn::Eq(pixels, CountFrom(list.pixels[i])),
                             hn::Eq(samples, hn::Set(kInt, kAllSamples))));
}

// Puts the shaded list into the picture: into the sums, or into the samples if
// they are kept.
HWY_ATTR void Deposit(const Snapshot& snapshot, const PixelList& list,
                      bool is_mirror, Frame& frame) {
  const bool keeps_samples = snapshot.keeps_samples();
  for (size_t i = 0; i < list.count;) {
    const size_t at = PixelIndex(list.pixels[i], frame.stride);
    if (i + NumLanes() <= list.count && IsRun(list, i)) {
      const Int color = hn::LoadU(
          kInt, reinterpret_cast<const int32_t*>(frame.shaded.data()) + i);
      const auto store = [at](Int value, Lanes<uint32_t>& to) HWY_ATTR {
        hn::StoreU(value, kInt, reinterpret_cast<int32_t*>(to.data()) + at);
      };
      if (keeps_samples) {
        for (Lanes<uint32_t>& kept : frame.color) store(color, kept);
      } else {
        store(hn::ShiftLeft<2>(color), frame.sum);
        if (is_mirror) store(color, frame.mirror_color);
      }
      i += NumLanes();
      continue;
    }
    const uint32_t color = frame.shaded[i];
    if (keeps_samples) {
      KeepSamples(at, list.samples[i], color, frame.color);
    } else {
      frame.sum.data()[at] += color * CountBits(list.samples[i]);
      if (is_mirror) frame.mirror_color.data()[at] = color;
    }
    ++i;
  }
}

// Adds the shaded list to the mirror's own colour, sample by sample.
void DepositMirrored(const Snapshot& snapshot, const PixelList& list,
                     Frame& frame) {
  for (size_t i = 0; i < list.count; ++i) {
    const size_t at = PixelIndex(list.pixels[i], frame.stride);
    if (snapshot.keeps_samples()) {
      KeepSamples(at, list.samples[i], frame.shaded[i], frame.reflection);
      continue;
    }
    const uint32_t own = frame.mirror_color.data()[at];
    const uint32_t both = AddSaturated(own, frame.shaded[i]);
    frame.sum.data()[at] += (both - own) * CountBits(list.samples[i]);
  }
}

// The shares of a transparent primitive in its pixels: its alpha, times the
// texture's. The latter is shaded as a colour that no light falls on.
void FindShares(const Drawing& drawing, PixelList& list, Frame& frame) {
  const Primitive& p = *drawing.primitive;
  list.shares.assign(list.count, p.rgba[3]);
  if (p.texture == nullptr || p.texture->alpha == nullptr) return;
  Primitive alpha = p;
  alpha.texture = p.texture->alpha.get();
  Drawing unlit = drawing;
  unlit.primitive = &alpha;
  unlit.scene.num_lights = 0;
  unlit.scene.base = {1, 1, 1};
  unlit.scene.fog = nullptr;
  Shade(unlit, list, frame);
  for (size_t i = 0; i < list.count; ++i) {
    list.shares[i] *=
        static_cast<float>(frame.shaded[i] & kChannelMask) / 255.0f;
  }
}

// Shades a transparent primitive, which is drawn twice.
void ShadeTransparent(const Drawing& drawing, PixelList& list, Frame& frame) {
  FindShares(drawing, list, frame);
  Shade(drawing, list, frame);
  std::swap(frame.shaded, list.shaded);
}

// Lays a shaded transparent primitive over what is behind it.
void DrawOver(const PixelList& list, size_t stride,
              PerSample<Lanes<uint32_t>>& kept) {
  for (size_t i = 0; i < list.count; ++i) {
    BlendSamples(PixelIndex(list.pixels[i], stride), list.samples[i],
                 list.shaded[i], list.shares[i], kept);
  }
}

// Adds what the samples of `list` see in the mirror to its own colour. A sample
// in several lists is added once: the reflection is left black, as the next
// picture needs it.
void AddReflection(const PixelList& list, Frame& frame) {
  for (size_t i = 0; i < list.count; ++i) {
    const size_t at = PixelIndex(list.pixels[i], frame.stride);
    for (size_t s = 0; s < kNumSamples; ++s) {
      if ((list.samples[i] >> s & 1) == 0) continue;
      uint32_t& color = frame.color[s].data()[at];
      color =
          AddSaturated(color, std::exchange(frame.reflection[s].data()[at], 0));
    }
  }
}

// ------------------------------------------------------------------- layers

// Settings for a primitive that `rays` see; `view` are the same in its unit
// coordinates.
Drawing MakeDrawing(const Snapshot& snapshot, const Tables& tables,
                    const Primitive& p, const Rays& rays, const UnitRays& view,
                    float reflectance, std::vector<Casters>* casters) {
  return {&snapshot, &tables,
          &p,        ToLocal(p, rays),
          view,      MakeLocalScene(snapshot, p, rays, reflectance),
          casters};
}

void DrawDirect(const Snapshot& snapshot, const Tables& tables,
                const Views& views, Frame& frame) {
  std::vector<Casters> casters = MakeCasters(snapshot);
  for (size_t k = 0; k < snapshot.primitives.size(); ++k) {
    const Primitive& p = snapshot.primitives[k];
    PixelList& list = frame.direct_lists[k];
    if (p.is_transparent || list.count == 0) continue;
    const Drawing drawing = MakeDrawing(snapshot, tables, p, snapshot.rays,
                                        views.direct[k], 1.0f, &casters);
    Shade(drawing, list, frame);
    Deposit(snapshot, list, static_cast<int>(k) == snapshot.mirror, frame);
  }
}

// Draws the shaded transparent primitives in MuJoCo's order, twice: from near
// to far and from far to near.
void DrawAllOver(const Snapshot& snapshot, const std::vector<PixelList>& lists,
                 size_t stride, PerSample<Lanes<uint32_t>>& kept) {
  const auto num = snapshot.transparent.size();
  for (size_t i = 0; i < 2 * num; ++i) {
    const int k = snapshot.transparent[i < num ? i : 2 * num - 1 - i];
    DrawOver(lists[static_cast<size_t>(k)], stride, kept);
  }
}

void DrawMirrored(const Snapshot& snapshot, const Tables& tables,
                  const Views& views, Frame& frame) {
  const float reflectance =
      snapshot.primitives[static_cast<size_t>(snapshot.mirror)].reflectance;
  for (size_t k = 0; k < snapshot.primitives.size(); ++k) {
    const Primitive& p = snapshot.primitives[k];
    PixelList& list = frame.mirrored_lists[k];
    if (list.count == 0) continue;
    const Drawing drawing =
        MakeDrawing(snapshot, tables, p, snapshot.mirrored_rays,
                    views.mirrored[k], reflectance, nullptr);
    if (p.is_transparent) {
      ShadeTransparent(drawing, list, frame);
    } else {
      Shade(drawing, list, frame);
      DepositMirrored(snapshot, list, frame);
    }
  }
  DrawAllOver(snapshot, frame.mirrored_lists, frame.stride, frame.reflection);
  if (!snapshot.keeps_samples()) return;
  for (size_t k = 0; k < snapshot.primitives.size(); ++k) {
    AddReflection(frame.mirrored_lists[k], frame);
  }
}

void DrawHaze(Frame& frame) {
  for (const HazePixel& pixel : frame.haze) {
    BlendSamples(pixel.at, pixel.samples, pixel.color, pixel.alpha,
                 frame.color);
  }
}

void DrawTransparent(const Snapshot& snapshot, const Tables& tables,
                     const Views& views, Frame& frame) {
  for (const int index : snapshot.transparent) {
    const auto k = static_cast<size_t>(index);
    PixelList& list = frame.direct_lists[k];
    if (list.count == 0) continue;
    ShadeTransparent(MakeDrawing(snapshot, tables, snapshot.primitives[k],
                                 snapshot.rays, views.direct[k], 1.0f, nullptr),
                     list, frame);
  }
  DrawAllOver(snapshot, frame.direct_lists, frame.stride, frame.color);
}

// ------------------------------------------------------------------ resolve

HWY_ATTR void SumSamples(const Snapshot& snapshot, Frame& frame) {
  const size_t size = static_cast<size_t>(snapshot.height) * frame.stride;
  for (size_t i = 0; i < size; i += NumLanes()) {
    Int sum = hn::Zero(kInt);
    for (const Lanes<uint32_t>& color : frame.color) {
      sum = sum +
            hn::LoadU(kInt, reinterpret_cast<const int32_t*>(color.data()) + i);
    }
    hn::StoreU(sum, kInt, reinterpret_cast<int32_t*>(frame.sum.data()) + i);
  }
}

// Averages the samples into bytes.
HWY_ATTR void Resolve(const Snapshot& snapshot, const Frame& frame,
                      uint8_t* rgb) {
  const hn::Rebind<uint8_t, IntTag> byte_tag;
  const Int mask = hn::Set(kInt, static_cast<int32_t>(kChannelMask));
  const Int half = hn::Set(kInt, kNumSamples / 2);
  std::array<uint8_t, 3 * 64> last;
  const auto width = static_cast<size_t>(snapshot.width);
  for (size_t y = 0; y < static_cast<size_t>(snapshot.height); ++y) {
    const auto* row =
        reinterpret_cast<const int32_t*>(frame.sum.data()) + y * frame.stride;
    uint8_t* out = rgb + y * width * 3;
    for (size_t x = 0; x < width; x += NumLanes()) {
      const Int sum = hn::LoadU(kInt, row + x);
      const auto average = [&](Int channel) HWY_ATTR {
        const Int v = hn::ShiftRight<2>(hn::And(channel, mask) + half);
        return hn::DemoteTo(byte_tag, v);
      };
      const auto r = average(sum);
      const auto g = average(hn::ShiftRight<kChannelBits>(sum));
      const auto b = average(hn::ShiftRight<2 * kChannelBits>(sum));
      if (x + NumLanes() <= width) {
        hn::StoreInterleaved3(r, g, b, byte_tag, out + 3 * x);
      } else {
        hn::StoreInterleaved3(r, g, b, byte_tag, last.data());
        std::copy_n(last.data(), 3 * (width - x), out + 3 * x);
      }
    }
  }
}

HWY_ATTR void DrawFrame(const Snapshot& snapshot, const Tables& tables,
                        Frame& frame, Sky& sky, uint8_t* rgb) {
  const Views views = MakeViews(snapshot);
  FindVisible(snapshot, views, sky, frame);
  DrawDirect(snapshot, tables, views, frame);
  if (snapshot.mirror >= 0) DrawMirrored(snapshot, tables, views, frame);
  if (snapshot.keeps_samples()) {
    DrawHaze(frame);
    DrawTransparent(snapshot, tables, views, frame);
    SumSamples(snapshot, frame);
  }
  Resolve(snapshot, frame, rgb);
}

}  // namespace replicant::env::raycast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replicant::env::raycast {
namespace {

HWY_EXPORT(DrawFrame);

// The order in which primitives are traced: those of triangles come last, from
// near to far, as a ray looks only for what is nearer than everything before.
void SetOrder(const Snapshot& snapshot, std::vector<size_t>& order) {
  const auto add = [&](bool are_triangles) {
    for (size_t k = 0; k < snapshot.primitives.size(); ++k) {
      const Shape shape = snapshot.primitives[k].shape;
      if ((shape == Shape::kTriangles) == are_triangles) order.push_back(k);
    }
  };
  order.clear();
  add(/*are_triangles=*/false);
  const auto first = static_cast<std::ptrdiff_t>(order.size());
  add(/*are_triangles=*/true);
  const auto distance = [&](size_t k) {
    const Primitive& p = snapshot.primitives[k];
    const Float3 v = Sub(p.position, snapshot.rays.origin);
    return std::sqrt(Dot(v, v)) - p.bounding_radius;
  };
  std::sort(order.begin() + first, order.end(), [&](size_t a, size_t b) {
    return std::make_pair(distance(a), a) < std::make_pair(distance(b), b);
  });
}

// Fits the memory to the picture, and forgets a sky that looks different now.
void Prepare(const Snapshot& snapshot, Frame& frame, Sky& sky) {
  frame.stride = (static_cast<size_t>(snapshot.width) + kLargestVector - 1) /
                 kLargestVector * kLargestVector;
  const size_t size = frame.stride * static_cast<size_t>(snapshot.height);
  const size_t band = frame.stride * static_cast<size_t>(Frame::kBandRows);
  for (SeenSamples* seen : {&frame.direct, &frame.mirrored}) {
    for (size_t s = 0; s < kNumSamples; ++s) {
      seen->nearness[s].Resize(band);
      seen->id[s].Resize(band);
      seen->triangle[s].Resize(band);
    }
  }
  if (snapshot.keeps_samples()) {
    for (Lanes<uint32_t>& color : frame.color) color.Resize(size);
    for (Lanes<uint32_t>& seen : frame.reflection) seen.Resize(size);
  }
  if (snapshot.mirror >= 0) frame.mirror_color.Resize(size);
  frame.sum.Resize(size);
  SetOrder(snapshot, frame.order);
  if (frame.direct_lists.size() < snapshot.primitives.size()) {
    frame.direct_lists.resize(snapshot.primitives.size());
    frame.mirrored_lists.resize(snapshot.primitives.size());
  }
  sky.color.Resize(size);
  sky.is_painted.resize(size / kLargestVector);

  const bool is_same = snapshot.background == nullptr && !sky.is_background &&
                       sky.texture == snapshot.sky && sky.fog == snapshot.fog &&
                       sky.orientation == snapshot.orientation &&
                       sky.rays.are_parallel == snapshot.rays.are_parallel &&
                       sky.rays.base == snapshot.rays.base &&
                       sky.rays.per_x == snapshot.rays.per_x &&
                       sky.rays.per_y == snapshot.rays.per_y &&
                       sky.height == snapshot.height &&
                       sky.width == snapshot.width;
  if (is_same) return;
  std::fill(sky.is_painted.begin(), sky.is_painted.end(), uint8_t{0});
  sky.texture = snapshot.sky;
  sky.is_background = snapshot.background != nullptr;
  sky.orientation = snapshot.orientation;
  sky.rays = snapshot.rays;
  sky.fog = snapshot.fog;
  sky.height = snapshot.height;
  sky.width = snapshot.width;
}

}  // namespace

void Draw(const Snapshot& snapshot, const Tables& tables, Frame& frame,
          Sky& sky, std::span<uint8_t> rgb) {
  Prepare(snapshot, frame, sky);
  HWY_DYNAMIC_DISPATCH(DrawFrame)(snapshot, tables, frame, sky, rgb.data());
}

int64_t CompiledTargets() { return HWY_TARGETS; }

}  // namespace replicant::env::raycast
#endif
