package statusz

import (
	"math"
	"runtime/debug"
	"testing"
)

// The limits are those that are set, whoever set them.
func TestReadRuntime(t *testing.T) {
	limit, percent := debug.SetMemoryLimit(3<<30), debug.SetGCPercent(70)
	t.Cleanup(func() { debug.SetMemoryLimit(limit); debug.SetGCPercent(percent) })
	if got := ReadRuntime(); got.MemoryLimit != 3<<30 || got.GCPercent != 70 || got.Memory <= 0 || got.Processors <= 0 {
		t.Errorf("%+v", got)
	}
	debug.SetMemoryLimit(math.MaxInt64)
	debug.SetGCPercent(-1)
	if got := ReadRuntime(); got.MemoryLimit != 0 || got.GCPercent != -1 {
		t.Errorf("without limits %+v", got)
	}
}
