//go:build !linux

// Command cluster needs Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	_, _ = fmt.Fprintln(os.Stderr, "cluster: it needs a Linux machine with root")
	os.Exit(1)
}
