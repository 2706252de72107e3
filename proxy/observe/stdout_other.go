//go:build !unix

package observe

import "os"

// duplicate returns f: only on Unix can writing to a closed standard output end the process.
func duplicate(f *os.File) (*os.File, error) { return f, nil }
