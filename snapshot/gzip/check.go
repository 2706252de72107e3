package gzip

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Check writes a list as clients get it that accept gzip, decompresses it, and says whether the
// result differs.
func (c *Compressor) Check(frame *wire.Frame, objects []*index.Object) (found []string) {
	var compressed bytes.Buffer
	_ = c.Write(&compressed, frame, nil, objects, nil) // which does not fail, into memory
	read, err := unpack(&compressed)
	if err != nil {
		return []string{fmt.Sprintf("a list cannot be read after its compression: %v", err)}
	}
	rest := read
	for i, o := range objects {
		for _, part := range [][]byte{frame.AppendItemHead(nil, i, len(o.Bytes)), o.Bytes} {
			var is bool
			if rest, is = bytes.CutPrefix(rest, part); !is {
				return []string{o.Key + " has other bytes after its compression"}
			}
		}
	}
	if len(rest) > 0 {
		return []string{"a list is longer after its compression"}
	}
	return nil
}

// unpack decompresses like any client, with the standard library's reader, which shares no code
// with the writer.
func unpack(compressed io.Reader) ([]byte, error) {
	in, err := gzip.NewReader(compressed)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(in)
}
