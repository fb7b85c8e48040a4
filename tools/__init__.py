"""What build.py calls: set-up of the tools, the static site, its server and the browsers."""
