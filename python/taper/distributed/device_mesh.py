"""Ranks as a grid: a group along each dimension."""
import math

import taper

from . import distributed_c10d as c10d


class DeviceMesh:
    """mesh: ranks in the shape of the grid; every rank makes the same one."""

    def __init__(self, device_type, mesh, *, mesh_dim_names=None, _groups=None, _init_backend=True):
        self.device_type = device_type
        self.mesh = mesh.cpu() if isinstance(mesh, taper.Tensor) else taper.tensor(mesh, dtype=taper.int64)
        self.mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names else None
        if self.mesh_dim_names and len(self.mesh_dim_names) != self.mesh.ndim:
            raise RuntimeError("mesh_shape and mesh_dim_names should have same length!")
        flat = self.mesh.reshape(-1).tolist()
        if len(set(flat)) != len(flat):
            raise RuntimeError("a rank is in the mesh twice")
        self._ranks, self._shape = flat, tuple(self.mesh.shape)
        at = flat.index(c10d.get_rank()) if c10d.get_rank() in flat else None
        self._coordinate = None if at is None else [at // math.prod(self._shape[d + 1:]) % self._shape[d] for d in range(len(self._shape))]
        self._groups = _groups if _groups is not None else self._make_groups()

    def _make_groups(self):
        if self._shape == (c10d.get_world_size(),) and self._ranks == list(range(c10d.get_world_size())):
            return [c10d._get_default_group()]
        mine = []
        for d in range(len(self._shape)):  # every rank makes all of them, in the same order
            lines = self.mesh.movedim(d, -1).reshape(-1, self._shape[d]).tolist()
            mine.append(c10d.new_subgroups_by_enumeration(lines)[0])
        return mine

    @property
    def shape(self):
        return self._shape

    @property
    def ndim(self):
        return len(self._shape)

    def size(self, mesh_dim=None):
        return math.prod(self._shape) if mesh_dim is None else self._shape[mesh_dim]

    def _dim(self, d):
        if isinstance(d, str):
            if not self.mesh_dim_names or d not in self.mesh_dim_names:
                raise KeyError(f"Mesh dimension '{d}' does not exist. Available mesh dimensions are: {self.mesh_dim_names}")
            return self.mesh_dim_names.index(d)
        if d is None:
            if self.ndim != 1:
                raise RuntimeError(f"Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1.")
            return 0
        return d

    def get_group(self, mesh_dim=None):
        return self._groups[self._dim(mesh_dim)]

    def get_all_groups(self):
        return list(self._groups)

    def get_rank(self):
        return c10d.get_rank()

    def get_local_rank(self, mesh_dim=None):
        return self._coordinate[self._dim(mesh_dim)]

    def get_coordinate(self):
        return list(self._coordinate) if self._coordinate is not None else None

    def __getitem__(self, names):
        """The mesh along some dimensions, through this rank."""
        names = (names,) if isinstance(names, str) else tuple(names)
        dims = [self._dim(n) for n in names]
        if sorted(dims) != dims:
            raise KeyError(f"Invalid mesh_dim_names {names} specified: they must be in the order of the mesh, {self.mesh_dim_names}")
        index = tuple(slice(None) if d in dims else self._coordinate[d] for d in range(self.ndim))
        return DeviceMesh(self.device_type, self.mesh[index], mesh_dim_names=names, _groups=[self._groups[d] for d in dims])

    def _flatten(self, mesh_dim_name=None):
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ())
        return DeviceMesh(self.device_type, self.mesh.reshape(-1), mesh_dim_names=(name,) if name else None)

    @staticmethod
    def from_group(group, device_type, mesh=None, *, mesh_dim_names=None):
        groups = group if isinstance(group, (list, tuple)) else [group]
        mesh = c10d.get_process_group_ranks(groups[0]) if mesh is None else mesh
        return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names, _groups=list(groups))

    def __eq__(self, other):
        return isinstance(other, DeviceMesh) and (self._ranks, self._shape, self.device_type, self.mesh_dim_names) == \
            (other._ranks, other._shape, other.device_type, other.mesh_dim_names)

    def __hash__(self):
        return hash((tuple(self._ranks), self._shape, self.device_type, self.mesh_dim_names))

    def __repr__(self):
        dims = ", ".join(f"{n}={s}" for n, s in zip(self.mesh_dim_names, self._shape)) if self.mesh_dim_names else ", ".join(map(str, self._shape))
        return f"DeviceMesh(({dims}), '{self.device_type}')"


def init_device_mesh(device_type, mesh_shape, *, mesh_dim_names=None, backend_override=None):
    """The ranks 0, 1, ... in the shape of a grid. Joins the job where that has not happened."""
    if not c10d.is_initialized():
        c10d.init_process_group("gloo")
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(f"Each mesh_dim_name must be unique. Found repeated mesh_dim_name in mesh_dim_names {mesh_dim_names}")
        if len(mesh_shape) != len(mesh_dim_names):
            raise RuntimeError("mesh_shape and mesh_dim_names should have same length!")
    n = math.prod(mesh_shape)
    if n > c10d.get_world_size():
        raise RuntimeError(f"Mesh should not be bigger than default world size {c10d.get_world_size()}, but found {n} ranks!")
    return DeviceMesh(device_type, taper.arange(n).view(tuple(mesh_shape)), mesh_dim_names=mesh_dim_names)


def _get_device_handle(device_type="cuda"):
    return getattr(taper, device_type, None)
