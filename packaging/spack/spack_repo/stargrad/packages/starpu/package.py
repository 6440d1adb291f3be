from spack_repo.builtin.packages.starpu.package import Starpu as BuiltinStarpu

from spack.package import *


class Starpu(BuiltinStarpu):
    """Spack's StarPU, with the limits that Stargrad needs: tasks of up to 16 buffers (StarPU's default is 8)."""

    variant("maxbuffers", default="16", values=int, description="The most buffers of a task")
    variant("maxcpus", default="256", values=int, description="The most CPU workers of a process")
    variant("maxcudadev", default="8", values=int, description="The most GPUs of a process")

    def configure_args(self):
        limits = [f"--enable-{name}={self.spec.variants[name].value}" for name in ("maxbuffers", "maxcpus", "maxcudadev")]
        # A simulation can have thousands of ranks, and the memory of a rank grows with the square of maxnodes.
        nodes = ["--enable-maxnodes=16"] if self.spec.satisfies("+simgrid") else []
        return super().configure_args() + limits + nodes + ["--enable-fxt-max-files=256"]
