package poll_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/harness/poll"
)

func TestCame(t *testing.T) {
	for name, tt := range map[string]struct {
		after time.Duration
		want  bool
	}{
		"at once":  {0, true},
		"in time":  {time.Minute - time.Second, true},
		"too late": {time.Minute + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got := poll.Came(t, time.Minute, func() bool { return time.Since(began) >= tt.after })
				if got != tt.want {
					t.Errorf("it came: %t, want %t", got, tt.want)
				}
				if waited := time.Since(began); waited > time.Minute || got && waited > tt.after+time.Second {
					t.Errorf("waited %v", waited)
				}
			})
		})
	}
}

// failing notes how a test ended.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, _ ...any) { f.said = format }

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{TB: t}
		poll.Until(f, time.Minute, "anything", func() bool { return true })
		if f.said != "" {
			t.Errorf("what came is not there: %s", f.said)
		}
		poll.Until(f, time.Minute, "anything", func() bool { return false })
		if f.said == "" {
			t.Error("what never came is there")
		}
	})
}
