package events

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
)

// Unzip reads a body of which each flush may be a gzip member of its own, without waiting for the
// next one.
func Unzip(body io.Reader) io.Reader { return &members{from: bufio.NewReader(body)} }

type members struct {
	from *bufio.Reader
	zip  *gzip.Reader
}

// Read implements [io.Reader].
func (m *members) Read(p []byte) (int, error) {
	for {
		if m.zip == nil {
			zip, err := gzip.NewReader(m.from)
			if err != nil {
				return 0, err
			}
			m.zip = zip
			m.zip.Multistream(false)
		}
		n, err := m.zip.Read(p)
		switch {
		case n > 0:
			return n, nil
		case !errors.Is(err, io.EOF):
			return 0, err
		}
		if err := m.zip.Reset(m.from); err != nil {
			return 0, err
		}
		m.zip.Multistream(false)
	}
}
