package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/listproxy/listproxy/test/expect"
)

// sink is what a log is written to in tests.
type sink struct {
	bytes.Buffer
	err    error // what writing ends in, nil for success
	torn   int   // how many bytes are written before err
	closed bool
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		n, _ := s.Buffer.Write(p[:s.torn])
		return n, s.err
	}
	return s.Buffer.Write(p)
}

func (s *sink) Close() error {
	s.closed = true
	return nil
}

// ids returns the IDs of the events in whole lines, and how many lines are none.
func (s *sink) ids() (ids []string, torn int) {
	for text := range strings.Lines(s.String()) {
		var event auditv1.Event
		if json.Unmarshal([]byte(text), &event) != nil {
			torn++
			continue
		}
		ids = append(ids, string(event.AuditID))
	}
	return ids, torn
}

// write writes the event of an answer with that ID.
func write(l *AuditLog, id string) error {
	return l.Write(auditedRequest("/api/v1/pods"), auditedPods(), auditedAlice(), time.Now(), AuditedAnswer{ID: id})
}

// TestFailing: AuditLog.Write returns the error of an event that cannot be written. The event after half a line begins
// on a new line.
func TestFailing(t *testing.T) {
	out := &sink{}
	l := NewAuditLog(out)
	expect.NoError(t, write(l, "one"))
	full := errors.New("no space left on device")
	for _, torn := range []int{0, 10, 0, 10} {
		out.err, out.torn = full, torn
		if err := write(l, "lost"); !errors.Is(err, full) {
			t.Errorf("got %v", err)
		}
	}
	out.err = nil
	expect.NoError(t, write(l, "two"))
	expect.NoError(t, write(l, "three"))
	expect.NoError(t, l.Close())
	ids, torn := out.ids()
	expect.Same(t, []string{"one", "two", "three"}, ids)
	if torn != 2 || !out.closed {
		t.Errorf("%d half lines, want 2, closed: %t", torn, out.closed)
	}
}

// TestManyAnswers: their lines do not mix. The end waits for no event that is being written.
func TestManyAnswers(t *testing.T) {
	out := &sink{}
	l := NewAuditLog(out)
	var writing sync.WaitGroup
	for range 100 {
		writing.Go(func() {
			if err := write(l, "one"); err != nil {
				t.Error(err)
			}
		})
	}
	writing.Wait()
	ids, torn := out.ids()
	expect.Same(t, slices.Repeat([]string{"one"}, 100), ids)
	expect.Same(t, 0, torn)
	l.mu.Lock() // as while an event is written
	if err := l.Close(); !errors.Is(err, errBusy) || out.closed {
		t.Errorf("the end: %v", err)
	}
}

// BenchmarkAudit is what the audit log adds to answers from memory.
func BenchmarkAudit(b *testing.B) {
	l, err := OpenAuditLog(AuditConfig{Path: filepath.Join(b.TempDir(), "audit.log"), MaxSize: 100, MaxBackups: 1})
	expect.NoError(b, err)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := write(l, "1b671a64-40d5-491e-99b0-da01ff1f3341"); err != nil {
				b.Error(err)
			}
		}
	})
}
