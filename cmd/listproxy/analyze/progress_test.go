package analyze

import (
	"bytes"
	"testing"
	"time"
)

// TestProgress: what the bar says, and that it says nothing where there is no terminal.
func TestProgress(t *testing.T) {
	p := &progress{total: 4 << 20, done: 1 << 20}
	if got, want := p.line(3*time.Second), "[#######.......................]  25%, 1.0 MiB, 9s left"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.total = 0
	if got := p.line(time.Second); got != "read 1.0 MiB" {
		t.Errorf("of unknown length: %q", got)
	}
	var out bytes.Buffer
	quiet := newProgress(&out, 10)
	quiet.add(5)
	quiet.clear()
	if out.Len() > 0 {
		t.Errorf("written to what is no terminal: %q", &out)
	}
}
