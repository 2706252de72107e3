package main

import "runtime/debug"

// release is set by the linker in released builds: -ldflags "-X main.release=v1.2.3".
var release string

// version is the release, or else what the Go toolchain knows of the source.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
