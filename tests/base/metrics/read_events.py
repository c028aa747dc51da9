"""Prints what TensorBoard finds in a folder of event files.

One line a value, in the order of the tags:  KIND TAG STEP CONTENT
"""

import sys

from tensorboard.backend.event_processing import event_accumulator


def main(folder):
    # 0 keeps every value instead of a random sample
    everything = {k: 0 for k in event_accumulator.DEFAULT_SIZE_GUIDANCE}
    events = event_accumulator.EventAccumulator(folder, everything)
    events.Reload()
    tags = events.Tags()
    for tag in sorted(tags["scalars"]):
        for e in events.Scalars(tag):
            print("scalar", tag, e.step, e.value, e.wall_time)
    for tag in sorted(tags["images"]):
        for e in events.Images(tag):
            print("image", tag, e.step, (e.height, e.width), e.encoded_image_string)
    for tag in sorted(tags["histograms"]):
        for e in events.Histograms(tag):
            h = e.histogram_value
            print("histogram", tag, e.step, h.min, h.max, h.num, h.sum,
                  h.sum_squares, list(h.bucket_limit), list(h.bucket))
    for tag in sorted(tags["tensors"]):
        plugin = events.SummaryMetadata(tag).plugin_data.plugin_name
        for e in events.Tensors(tag):
            text = [s.decode() for s in e.tensor_proto.string_val]
            print(plugin, tag, e.step, text)


if __name__ == "__main__":
    main(sys.argv[1])
