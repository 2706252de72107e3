package statusz

import (
	"math"
	"runtime"
	"runtime/metrics"
)

// Names of runtime/metrics. They are read there, since debug.SetGCPercent can only be asked by
// setting it.
const (
	goMemoryLimit = "/gc/gomemlimit:bytes"
	goGCPercent   = "/gc/gogc:percent"
	goMemory      = "/memory/classes/total:bytes"
	goReleased    = "/memory/classes/heap/released:bytes"
)

// ReadRuntime returns how the Go runtime uses memory now.
func ReadRuntime() Runtime {
	samples := []metrics.Sample{{Name: goMemoryLimit}, {Name: goGCPercent}, {Name: goMemory}, {Name: goReleased}}
	metrics.Read(samples)
	value := func(i int) uint64 {
		if samples[i].Value.Kind() != metrics.KindUint64 {
			return 0 // this version of Go does not have it
		}
		return samples[i].Value.Uint64()
	}
	s := Runtime{Processors: runtime.GOMAXPROCS(0), GCPercent: -1}
	if limit := value(0); limit < math.MaxInt64 {
		s.MemoryLimit = int64(limit)
	}
	if percent := value(1); percent <= math.MaxInt32 { // off is the greatest number
		s.GCPercent = int64(percent)
	}
	if all, released := value(2), value(3); all > released && all < math.MaxInt64 {
		s.Memory = int64(all - released)
	}
	return s
}
