package audit

import (
	"path/filepath"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// BenchmarkAudit is what the audit log adds to an answer from memory.
func BenchmarkAudit(b *testing.B) {
	l, err := Open(Config{Path: filepath.Join(b.TempDir(), "audit.log"), MaxSize: 100, MaxBackups: 1}, proxytest.DiscardLog())
	expect.NoError(b, err)
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			expect.NoError(b, write(l, "1b671a64-40d5-491e-99b0-da01ff1f3341"))
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := write(l, "1b671a64-40d5-491e-99b0-da01ff1f3341"); err != nil {
					b.Error(err)
				}
			}
		})
	})
}
