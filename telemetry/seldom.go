package telemetry

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Seldom is for lines of the log that callers can cause: the first twenty, and then one in ten seconds.
// Its zero value is ready for use. It is safe for concurrent use.
type Seldom struct {
	begin sync.Once
	rate  rate.Sometimes
}

// Do calls say, unless it was called too often.
func (s *Seldom) Do(say func()) {
	s.begin.Do(func() { s.rate.First, s.rate.Interval = 20, 10*time.Second })
	s.rate.Do(say)
}
