package events

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
)

// Unzip decompresses a body in which each flush may be a gzip member of its own. It returns the bytes of a member without
// waiting for the next.
func Unzip(body io.Reader) io.Reader { return &members{from: bufio.NewReader(body)} }

type members struct {
	from   *bufio.Reader
	zip    gzip.Reader
	within bool // between the beginning and the end of a member
}

// Read implements [io.Reader].
func (m *members) Read(p []byte) (int, error) {
	for {
		if !m.within {
			if err := m.zip.Reset(m.from); err != nil {
				return 0, err
			}
			m.zip.Multistream(false)
			m.within = true
		}
		n, err := m.zip.Read(p)
		if errors.Is(err, io.EOF) {
			m.within, err = false, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}
