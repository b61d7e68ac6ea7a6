"""The zip archives that hold checkpoints: one folder with data.pkl and the bytes of each storage, uncompressed and aligned. Read from memory or
from a mapped file. Nothing in an archive is believed: entries may not overlap, lie outside of it, or grow beyond what their compression can do."""
import io
import struct
import zipfile
import zlib

_ALIGN = 64


class Reader:
    def __init__(self, data):
        self.data, self.view = data, memoryview(data)
        try:
            self.zip = zipfile.ZipFile(data if hasattr(data, "seek") else io.BytesIO(data))
            infos = self.zip.infolist()
        except Exception as e:  # zipfile raises many kinds on damaged files
            raise RuntimeError(f"the zip archive is damaged or not complete: {e}") from None
        end = 0
        for i in sorted(infos, key=lambda i: i.header_offset):
            if i.header_offset < end or i.file_size > 1032 * i.compress_size + 64 and i.compress_type == zipfile.ZIP_DEFLATED:
                raise RuntimeError(f"the zip archive is damaged: entry {i.filename[:80]!r} overlaps another or claims too many bytes")
            end = i.header_offset + 30 + i.compress_size
        if end > len(self.view):
            raise RuntimeError("the zip archive is damaged: an entry lies outside of it")
        self.entries = {i.filename: i for i in infos}
        names = [n for n in self.entries if n.count("/") == 1 and n.endswith("/data.pkl")]
        if not names:
            raise RuntimeError("the zip archive holds no checkpoint: data.pkl is missing")
        self.folder = names[0][:-len("data.pkl")]

    def has(self, name):
        return self.folder + name in self.entries

    def place(self, name):
        """(begin, end) of an entry that is stored as it is; None for a compressed one."""
        info = self.entries.get(self.folder + name)
        if info is None:
            raise RuntimeError(f"the zip archive is damaged: {name!r} is missing")
        if info.compress_type != zipfile.ZIP_STORED:
            return None
        at = info.header_offset
        head = bytes(self.view[at:at + 30])
        if len(head) < 30 or head[:4] != b"PK\x03\x04" or info.flag_bits & 1:
            raise RuntimeError(f"the zip archive is damaged: {name!r} has no header")
        begin = at + 30 + sum(struct.unpack("<HH", head[26:30]))
        if begin + info.file_size > len(self.view) or info.file_size != info.compress_size:
            raise RuntimeError(f"the zip archive is damaged: {name!r} lies outside of it")
        return begin, begin + info.file_size

    def size(self, name):
        info = self.entries.get(self.folder + name)
        return -1 if info is None else info.file_size

    def read(self, name, check=True):
        """The bytes of an entry, without copying them where they are stored as they are."""
        where = self.place(name)
        info = self.entries[self.folder + name]
        try:
            if where is None:
                return memoryview(self.zip.read(info))
        except Exception as e:
            raise RuntimeError(f"the zip archive is damaged: {name!r}: {e}") from None
        part = self.view[where[0]:where[1]]
        if check and zlib.crc32(part) != info.CRC:
            raise RuntimeError(f"the zip archive is damaged: the checksum of {name!r} does not fit its bytes")
        return part


class Writer:
    """Writer(file, folder).add(name, bytes) ...; close(). Every entry begins at a multiple of 64, so that a file can be mapped."""

    def __init__(self, f, folder):
        self.f, self.folder, self.at, self.central = f, folder, 0, []

    def put(self, b):
        self.f.write(b)
        self.at += len(b)

    def add(self, name, data):
        name, n, crc, at = f"{self.folder}/{name}".encode(), len(data), zlib.crc32(data), self.at
        far = n >= 0xffffffff or at >= 0xffffffff
        big = struct.pack("<HHQQ", 1, 16, n, n) if far else b""
        pad = -(at + 30 + len(name) + len(big) + 4) % _ALIGN
        short = (0xffffffff, 0xffffffff) if far else (n, n)
        fixed = struct.pack("<HHHHHI", 45 if far else 20, 0x800, 0, 0, 0x21, crc) + struct.pack("<IIH", *short, len(name))
        self.put(b"PK\x03\x04" + fixed + struct.pack("<H", len(big) + 4 + pad) + name + big + b"FB" + struct.pack("<H", pad) + b"Z" * pad)
        self.put(data)
        big = struct.pack("<HHQQQ", 1, 24, n, n, at) if far else b""
        self.central.append(b"PK\x01\x02" + struct.pack("<H", 45) + fixed + struct.pack("<HHHHII", len(big), 0, 0, 0, 0, 0xffffffff if far else at) + name + big)

    def close(self):
        at, n = self.at, len(self.central)
        for c in self.central:
            self.put(c)
        size, end = self.at - at, self.at
        if n >= 0xffff or at >= 0xffffffff:
            self.put(b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, n, n, size, at) + b"PK\x06\x07" + struct.pack("<IQI", 0, end, 1))
            n, size, at = 0xffff, min(size, 0xffffffff), 0xffffffff
        self.put(b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, n, n, size, at, 0))
