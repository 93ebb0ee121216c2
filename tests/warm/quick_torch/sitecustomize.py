"""The interpreter runs this before each program that finds it."""

import quick

quick.install()
