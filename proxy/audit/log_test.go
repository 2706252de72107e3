package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// sink is what a log is written to in tests.
type sink struct {
	mu     sync.Mutex
	err    error         // what writing ends in, nil for success
	torn   int           // how many bytes are written before err
	block  chan struct{} // writes wait for it, unless nil
	tries  int
	closed bool
	bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	block := s.block
	s.mu.Unlock()
	if block != nil {
		<-block
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	if s.err != nil {
		n, _ := s.Buffer.Write(p[:min(s.torn, len(p))])
		return n, s.err
	}
	return s.Buffer.Write(p)
}

func (s *sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *sink) fail(torn int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.torn, s.err = torn, err
}

// ids returns the auditIDs of what was written, which must be whole lines of JSON.
func (s *sink) ids(t *testing.T) []string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	return auditIDs(t, s.Bytes())
}

func auditIDs(t *testing.T, log []byte) []string {
	t.Helper()
	var ids []string
	for line := range bytes.Lines(log) {
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("%v in line %q", err, line)
		}
		ids = append(ids, string(event.AuditID))
	}
	return ids
}

// begin begins a list, which the log must let it.
func begin(t testing.TB, l *Log) *Entry {
	t.Helper()
	entry, err := l.Begin(auditedRequest("/api/v1/pods"), auditedPods(), auditedAlice(), time.Now())
	expect.NoError(t, err)
	return entry
}

func completed(id string) Answer { return Answer{ID: id} }

// wantReady compares why no list may be answered.
func wantReady(t *testing.T, when string, l *Log, want error) {
	t.Helper()
	l.mu.Lock()
	got := l.readyLocked()
	l.mu.Unlock()
	if !errors.Is(got, want) {
		t.Errorf("%s: ready: %v, want %v", when, got, want)
	}
	entry, err := l.Begin(auditedRequest("/api/v1/pods"), auditedPods(), auditedAlice(), time.Now())
	if !errors.Is(err, want) || (entry == nil) != (want != nil) {
		t.Errorf("%s: a list is begun: %v, want %v", when, err, want)
	}
	if entry != nil {
		entry.Abandon()
	}
}

func wantIDs(t *testing.T, when string, sink *sink, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, sink.ids(t)); diff != "" {
		t.Errorf("%s: %s", when, diff)
	}
}

// wantNothingHeld looks for memory that is set aside.
func wantNothingHeld(t *testing.T, l *Log) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reserved != 0 {
		t.Errorf("%d bytes are still set aside", l.reserved)
	}
}

func closeLog(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

var errDiskFull = errors.New("no space left on device")

func TestAuditLogWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &sink{}
		l := NewLog(sink, proxytest.DiscardLog())
		wantReady(t, "at first", l, nil)
		first, second := begin(t, l), begin(t, l)
		began := time.Now()
		second.Complete(completed("2"))
		wantIDs(t, "one is complete", sink, "2")
		first.Complete(completed("1"))
		first.Complete(completed("again"))
		first.Abandon()
		begin(t, l).Abandon()
		wantIDs(t, "both are complete", sink, "2", "1")
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %v", waited)
		}
		wantNothingHeld(t, l)
		closeLog(t, l)
		closeLog(t, l)
		if !sink.closed {
			t.Error("the output is still open")
		}
		wantReady(t, "closed", l, errClosed)
	})
}

// TestAuditLogFails fills the disk while three lists are being answered and makes room again.
func TestAuditLogFails(t *testing.T) {
	for _, torn := range []int{0, 1, 300} {
		t.Run(fmt.Sprint("torn after ", torn), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said strings.Builder
				sink := &sink{}
				l := NewLog(sink, slog.New(slog.NewTextHandler(&said, nil)))
				begin(t, l).Complete(completed("before"))
				entries := []*Entry{begin(t, l), begin(t, l), begin(t, l)}

				sink.fail(torn, errDiskFull)
				began := time.Now()
				entries[0].Complete(completed("a"))
				// The answer whose event could not be written is the last one.
				wantReady(t, "after the first failure", l, errFailing)
				entries[1].Complete(completed("b"))
				if waited := time.Since(began); waited != 0 {
					t.Errorf("answers waited %v for a log that cannot be written", waited)
				}
				sink.fail(0, errDiskFull)
				time.Sleep(5*retryAfter + retryAfter/2) // the bubble's clock
				synctest.Wait()
				wantReady(t, "after some attempts", l, errFailing)
				if sink.tries != 7 {
					t.Errorf("%d attempts to write, want one a second", sink.tries)
				}
				sink.fail(0, nil)
				time.Sleep(retryAfter)
				synctest.Wait()
				wantReady(t, "with room again", l, nil)
				entries[2].Complete(completed("c"))
				begin(t, l).Complete(completed("after"))
				wantIDs(t, "in the end", sink, "before", "a", "b", "c", "after")
				wantNothingHeld(t, l)
				closeLog(t, l)
				if got := said.String(); strings.Count(got, "level=ERROR") != 1 || strings.Count(got, "level=INFO") != 1 ||
					!strings.Contains(got, errDiskFull.Error()) {
					t.Errorf("it should say once that it cannot write, why, and that it can again:\n%s", got)
				}
			})
		})
	}
}

// TestAuditLogFailsAgain is about a disk that is full again while the log catches up.
func TestAuditLogFailsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &sink{}
		l := NewLog(sink, proxytest.DiscardLog())
		entries := []*Entry{begin(t, l), begin(t, l)}
		for i, entry := range entries {
			sink.fail(0, errDiskFull)
			entry.Complete(completed(fmt.Sprint(i)))
			wantReady(t, "full", l, errFailing)
			sink.fail(0, nil)
			time.Sleep(retryAfter)
			synctest.Wait()
			wantReady(t, "with room again", l, nil)
		}
		wantIDs(t, "in the end", sink, "0", "1")
		closeLog(t, l)
	})
}

// TestAuditLogStalls is about standard output that nobody reads.
func TestAuditLogStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		sink := &sink{block: make(chan struct{})}
		l := NewLog(sink, slog.New(slog.NewTextHandler(&said, nil)))
		first, second, third := begin(t, l), begin(t, l), begin(t, l)
		began := time.Now()
		first.Complete(completed("1"))
		if waited := time.Since(began); waited != stallAfter {
			t.Errorf("the answer waited %v", waited)
		}
		wantReady(t, "stalled", l, errStalled)
		second.Complete(completed("2"))
		sink.mu.Lock()
		close(sink.block)
		sink.block = nil
		sink.mu.Unlock()
		synctest.Wait()
		wantReady(t, "read again", l, nil)
		third.Complete(completed("3"))
		wantIDs(t, "in the end", sink, "1", "2", "3")
		wantNothingHeld(t, l)
		closeLog(t, l)
		if got := strings.Count(said.String(), "level=WARN"); got != 1 {
			t.Errorf("a stall was reported %d times", got)
		}
	})
}

func TestAuditLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLog(&sink{}, proxytest.DiscardLog())
		defer closeLog(t, l)
		var entries []*Entry
		for {
			entry, err := l.Begin(auditedRequest("/api/v1/pods"), auditedPods(), auditedAlice(), time.Now())
			if err != nil {
				if !errors.Is(err, errFull) {
					t.Fatal(err)
				}
				break
			}
			entries = append(entries, entry)
		}
		if n := len(entries); n < 2000 || n > maxHeld/frameSize {
			t.Errorf("%d lists at once", n)
		}
		entries[0].Abandon()
		begin(t, l).Abandon()
		for _, entry := range entries {
			entry.Abandon()
		}
		wantNothingHeld(t, l)
	})
}

func TestAuditLogRefusesLongRequests(t *testing.T) {
	l := NewLog(&sink{}, proxytest.DiscardLog())
	defer closeLog(t, l)
	long := strings.Repeat("x", maxLine/maxJSONByte)
	uri, id := auditedRequest("/api/v1/pods?labelSelector="+long), auditedRequest("/api/v1/pods")
	id.Header.Set("Audit-Id", long)
	for _, r := range []string{"uri", "id"} {
		request := uri
		if r == "id" {
			request = id
		}
		if _, err := l.Begin(request, auditedPods(), auditedAlice(), time.Now()); !errors.Is(err, errLong) {
			t.Errorf("%s: %v", r, err)
		}
	}
	wantNothingHeld(t, l)
}

func TestAuditLogCloses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		block bool
		want  string
	}{
		{"in vain", errDiskFull, false, "2 events are not in the audit log, which cannot be written"},
		{"never", nil, true, "2 events are not in the audit log: context deadline exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := &sink{err: tt.err}
				if tt.block {
					sink.block = make(chan struct{})
				}
				l := NewLog(sink, proxytest.DiscardLog())
				first, second, late := begin(t, l), begin(t, l), begin(t, l)
				first.Complete(completed("1"))
				second.Complete(completed("2"))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := l.Close(ctx); err == nil || err.Error() != tt.want {
					t.Errorf("closed with %v, want %s", err, tt.want)
				}
				late.Complete(completed("late")) // no panic, no wait
				if tt.block {
					close(sink.block)
				}
			})
		})
	}
}

// TestAuditLogConcurrently lets many answers end at once; the race detector watches.
func TestAuditLogConcurrently(t *testing.T) {
	const answers = 200
	sink := &sink{}
	l := NewLog(sink, proxytest.DiscardLog())
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { begin(t, l).Complete(completed(fmt.Sprint(i))) })
	}
	all.Wait()
	closeLog(t, l)
	seen := map[string]bool{}
	for _, id := range sink.ids(t) {
		seen[id] = true
	}
	if len(seen) != answers {
		t.Errorf("%d of %d answers are in the log", len(seen), answers)
	}
	wantNothingHeld(t, l)
}
