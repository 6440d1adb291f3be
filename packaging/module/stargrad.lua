-- A module file for Lmod: copy it to MODULEPATH/stargrad/VERSION.lua, and set `root` to the folder of `./quickstart install`.
local root = "/opt/stargrad"

whatis("Name: Stargrad")
whatis("Version: " .. myModuleVersion())
whatis("Description: trains neural networks as graphs of asynchronous tasks")
help([[Stargrad trains neural networks on the CPUs and GPUs of a node, and of several nodes with MPI.
Read `man stargrad`, and ]] .. root .. [[/share/doc/stargrad/docs.]])

-- The MPI with which Stargrad was built. Replace the name by that of your cluster's module, or delete the line.
depends_on("openmpi")
conflict("stargrad")

prepend_path("PATH", pathJoin(root, "bin"))
prepend_path("PKG_CONFIG_PATH", pathJoin(root, "lib/pkgconfig"))
