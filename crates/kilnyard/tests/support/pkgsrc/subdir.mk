# What the Makefile of the tree and of every category includes.

show-subdir-var: .PHONY
	@echo ${${VARNAME}}
