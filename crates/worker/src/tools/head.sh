#!/bin/sh
# Stands in for a program in the root of a build. Where its caller allows several jobs (`-j 8`), the program takes them
# from the jobserver of the build instead of starting as many by itself, so that cores can be given and taken while it
# runs. What was allowed one job keeps to it: it was not written for more.
server=/kilnyard/tools/jobserver
