"""A Python arm whose step is two fills, by the driver alone."""

import ctypes

from gpulift_worker import Arm

BYTES = 64


def make(arm, point, seed, gpu):
    """Fills with the seed's lowest byte."""
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        if result := getattr(driver, name)(*arguments):
            raise RuntimeError(f"{name}: {result}")

    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), gpu)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(BYTES))
    value = seed % 256

    def step():
        for byte in (value ^ 255, value):
            call("cuMemsetD8_v2", memory, ctypes.c_ubyte(byte), ctypes.c_size_t(BYTES))

    def error():
        step()
        copied = ctypes.create_string_buffer(BYTES)
        call("cuMemcpyDtoH_v2", copied, memory, ctypes.c_size_t(BYTES))
        return 0.0 if copied.raw == bytes([value]) * BYTES else 1.0

    return Arm(step=step, error=error, synchronize=lambda: call("cuCtxSynchronize"))
