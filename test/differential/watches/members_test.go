package watches

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"testing"
)

// TestMembers: what one member has is read before the next one has come.
func TestMembers(t *testing.T) {
	from, to := io.Pipe()
	m := &members{from: bufio.NewReader(from)}
	for _, text := range []string{"one\n", "two\n"} {
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		_, _ = w.Write([]byte(text))
		_ = w.Close()
		go func() { _, _ = to.Write(zipped.Bytes()) }()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(m, got); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	_ = to.Close()
	if _, err := m.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // as readers demand
		t.Errorf("at the end: %v", err)
	}
}
