"""Folders as storage."""


class FileSystemWriter:
    def __init__(self, path, single_file_per_rank=True, sync_files=True, thread_count=1, **kwargs):
        self.path = path


class FileSystemReader:
    def __init__(self, path, **kwargs):
        self.path = path
