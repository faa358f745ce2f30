#!/bin/sh
# Wraps a program in the root of a build. If the caller allows several jobs (`-j 8`), the program takes them from the
# build's jobserver instead of starting that many itself, so that cores can be given and taken while it runs. If the
# caller allows one job, that stays so: the build may not support more.
server=/kilnyard/tools/jobserver
