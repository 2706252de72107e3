package audit

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// BenchmarkAudit is what the audit log adds to an answer from memory.
func BenchmarkAudit(b *testing.B) {
	r, list, who := auditedRequest("/api/v1/namespaces/team-a/pods?resourceVersion=0"), auditedPods(), auditedAlice()
	file := func(b *testing.B) *logFile {
		b.Helper()
		f, err := openFile(Config{Path: filepath.Join(b.TempDir(), "audit.log"), MaxSize: 100, MaxBackups: 1})
		expect.NoError(b, err)
		return f
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			event := newEvent(r, list, who, auditReceived)
			completeEvent(event, auditedPage(), auditCompleted)
			if _, err := encodeEvent(event); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("write", func(b *testing.B) {
		event := newEvent(r, list, who, auditReceived)
		completeEvent(event, auditedPage(), auditCompleted)
		line, err := encodeEvent(event)
		expect.NoError(b, err)
		f := file(b)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := f.Write(line); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("whole", func(b *testing.B) {
		l := NewLog(file(b), proxytest.DiscardLog())
		b.ReportAllocs()
		for b.Loop() {
			entry, err := l.Begin(r, list, who, time.Now())
			expect.NoError(b, err)
			entry.Complete(auditedPage())
		}
	})
	b.Run("whole-parallel", func(b *testing.B) {
		l := NewLog(file(b), proxytest.DiscardLog())
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				entry, err := l.Begin(r, list, who, time.Now())
				if err != nil {
					b.Error(err)
					return
				}
				entry.Complete(auditedPage())
			}
		})
	})
}
