dnl libraries.m4: macros for libraries. configure.ac has one line for each library.

# SGRAD_DIR(VARIABLE, LIBRARY): the flags of a library that is installed in the folder of --with-LIBRARY.
AC_DEFUN([SGRAD_DIR], [
    AS_IF([test -d "$with_$2/include"], [],
        [AC_MSG_ERROR([--with-$2=$with_$2: must be a folder that contains include and lib, or lib64])])
    $1_CFLAGS="-I$with_$2/include"
    AS_IF([test -d "$with_$2/lib64"], [$1_LIBS="-L$with_$2/lib64 -Wl,-rpath,$with_$2/lib64"],
        [$1_LIBS="-L$with_$2/lib -Wl,-rpath,$with_$2/lib"])])

# SGRAD_LIBRARY(LIBRARY, NAME, DEBIAN-PACKAGES, USE, CHECK): adds --with-LIBRARY. CHECK sets `found` to yes if the library is there.
# $libraries becomes a table in C (runtime/libraries.h), and the table at the end.
AC_DEFUN([SGRAD_LIBRARY], [
    m4_pushdef([VARIABLE], m4_translit([[$1]], [a-z-], [A-Z_]))
    AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1=yes|no|auto], [$2: $4])],
        [AS_CASE([$withval], [yes|no|auto], [], [AC_MSG_ERROR([--with-$1=$withval: must be yes, no or auto])])],
        [AS_VAR_SET([with_]m4_translit([[$1]], [-], [_]), [$optional])])
    AS_VAR_COPY([wanted], [with_]m4_translit([[$1]], [-], [_]))
    found=no
    AS_IF([test "$wanted" != no], [$5])
    AS_CASE([$wanted:$found],
        [yes:no], [AC_MSG_ERROR([--with-$1=yes, but $2 was not found: install $3])],
        [*:yes], [AC_DEFINE([SGRAD_HAVE_]VARIABLE, [1], [$2 is built in])],
        [VARIABLE[]_CFLAGS= VARIABLE[]_LIBS=])
    AC_SUBST(VARIABLE[_CFLAGS])
    AC_SUBST(VARIABLE[_LIBS])
    AM_CONDITIONAL([HAVE_]VARIABLE, [test $found = yes])
    AS_IF([test $found = yes], [built_in=true], [built_in=false])
    AS_VAR_APPEND([libraries], ["{ $built_in, \"$1\", \"$2\", \"$3\", \"$4\" }, "])
    AS_VAR_APPEND([library_summary], ["
    m4_format([[%-14s]], [$2])$(test $found = yes && echo yes || echo 'no ($3): $4')"])
    m4_popdef([VARIABLE])])
# The checks: modules of pkg-config, or a header and a function of a library.
AC_DEFUN([SGRAD_MODULES], [PKG_CHECK_MODULES([$1], [$2], [found=yes], [found=no])])
AC_DEFUN([SGRAD_HEADER], [AC_CHECK_HEADER([$2], [AC_CHECK_LIB([$3], [$4], [found=yes $1_LIBS=-l$3])])])
# Debian 13's highs.pc has folders of the machine on which the package was built, so it is not sufficient.
AC_DEFUN([SGRAD_HIGHS], [
    PKG_CHECK_MODULES([HIGHS], [highs], [HIGHS_CFLAGS="$HIGHS_CFLAGS -I/usr/include/highs"
        saved_CPPFLAGS=$CPPFLAGS saved_LIBS=$LIBS CPPFLAGS="$CPPFLAGS $HIGHS_CFLAGS" LIBS="$HIGHS_LIBS $LIBS"
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <interfaces/highs_c_api.h>]], [[Highs_destroy(Highs_create());]])], [found=yes])
        CPPFLAGS=$saved_CPPFLAGS LIBS=$saved_LIBS], [:])])
