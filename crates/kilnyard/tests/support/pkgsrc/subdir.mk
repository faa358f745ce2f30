# Included by the Makefile of the tree and of every category.

show-subdir-var: .PHONY
	@echo ${${VARNAME}}
