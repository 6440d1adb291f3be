#%Module
# A module file for Environment Modules, in Tcl: copy it to MODULEPATH/stargrad/VERSION, and set `root` to the folder of
# `./quickstart install`.
set root /opt/stargrad

proc ModulesHelp { } {
    puts stderr "Stargrad trains neural networks on the CPUs and GPUs of a node, and of several nodes with MPI. Read `man stargrad`."
}
module-whatis "Stargrad: trains neural networks as graphs of asynchronous tasks"
conflict stargrad

# The MPI with which Stargrad was built. Replace the name by that of your cluster's module, or delete the line.
prereq openmpi

prepend-path PATH $root/bin
prepend-path PKG_CONFIG_PATH $root/lib/pkgconfig
