;;; A definition for Guix: `guix build -f packaging/guix/stargrad.scm`, or, for a shell with the command,
;;; `guix shell -f packaging/guix/stargrad.scm openmpi`. The source is the clone that contains this file.
;;; It builds for CPUs, with Open MPI and without traces and GLPK.
(use-modules (gnu packages)
             (guix build-system gnu)
             (guix download)
             (guix gexp)
             (guix git-download)
             ((guix licenses) #:prefix license:)
             (guix packages)
             (srfi srfi-1))

(define root
  (canonicalize-path (string-append (dirname (current-filename)) "/../..")))

(define package-named specification->package)

;; A StarPU with the limits that Stargrad needs; by default, a task has at most 8 buffers.
(define starpu-for-stargrad
  (package
    (name "starpu-for-stargrad")
    (version "1.4.10")
    (source
     (origin
       (method url-fetch)
       (uri (string-append "https://files.inria.fr/starpu/starpu-" version "/starpu-" version ".tar.gz"))
       (sha256
        (base32 "00xgz9harv7ji764y60yj8jdaia83crzdd2zxzjhk8bv6ffgadcg"))
       (patches (list (local-file (string-append root "/build-aux/starpu/idle.patch"))))))
    (build-system gnu-build-system)
    (arguments
     (list
      #:tests? #f                       ;they take hours
      #:configure-flags
      #~(list "--enable-maxbuffers=16" "--enable-maxcpus=256" "--enable-fast" "--enable-mpi"
              "--disable-static" "--disable-cuda" "--disable-opencl" "--disable-openmp"
              "--disable-build-doc" "--disable-build-tests" "--disable-build-examples"
              "--disable-starpufft" "--disable-fortran" "--disable-socl" "--disable-starpupy"
              "--disable-mlr" "--disable-starpurm" "--disable-gdb")))
    (native-inputs (list (package-named "pkg-config")))
    (propagated-inputs
     (list (list (package-named "hwloc") "lib")
           (package-named "openmpi")))
    (home-page "https://starpu.gitlabpages.inria.fr/")
    (synopsis "Runtime system for task graphs, with the limits that Stargrad needs")
    (description "StarPU decides when and where the tasks of a program run, on the processors of a
machine and of a cluster.")
    (license license:lgpl2.1+)))

(define stargrad
  (package
    (name "stargrad")
    (version "0.2.0")
    (source
     (local-file root "stargrad-checkout"
                 #:recursive? #t
                 #:select? (or (git-predicate root) (const #t))))
    (build-system gnu-build-system)
    (arguments
     (list
      #:configure-flags
      #~(list "--with-cuda=no" "--with-fxt=no" "--with-glpk=no" "--with-highs=no"
              "--with-blosc=yes" "--with-gif=yes" "--with-hdf5=yes" "--with-jpeg=yes"
              "--with-libarchive=yes" "--with-libmicrohttpd=yes" "--with-liburing=yes" "--with-libzip=yes"
              "--with-png=yes" "--with-protobuf-c=yes" "--with-tiff=yes" "--with-webp=yes" "--with-zstd=yes")
      #:test-target "check-quick"
      #:phases
      #~(modify-phases %standard-phases
          (add-before 'check 'set-home
            (lambda _
              (setenv "HOME" (getcwd)))))))
    (native-inputs
     (map package-named
          '("autoconf" "automake" "libtool" "pkg-config" "protobuf-c" "python" "python-pytest")))
    (inputs
     (cons* starpu-for-stargrad
            (list (package-named "zstd") "lib")
            (map package-named
                 '("c-blosc" "giflib" "hdf5" "jansson" "libarchive" "libjpeg-turbo" "libmicrohttpd" "libpng" "libtiff"
                   "liburing" "libwebp" "libzip" "oneapi-dnnl" "openblas" "protobuf-c" "zlib"))))
    (home-page "https://stargrad.example")
    (synopsis "Trainer of neural networks as graphs of asynchronous tasks")
    (description "Stargrad trains neural networks on the processors of a machine and, with MPI, of a
cluster.  Each forward, backward, reduction and update step is a task of the runtime system StarPU,
so that computation and messages overlap.")
    (license license:expat)))

stargrad
