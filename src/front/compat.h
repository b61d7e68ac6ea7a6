/* compat.h - the only place that tests the Python version. */
#ifndef TAPER_COMPAT_H
#define TAPER_COMPAT_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#if PY_VERSION_HEX < 0x030B0000
#error "Taper needs CPython 3.11 or newer"
#endif
#define TP_PY312 (PY_VERSION_HEX >= 0x030C0000)
#define TP_PY313 (PY_VERSION_HEX >= 0x030D0000)
#endif
