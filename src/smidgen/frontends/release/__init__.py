"""The paper's release: its `.pkl` files, read without unpickling, and the same networks repacked as `.npz`."""

from smidgen.frontends.release.reading import read_pkl, read_release_npz

__all__ = ["read_pkl", "read_release_npz"]
