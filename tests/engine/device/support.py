"""The parts of the loop on a device that its tests look at, each named in this place alone."""

from trellm.engine.device.backend import HostBackend
from trellm.engine.device.batch import DeviceBatch
from trellm.engine.device.capturing import WaitsError, WithoutWaiting
from trellm.engine.device.slots import ActiveSlots, SlotDrafter, greedy_choices, write_choices
from trellm.engine.device.state_table import OFTEN, DeviceStateTable, StateKey, charsets, loops
from trellm.kernels.device_batch.layout import COUNT, DRAFTED, TOKENS, UNKNOWN, WIDTH

__all__ = [
    "COUNT",
    "DRAFTED",
    "OFTEN",
    "TOKENS",
    "UNKNOWN",
    "WIDTH",
    "ActiveSlots",
    "DeviceBatch",
    "DeviceStateTable",
    "HostBackend",
    "SlotDrafter",
    "StateKey",
    "WaitsError",
    "WithoutWaiting",
    "charsets",
    "greedy_choices",
    "loops",
    "write_choices",
]
