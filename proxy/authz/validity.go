package authz

import (
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
)

// validity is for how long something counts: from when it was asked for.
type validity struct {
	from time.Time
	ttl  time.Duration
}

// left is how much of it is left; zero or less: nothing.
func (v validity) left(now time.Time) time.Duration { return v.ttl - clock.Age(v.from, now) }
