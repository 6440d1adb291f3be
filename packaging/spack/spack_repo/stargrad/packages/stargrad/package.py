from spack_repo.builtin.build_systems.autotools import AutotoolsPackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Stargrad(AutotoolsPackage, CudaPackage):
    """Stargrad trains neural networks as graphs of asynchronous tasks, on the CPUs and GPUs of a machine or, with MPI, of a
    cluster. The runtime system StarPU decides when and where each task runs, so that computation and messages overlap."""

    homepage = "https://stargrad.example"
    git = "https://stargrad.example/stargrad.git"       # replace by the address of the repository

    license("MIT")

    version("main", branch="main")
    version("0.2.0", tag="v0.2.0")

    # The option --with-LIBRARY of configure: its package, and whether it is used by default.
    libraries = {
        "blosc": ("c-blosc", True),
        "gif": ("giflib", True),
        "glpk": ("glpk", False),                      # GPL; highs replaces it
        "hdf5": ("hdf5", True),
        "highs": ("highs", True),
        "jpeg": ("jpeg", True),
        "libarchive": ("libarchive", True),
        "libmicrohttpd": ("libmicrohttpd", True),
        "liburing": ("liburing", True),
        "libzip": ("libzip", True),
        "png": ("libpng", True),
        "protobuf-c": ("protobuf-c", True),
        "tiff": ("libtiff@4.5:", True),
        "webp": ("libwebp", True),
        "zstd": ("zstd", True),
    }
    for _name, (_package, _default) in libraries.items():
        variant(_name, default=_default, description=f"Use {_name}")
        depends_on(_package, when=f"+{_name}")
    variant("fxt", default=False, description="Record traces")
    variant("simgrid", default=False, description="Build the trainer for simulated machines, which does not train")
    variant("nccl", default=False, when="+cuda", description="Use NCCL between the GPUs of several ranks")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("autoconf@2.71:", type="build")
    depends_on("automake@1.16:", type="build")
    depends_on("libtool", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.9:", type="build")
    depends_on("hwloc@2:")
    depends_on("jansson")
    depends_on("onednn@2.5: cpu_runtime=omp")
    depends_on("openblas")
    depends_on("zlib-api")
    depends_on("mpi", when="~simgrid")
    depends_on("cudnn", when="+cuda")
    depends_on("nccl@2.13:", when="+nccl")
    depends_on("simgrid+smpi", when="+simgrid")
    # packages/starpu of this repository
    depends_on("starpu@1.4.8:1.4 +mpi ~opencl ~openmp ~fortran ~examples maxbuffers=16")
    for _name in ("cuda", "fxt"):
        depends_on(f"starpu+{_name}", when=f"+{_name}")
        depends_on(f"starpu~{_name}", when=f"~{_name}")
    depends_on("starpu~simgrid+shared", when="~simgrid")
    depends_on("starpu+simgrid+blocking~shared", when="+simgrid")

    conflicts("+cuda", when="+simgrid", msg="a simulation has the GPUs of its machine file, and needs no CUDA")

    def autoreconf(self, spec, prefix):
        Executable("autoreconf")("-fi")

    def configure_args(self):
        spec = self.spec
        args = [f"--with-{name}={'yes' if spec.satisfies('+' + name) else 'no'}" for name in (*self.libraries, "fxt")]
        args.append(f"--with-dnnl={spec['onednn'].prefix}")
        if spec.satisfies("+simgrid"):
            args.append("--enable-simulation")
        else:
            args.append(f"MPICC={spec['mpi'].mpicc}")
        if spec.satisfies("+cuda"):
            args += [f"--with-cuda={spec['cuda'].prefix}", f"--with-cudnn={spec['cudnn'].prefix}"]
            args.append(f"--with-nccl={spec['nccl'].prefix if spec.satisfies('+nccl') else 'no'}")
            if "none" not in spec.variants["cuda_arch"].value:
                args.append("--with-cuda-arch=" + ",".join(spec.variants["cuda_arch"].value))
        else:
            args.append("--with-cuda=no")
        return args

    @property
    def build_targets(self):
        return ["stargrad"] if self.spec.satisfies("+simgrid") else []

    def install(self, spec, prefix):
        if spec.satisfies("+simgrid"):
            mkdirp(prefix.bin)
            install("stargrad", prefix.bin)
        else:
            super().install(spec, prefix)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def trained(self):
        if self.spec.satisfies("~simgrid"):
            Executable(self.prefix.bin.stargrad)(*"train --model convnet --data digits --epochs 1 --out trained".split())
