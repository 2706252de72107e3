package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

const barWidth = 40

// bar shows how far a number of like things has come: redrawn in place on a terminal, a line
// now and then elsewhere.
type bar struct {
	out   io.Writer
	what  string
	total int
	done  atomic.Int64
	note  func() string // what else to show; nil: nothing
	begun time.Time
	quit  chan struct{}
	ended chan struct{}
}

// newBar shows a bar until finish is called, and a note beside it if there is one. Its step may be
// called by many at once.
func newBar(out io.Writer, what string, total int, note func() string) *bar {
	b := &bar{
		out: out, what: what, total: total, note: note, begun: time.Now(),
		quit: make(chan struct{}), ended: make(chan struct{}),
	}
	every := 5 * time.Second
	if isTerminal(out) {
		every = 100 * time.Millisecond
	}
	go func() {
		defer close(b.ended)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-b.quit:
				return
			case <-ticker.C:
				b.draw("")
			}
		}
	}()
	return b
}

func (b *bar) step() { b.done.Add(1) }

// finish draws the bar for the last time.
func (b *bar) finish() {
	close(b.quit)
	<-b.ended
	b.draw(fmt.Sprintf(" in %.1f s", time.Since(b.begun).Seconds()))
	if isTerminal(b.out) {
		say(b.out, "\n")
	}
}

func (b *bar) draw(suffix string) {
	done := int(b.done.Load())
	if b.note != nil {
		suffix += b.note()
	}
	if !isTerminal(b.out) {
		say(b.out, "%s %d/%d%s\n", b.what, done, b.total, suffix)
		return
	}
	full := barWidth * done / max(b.total, 1)
	say(b.out, "\r%s [%s%s] %d/%d%s", b.what,
		strings.Repeat("#", full), strings.Repeat(".", barWidth-full), done, b.total, suffix)
}

// isTerminal says whether lines can be redrawn.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
