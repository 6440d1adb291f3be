dnl mpi.m4: finds an MPI and its launcher, and compares it with the MPI of StarPU.

# SGRAD_CHECK_MPI: the MPI of MPICC. Sets MPI_CFLAGS, MPI_LIBS, MPIRUN and mpi (the name). The flags are those with which the wrapper
# calls the compiler ("-show" in Open MPI, MPICH and Intel MPI). A compiler that is a wrapper itself (Cray's cc) needs none.
AC_DEFUN([SGRAD_CHECK_MPI], [
AC_ARG_VAR([MPI_CFLAGS], [C compiler flags for MPI, instead of those of MPICC])
AC_ARG_VAR([MPI_LIBS], [linker flags for MPI, instead of those of MPICC])
AS_IF([test -n "$MPICC"], [mpicc=$(command -v "$MPICC") || AC_MSG_ERROR([MPICC=$MPICC: this program does not exist])],
    [mpicc=$(command -v mpicc)])

# mpi_flags COMPILER WORD...: sorts the words of a command line into MPI_CFLAGS and MPI_LIBS, and omits flags of optimization.
mpi_flags() {
    while shift && test $[]# -gt 0; do
        case $[]1 in
        -I* | -D* | -pthread) MPI_CFLAGS="$MPI_CFLAGS $[]1" ;;
        -L* | -l* | -Wl,* | /*) MPI_LIBS="$MPI_LIBS $[]1" ;;
        -Xlinker) MPI_LIBS="$MPI_LIBS -Wl,$[]2" && shift ;;
        esac
    done
}
AS_IF([test -n "$mpicc" && test -z "$MPI_CFLAGS$MPI_LIBS"], [eval "mpi_flags $($mpicc -show)"])

AC_MSG_CHECKING([for MPI])
saved_CPPFLAGS=$CPPFLAGS saved_LIBS=$LIBS CPPFLAGS="$CPPFLAGS $MPI_CFLAGS" LIBS="$MPI_LIBS $LIBS"
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[int level; return MPI_Init_thread(0, 0, MPI_THREAD_MULTIPLE, &level);]])],
    [], [AC_MSG_RESULT([no])
         AC_MSG_ERROR([MPI not found with ${mpicc:-the compiler}: install libopenmpi-dev or libmpich-dev, or set MPICC])])
AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <mpi.h>
    #ifndef OPEN_MPI
    #error
    #endif]])], [mpi='Open MPI'
    AC_DEFINE([SGRAD_OPEN_MPI], [1], [the MPI is Open MPI])
], [AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <mpi.h>
    #ifndef I_MPI_VERSION
    #error
    #endif]])], [mpi='Intel MPI'], [mpi=MPICH])])
CPPFLAGS=$saved_CPPFLAGS LIBS=$saved_LIBS
AC_MSG_RESULT([$mpi, with ${mpicc:-the compiler}])

# The launcher has the folder and the suffix of the wrapper: /usr/bin/mpicc.mpich, /usr/bin/mpirun.mpich. Some clusters have only srun.
suffix=${mpicc##*/mpi*cc}
AC_PATH_PROGS([MPIRUN], [mpirun$suffix mpiexec$suffix mpirun mpiexec], [mpirun], [${mpicc%/*}$PATH_SEPARATOR$PATH])
])

# SGRAD_CHECK_ONE_MPI: fails if StarPU needs another MPI than MPI_LIBS. A program with two MPIs crashes at its first message.
AC_DEFUN([SGRAD_CHECK_ONE_MPI], [
AC_MSG_CHECKING([for the MPI of StarPU])
saved_CPPFLAGS=$CPPFLAGS saved_LIBS=$LIBS CPPFLAGS="$CPPFLAGS $STARPU_CFLAGS $MPI_CFLAGS" LIBS="$STARPU_LIBS $MPI_LIBS $LIBS"
mpis=
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <starpu_mpi.h>]],
                                [[int rank; return starpu_mpi_shutdown() + MPI_Comm_rank(MPI_COMM_WORLD, &rank);]])],
    [mpis=$(export LD_LIBRARY_PATH="$($PKG_CONFIG --variable=libdir starpumpi-1.4):$LD_LIBRARY_PATH"
        ldd conftest$EXEEXT | sed -n 's/.*[[[:space:]]]\(libmpi\(ch\|_cray\|_gnu[[0-9_]]*\)\{0,1\}\.so[[0-9.]]*\) .*/\1/p' | sort -u | xargs)])
CPPFLAGS=$saved_CPPFLAGS LIBS=$saved_LIBS
AC_MSG_RESULT([${mpis:-unknown}])
AS_CASE([$mpis], [*' '*], [AC_MSG_ERROR([this StarPU was built with another MPI ($mpis). Set MPICC to the wrapper of
    StarPU's MPI, or build StarPU with $mpi: MPICC=${mpicc:-$CC} ./quickstart build])])
])
