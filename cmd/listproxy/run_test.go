package main

import (
	"errors"
	"testing"
	"time"
)

// TestEndingOfABrokenProcess: it does not last as long as that of one that is told to end.
func TestEndingOfABrokenProcess(t *testing.T) {
	broken := errors.New("a part has failed")
	for _, tt := range []struct {
		drain time.Duration
		err   error
		want  time.Duration
	}{
		{time.Minute, nil, time.Minute},
		{time.Minute, broken, 10 * time.Second},
		{time.Second, broken, time.Second},
	} {
		if got := (ending{time.Hour, tt.drain}).timeout(tt.err); got != tt.want {
			t.Errorf("with %v and the error %v: %v, want %v", tt.drain, tt.err, got, tt.want)
		}
	}
}
