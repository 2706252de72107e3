package analyze

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/listproxy/listproxy/cmd/listproxy/cli"
)

const (
	// progressWidth is how wide the bar is, in columns.
	progressWidth = 30
	// progressPause is how long a drawn bar stays.
	progressPause = 100 * time.Millisecond
)

// progress shows on a terminal how much has been read. Elsewhere it shows nothing.
type progress struct {
	out   io.Writer // nil: nothing is shown
	total int64     // 0: not known
	done  int64
	begun time.Time
	drawn time.Time
}

func newProgress(out io.Writer, total int64) *progress {
	if !cli.IsTerminal(out) {
		out = nil
	}
	return &progress{out: out, total: total, begun: time.Now()}
}

// reader returns what is read of r, and counts it.
func (p *progress) reader(r io.Reader) io.Reader { return countingReader{r, p} }

type countingReader struct {
	io.Reader
	progress *progress
}

// Read implements [io.Reader].
func (r countingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.progress.add(int64(n))
	return n, err
}

func (p *progress) add(n int64) {
	p.done += n
	if p.out == nil || time.Since(p.drawn) < progressPause {
		return
	}
	p.drawn = time.Now()
	// An error would be of the terminal.
	_, _ = fmt.Fprint(p.out, "\r"+p.line(p.drawn.Sub(p.begun))+"\x1b[K")
}

// line is the bar as text, after a time.
func (p *progress) line(after time.Duration) string {
	read := humanize.IBytes(uint64(p.done)) // #nosec G115 -- a sum of sizes
	if p.total == 0 {
		return "read " + read
	}
	part := min(1, float64(p.done)/float64(p.total))
	full := int(part * progressWidth)
	left := ""
	if part > 0 {
		left = fmt.Sprintf(", %v left", time.Duration(float64(after)*(1/part-1)).Round(time.Second))
	}
	return fmt.Sprintf("[%s%s] %3.0f%%, %s%s", strings.Repeat("#", full), strings.Repeat(".", progressWidth-full), 100*part, read, left)
}

// clear removes the bar.
func (p *progress) clear() {
	if p.out != nil && !p.drawn.IsZero() {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}
