package telemetry

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Seldom limits the lines that callers can cause in the log to twenty, and then one in ten seconds. Its zero value is
// ready for use. It is safe for concurrent use.
type Seldom struct {
	begin sync.Once
	rate  rate.Sometimes
}

// Do calls log, unless it was called too often.
func (s *Seldom) Do(log func()) {
	s.begin.Do(func() {
		s.rate.First = 20
		s.rate.Interval = 10 * time.Second
	})
	s.rate.Do(log)
}
