# SPDX-License-Identifier: Apache-2.0
"""The commands of `polyrhythm` that are one module each, with `add_arguments(parser)` and `run(args)`.

They live in this package so that no submodule of `polyrhythm` has the name of something that `polyrhythm`
exports: importing `polyrhythm.plan` as a module would replace the function `polyrhythm.plan`.
"""
