"""A stand-in for NVML's Python module, for tests on machines without a driver."""


class PretendNvml:
    """NVML's answers, as a stand-in for its Python module: GPU 0 in MIG mode with 2 of 7 parts made, GPU 1 whole, GPU 2
    too old.

    It shows that what the driver says would be read rightly; no driver was asked.
    """

    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        pass

    class NVMLError_NotFound(NVMLError):
        pass

    class NVMLError_NotSupported(NVMLError):
        pass

    class NVMLError_NoPermission(NVMLError):
        pass

    class NVMLError_GpuIsLost(NVMLError):
        pass

    class NVMLError_Unknown(NVMLError):
        pass

    class NVMLError_LibraryNotFound(NVMLError):
        pass

    class NVMLError_DriverNotLoaded(NVMLError):
        pass

    NVML_COMPUTEMODE_DEFAULT, NVML_COMPUTEMODE_EXCLUSIVE_THREAD = 0, 1
    NVML_COMPUTEMODE_PROHIBITED, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 2, 3
    NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK, NVML_P2P_STATUS_DISABLED_BY_REGKEY = 2, 0, 4

    def __init__(self):
        self.open = 0

    def nvmlSystemGetDriverVersion(self):
        return "580.65.06"

    def nvmlSystemGetCudaDriverVersion_v2(self):
        return 13000

    def nvmlDeviceGetPciInfo(self, handle):
        return type(
            "Pci",
            (),
            {"domain": 0, "bus": 16 * (handle[1] + 1), "device": 0, "busId": f"00000000:{handle[1] + 1}0:00.0"},
        )

    def nvmlDeviceGetComputeMode(self, handle):
        return self.NVML_COMPUTEMODE_DEFAULT

    def nvmlDeviceGetCudaComputeCapability(self, handle):
        return [9, 0]

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return 3

    def nvmlDeviceGetHandleByIndex(self, index):
        return ("GPU", index)

    def nvmlDeviceGetMigMode(self, handle):
        if handle == ("GPU", 2):
            raise self.NVMLError_NotSupported
        return [1, 1] if handle == ("GPU", 0) else [0, 1]  # GPU 1 will be in MIG mode after its next reset

    def nvmlDeviceGetMaxMigDeviceCount(self, handle):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, place):
        if place not in (0, 3):
            raise self.NVMLError_NotFound
        return ("MIG", place)

    def nvmlDeviceGetUUID(self, handle):
        return f"{handle[0]}-0000-{handle[1]}"

    def nvmlDeviceGetName(self, handle):
        return "NVIDIA H100 MIG 3g.40gb" if handle[0] == "MIG" else "NVIDIA H100"

    def nvmlDeviceGetMemoryInfo(self, handle):
        return type("Memory", (), {"total": (40 if handle[0] == "MIG" else 80) << 30, "used": 1 << 30})


class OlderNvml(PretendNvml):
    """The same GPUs with a driver of the time of CUDA 12."""

    def nvmlSystemGetDriverVersion(self):
        return "535.183.01"

    def nvmlSystemGetCudaDriverVersion_v2(self):
        return 12020
