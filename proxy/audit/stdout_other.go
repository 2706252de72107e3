//go:build !unix

package audit

import "os"

// duplicate returns f: only on Unix is writing to a closed standard output more than an error.
func duplicate(f *os.File) (*os.File, error) { return f, nil }
