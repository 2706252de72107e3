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

// fakeFile is a file in memory, whose writes can fail.
type fakeFile struct {
	bytes.Buffer
	writeErr   error // nil: Write succeeds
	partLength int   // the number of bytes that a failing Write writes
	closed     bool
}

func (f *fakeFile) Write(p []byte) (int, error) {
	if f.writeErr != nil {
		n, _ := f.Buffer.Write(p[:f.partLength])
		return n, f.writeErr
	}
	return f.Buffer.Write(p)
}

func (f *fakeFile) Close() error {
	f.closed = true
	return nil
}

// readIDs returns the IDs of the events in f, and the number of lines that are not an event.
func (f *fakeFile) readIDs() (ids []string, otherLines int) {
	for text := range strings.Lines(f.String()) {
		var event auditv1.Event
		if json.Unmarshal([]byte(text), &event) != nil {
			otherLines++
			continue
		}
		ids = append(ids, string(event.AuditID))
	}
	return ids, otherLines
}

// writeEvent writes the event of an answer with an ID.
func writeEvent(l *AuditLog, id string) error {
	return l.Write(AuditEvent{
		Request: auditedRequest("/api/v1/pods"), Asked: auditedPods(), Caller: auditedAlice(), Received: time.Now(), ID: id,
	})
}

// TestAuditLogOnFullDisk: AuditLog.Write returns the error of an event that cannot be written. If a part of its line was
// written, the next event begins on a new line.
func TestAuditLogOnFullDisk(t *testing.T) {
	file := &fakeFile{}
	l := NewAuditLog(file)
	expect.NoError(t, writeEvent(l, "one"))
	file.writeErr = errors.New("no space left on device")
	for _, partLength := range []int{0, 10, 0, 10} { // nothing of the event is written, or its first 10 bytes
		file.partLength = partLength
		if err := writeEvent(l, "lost"); !errors.Is(err, file.writeErr) {
			t.Errorf("Write returns %v, want %v", err, file.writeErr)
		}
	}
	file.writeErr = nil
	expect.NoError(t, writeEvent(l, "two"))
	expect.NoError(t, writeEvent(l, "three"))
	expect.NoError(t, l.Close())
	ids, otherLines := file.readIDs()
	expect.Same(t, []string{"one", "two", "three"}, ids)
	expect.Same(t, 2, otherLines) // the two parts of ten bytes
	expect.Same(t, true, file.closed)
}

// TestAuditLogConcurrently: the lines of events that are written at the same time do not mix.
func TestAuditLogConcurrently(t *testing.T) {
	file := &fakeFile{}
	l := NewAuditLog(file)
	var writers sync.WaitGroup
	for range 100 {
		writers.Go(func() {
			if err := writeEvent(l, "one"); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	ids, otherLines := file.readIDs()
	expect.Same(t, slices.Repeat([]string{"one"}, 100), ids)
	expect.Same(t, 0, otherLines)
}

// TestAuditLogCloseDoesNotWait: AuditLog.Close returns an error while an event is being written.
func TestAuditLogCloseDoesNotWait(t *testing.T) {
	file := &fakeFile{}
	l := NewAuditLog(file)
	l.mu.Lock() // as while an event is written
	if err := l.Close(); !errors.Is(err, errBusy) || file.closed {
		t.Errorf("Close returns %v and closed is %t, want %v and false", err, file.closed, errBusy)
	}
}

// BenchmarkAudit measures what the audit log adds to an answer from memory.
func BenchmarkAudit(b *testing.B) {
	l, err := OpenAuditLog(AuditConfig{Path: filepath.Join(b.TempDir(), "audit.log"), MaxSize: 100, MaxBackups: 1})
	expect.NoError(b, err)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := writeEvent(l, "1b671a64-40d5-491e-99b0-da01ff1f3341"); err != nil {
				b.Error(err)
			}
		}
	})
}
