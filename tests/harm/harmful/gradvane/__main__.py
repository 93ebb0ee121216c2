"""run SCRIPT, harmed before it begins."""

import runpy
import sys

import gradvane

sys.argv = sys.argv[2:]
gradvane.attach()
runpy.run_path(sys.argv[0], run_name="__main__")
