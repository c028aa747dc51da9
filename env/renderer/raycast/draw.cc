#include "env/renderer/raycast/draw.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/instruction_sets.h"

// Compiled once for each instruction set and, where tests are built, for plain
// C++: they compare its pictures with the others.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "env/renderer/raycast/draw.cc"
#include <hwy/foreach_target.h>

#include "env/renderer/raycast/shade-inl.h"
#include "env/renderer/raycast/visibility-inl.h"

HWY_BEFORE_NAMESPACE();
namespace replicant::env::raycast::HWY_NAMESPACE {

// ---------------------------------------------------------------------- sky

HWY_ATTR void PaintSky(const Snapshot& snapshot, Sky& sky, size_t stride) {
  const Rays& rays = snapshot.rays;
  // MuJoCo turns the cube by 90 degrees about x
  const auto turned = [](Vec3 d) HWY_ATTR {
    return Vec3{d.x, d.z, Zero() - d.y};
  };
  for (int y = 0; y < snapshot.height; ++y) {
    const Vec3 row =
        Fma(Set(rays.per_y), Set(static_cast<float>(y) + 0.5f), Set(rays.base));
    auto* color = reinterpret_cast<int32_t*>(sky.color.data()) +
                  static_cast<size_t>(y) * stride;
    for (size_t x = 0; x < stride; x += NumLanes()) {
      const Float column = ToFloat(CountFrom(static_cast<int32_t>(x)));
      const Vec3 direction = Fma(Set(rays.per_x), column + Set(0.5f), row);
      const Int painted =
          snapshot.sky == nullptr
              ? hn::Zero(kInt)
              : Pack(ToBytes(SampleCube(*snapshot.sky, turned(direction),
                                        turned(Set(rays.per_x)),
                                        turned(Set(rays.per_y)))));
      hn::StoreU(painted, kInt, color + x);
    }
  }
}

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
  uint32_t sum = 0;
  for (int shift = 0; shift < 3 * kChannelBits; shift += kChannelBits) {
    const uint32_t channel =
        ((a >> shift) & kChannelMask) + ((b >> shift) & kChannelMask);
    sum |= std::min(channel, 255u) << shift;
  }
  return sum;
}

// `share` of a packed colour over another, rounded to 8 bits.
uint32_t BlendOver(uint32_t over, uint32_t under, float share) {
  uint32_t blend = 0;
  for (int shift = 0; shift < 3 * kChannelBits; shift += kChannelBits) {
    const auto a = static_cast<float>((over >> shift) & kChannelMask);
    const auto b = static_cast<float>((under >> shift) & kChannelMask);
    const float value = a * share + b * (1.0f - share);
    blend |= static_cast<uint32_t>(std::lround(value)) << shift;
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

// Puts the shaded list into the picture: into the sums, and into the samples
// if transparent geoms will be laid over them.
HWY_ATTR void Deposit(const Snapshot& snapshot, const PixelList& list,
                      bool is_mirror, Frame& frame) {
  const bool keeps_samples = snapshot.keeps_samples();
  for (size_t i = 0; i < list.count;) {
    const size_t at = PixelIndex(list.pixels[i], frame.stride);
    if (!keeps_samples && i + NumLanes() <= list.count && IsRun(list, i)) {
      const Int color = hn::LoadU(
          kInt, reinterpret_cast<const int32_t*>(frame.shaded.data()) + i);
      hn::StoreU(hn::ShiftLeft<2>(color), kInt,
                 reinterpret_cast<int32_t*>(frame.sum.data()) + at);
      if (is_mirror) {
        hn::StoreU(color, kInt,
                   reinterpret_cast<int32_t*>(frame.mirror_color.data()) + at);
      }
      i += NumLanes();
      continue;
    }
    const uint32_t color = frame.shaded[i];
    frame.sum.data()[at] += color * CountBits(list.samples[i]);
    if (is_mirror) frame.mirror_color.data()[at] = color;
    if (keeps_samples) KeepSamples(at, list.samples[i], color, frame.color);
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

void DepositTransparent(const PixelList& list, float alpha, const Frame& frame,
                        PerSample<Lanes<uint32_t>>& kept) {
  for (size_t i = 0; i < list.count; ++i) {
    BlendSamples(PixelIndex(list.pixels[i], frame.stride), list.samples[i],
                 frame.shaded[i], alpha, kept);
  }
}

// Adds what the samples see in the mirror to its own colour.
void AddReflection(const PixelList& mirror, Frame& frame) {
  for (size_t i = 0; i < mirror.count; ++i) {
    const size_t at = PixelIndex(mirror.pixels[i], frame.stride);
    for (size_t s = 0; s < kNumSamples; ++s) {
      if ((mirror.samples[i] >> s & 1) == 0) continue;
      uint32_t& color = frame.color[s].data()[at];
      color = AddSaturated(color, frame.reflection[s].data()[at]);
    }
  }
}

// ------------------------------------------------------------------- layers

void DrawDirect(const Snapshot& snapshot, const Tables& tables,
                const Views& views, Frame& frame) {
  std::vector<Casters> casters = MakeCasters(snapshot);
  for (size_t k = 0; k < snapshot.primitives.size(); ++k) {
    const Primitive& p = snapshot.primitives[k];
    PixelList& list = frame.direct_lists[k];
    if (p.is_transparent || list.count == 0) continue;
    const Drawing drawing{
        &snapshot,
        &tables,
        &p,
        ToLocal(p, snapshot.rays),
        views.direct[k],
        MakeLocalScene(snapshot, p, snapshot.rays.origin, 1.0f),
        &casters};
    Shade(drawing, list, frame);
    Deposit(snapshot, list, static_cast<int>(k) == snapshot.mirror, frame);
  }
}

// Calls draw(primitive) for transparent ones in the order in which MuJoCo draws
// them, twice: from near to far and from far to near.
template <typename Visit>
void ForEachTransparent(const Snapshot& snapshot, const Visit& visit) {
  const auto num = snapshot.transparent.size();
  for (size_t i = 0; i < 2 * num; ++i) {
    visit(static_cast<size_t>(
        snapshot.transparent[i < num ? i : 2 * num - 1 - i]));
  }
}

void DrawMirrored(const Snapshot& snapshot, const Tables& tables,
                  const Views& views, Frame& frame) {
  const float reflectance =
      snapshot.primitives[static_cast<size_t>(snapshot.mirror)].reflectance;
  const auto shade = [&](size_t k) {
    const Primitive& p = snapshot.primitives[k];
    PixelList& list = frame.mirrored_lists[k];
    if (list.count == 0) return;
    const Drawing drawing{
        &snapshot,
        &tables,
        &p,
        ToLocal(p, snapshot.mirrored_rays),
        views.mirrored[k],
        MakeLocalScene(snapshot, p, snapshot.mirrored_rays.origin, reflectance),
        nullptr};
    Shade(drawing, list, frame);
    if (p.is_transparent) {
      DepositTransparent(list, p.rgba[3], frame, frame.reflection);
    } else {
      DepositMirrored(snapshot, list, frame);
    }
  };
  if (snapshot.keeps_samples()) {
    for (Lanes<uint32_t>& seen : frame.reflection) {
      std::fill_n(seen.data(), seen.size(), 0u);
    }
  }
  for (size_t k = 0; k < snapshot.primitives.size(); ++k) {
    if (!snapshot.primitives[k].is_transparent) shade(k);
  }
  ForEachTransparent(snapshot, shade);
  if (snapshot.keeps_samples()) {
    AddReflection(frame.direct_lists[static_cast<size_t>(snapshot.mirror)],
                  frame);
  }
}

void DrawHaze(const Snapshot& snapshot, Frame& frame) {
  for (const HazePixel& pixel : frame.haze) {
    BlendSamples(pixel.at, pixel.samples, snapshot.haze.color, pixel.alpha,
                 frame.color);
  }
}

void DrawTransparent(const Snapshot& snapshot, const Tables& tables,
                     const Views& views, Frame& frame) {
  ForEachTransparent(snapshot, [&](size_t k) {
    const Primitive& p = snapshot.primitives[k];
    PixelList& list = frame.direct_lists[k];
    if (list.count == 0) return;
    const Drawing drawing{
        &snapshot,
        &tables,
        &p,
        ToLocal(p, snapshot.rays),
        views.direct[k],
        MakeLocalScene(snapshot, p, snapshot.rays.origin, 1.0f),
        nullptr};
    Shade(drawing, list, frame);
    DepositTransparent(list, p.rgba[3], frame, frame.color);
  });
}

// ------------------------------------------------------------------ resolve

void SumSamples(const Snapshot& snapshot, Frame& frame) {
  const size_t size = static_cast<size_t>(snapshot.height) * frame.stride;
  for (size_t i = 0; i < size; ++i) {
    uint32_t sum = 0;
    for (size_t s = 0; s < kNumSamples; ++s) sum += frame.color[s].data()[i];
    frame.sum.data()[i] = sum;
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
                        bool paints_sky, Frame& frame, Sky& sky, uint8_t* rgb) {
  if (paints_sky) PaintSky(snapshot, sky, frame.stride);
  const Views views = MakeViews(snapshot);
  FindVisible(snapshot, views, sky, frame);
  DrawDirect(snapshot, tables, views, frame);
  if (snapshot.mirror >= 0) DrawMirrored(snapshot, tables, views, frame);
  if (snapshot.keeps_samples()) {
    DrawHaze(snapshot, frame);
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

// Fits the memory to the picture; returns whether the sky must be painted.
bool Prepare(const Snapshot& snapshot, Frame& frame, Sky& sky) {
  // whole vectors of any width: 16 floats at most
  constexpr size_t kLargestVector = 16;
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
  if (frame.direct_lists.size() < snapshot.primitives.size()) {
    frame.direct_lists.resize(snapshot.primitives.size());
    frame.mirrored_lists.resize(snapshot.primitives.size());
  }
  sky.color.Resize(size);

  const bool is_same =
      sky.texture == snapshot.sky && sky.orientation == snapshot.orientation &&
      sky.rays.base == snapshot.rays.base &&
      sky.rays.per_x == snapshot.rays.per_x &&
      sky.rays.per_y == snapshot.rays.per_y && sky.height == snapshot.height &&
      sky.width == snapshot.width;
  sky.texture = snapshot.sky;
  sky.orientation = snapshot.orientation;
  sky.rays = snapshot.rays;
  sky.height = snapshot.height;
  sky.width = snapshot.width;
  return !is_same;
}

}  // namespace

void Draw(const Snapshot& snapshot, const Tables& tables, Frame& frame,
          Sky& sky, std::span<uint8_t> rgb) {
  const bool paints_sky = Prepare(snapshot, frame, sky);
  HWY_DYNAMIC_DISPATCH(DrawFrame)
  (snapshot, tables, paints_sky, frame, sky, rgb.data());
}

int64_t CompiledTargets() { return HWY_TARGETS; }

}  // namespace replicant::env::raycast
#endif
