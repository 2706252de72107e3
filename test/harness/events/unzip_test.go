package events_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"

	"github.com/listproxy/listproxy/test/harness/events"
)

// TestUnzip: what one member has is read before the next one has come.
func TestUnzip(t *testing.T) {
	from, to := io.Pipe()
	m := events.Unzip(from)
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
	if _, err := m.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}
