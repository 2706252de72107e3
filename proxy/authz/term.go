package authz

import (
	"time"

	"github.com/listproxy/listproxy/snapshot"
)

// term is for how long something counts: from when it was asked for.
type term struct {
	from time.Time
	ttl  time.Duration
}

// left is how much of it is left; zero or less: nothing.
func (t term) left(now time.Time) time.Duration { return t.ttl - snapshot.Age(t.from, now) }

// holds says whether it has not ended.
func (t term) holds(now time.Time) bool { return t.left(now) > 0 }
