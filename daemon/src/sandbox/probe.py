"""Asks an interpreter what it is; prints one JSON object. Runs unsandboxed, once, with -I -S -B."""

import json
import os
import sys


# Modules for terminals, displays and CPython's own tests: of no use to a program, and their libraries are many.
USELESS = ("_tkinter", "_curses", "readline", "nis.", "ossaudiodev", "_test", "_ctypes_test", "_xxtest", "xx")


def load_extension_modules():
    """Opens every useful extension module, so that the loader brings in the libraries they need."""
    import ctypes

    for folder in sys.path:
        if not folder.endswith("lib-dynload") or not os.path.isdir(folder):
            continue
        for name in sorted(os.listdir(folder)):
            if name.startswith(USELESS):
                continue
            try:
                ctypes.CDLL(os.path.join(folder, name), mode=os.RTLD_LAZY)
            except OSError:
                pass  # its library is not installed: the module would not import outside either


def loaded_objects():
    """Names under which the loader opened the interpreter's shared objects, extension modules included."""
    import ctypes

    class Info(ctypes.Structure):
        _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]

    names = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
    def visit(info, _size, _data):
        if info.contents.name:
            names.append(os.fsdecode(info.contents.name))
        return 0

    load_extension_modules()
    ctypes.CDLL(None).dl_iterate_phdr(visit, None)
    return names


def loader(image):
    """The dynamic loader that the image names (PT_INTERP), or None for a static one."""
    import struct

    with open(image, "rb") as file:
        head = file.read(64)
        if head[:4] != b"\x7fELF" or head[4] != 2:
            return None
        offset, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
        for index in range(count):
            file.seek(offset + index * size)
            entry = file.read(56)
            if struct.unpack_from("<I", entry)[0] == 3:
                start, length = struct.unpack_from("<Q", entry, 8)[0], struct.unpack_from("<Q", entry, 32)[0]
                file.seek(start)
                return os.fsdecode(file.read(length).rstrip(b"\0"))
    return None


def image():
    """The file that really runs: a framework build's bin/python3 replaces itself by another image."""
    if sys.platform == "linux":
        return os.path.realpath("/proc/self/exe")
    if sys.platform == "darwin":
        import ctypes

        buffer = ctypes.create_string_buffer(4096)
        if ctypes.CDLL(None).proc_pidpath(os.getpid(), buffer, 4096) > 0:
            return os.path.realpath(os.fsdecode(buffer.value))
    return os.path.realpath(sys.executable)


def dyld_images():
    """Every Mach-O image that is loaded once all extension modules are."""
    import ctypes

    load_extension_modules()
    library = ctypes.CDLL(None)
    library._dyld_get_image_name.restype = ctypes.c_char_p
    names = (library._dyld_get_image_name(index) for index in range(library._dyld_image_count()))
    return [os.fsdecode(name) for name in names if name]


def main():
    base = getattr(sys, "_base_executable", None) or sys.executable
    answer = {
        "version": list(sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "base": base,
        "machine": os.uname().machine,
        "objects": [],
        "loader": None,
    }
    if sys.version_info >= (3, 11) and sys.argv[1:] == ["closure"]:
        import sysconfig

        answer["image"] = image()
        paths = sysconfig.get_paths()
        folders = [os.path.dirname(os.__file__), paths["stdlib"], paths["platstdlib"]]
        folders += [folder for folder in sys.path if folder.endswith("lib-dynload")]
        answer["folders"] = [folder for folder in dict.fromkeys(folders) if os.path.isdir(folder)]
        if sys.platform == "linux":
            answer["objects"] = loaded_objects()
            answer["loader"] = loader(answer["image"])
        elif sys.platform == "darwin":
            answer["objects"] = dyld_images()
    json.dump(answer, sys.stdout)


main()
