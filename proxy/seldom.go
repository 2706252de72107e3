package proxy

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// seldom is for lines of the log that callers can cause: the first twenty, and then one a second.
// Its zero value is ready for use. It is safe for concurrent use.
type seldom struct {
	begin sync.Once
	rate  rate.Sometimes
}

func (s *seldom) do(say func()) {
	s.begin.Do(func() { s.rate.First, s.rate.Interval = 20, time.Second })
	s.rate.Do(say)
}
