package snapshot

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// budget bounds the bytes that all collections together store: those of the objects, and an estimate for the nodes of the
// trees in all histories. The Go runtime uses more memory than that.
type budget struct {
	// limit is the number of bytes that may be stored; 0 means no limit.
	limit int64
	// used is the number of bytes that are stored.
	used atomic.Int64
}

// add adds to the number of stored bytes. bytes may be negative.
func (b *budget) add(bytes int64) { b.used.Add(bytes) }

// exceeded reports whether more bytes are stored than the limit allows.
func (b *budget) exceeded() bool { return b.limit > 0 && b.used.Load() > b.limit }

// crowded reports whether more than nine tenths of the limit are stored. While the budget is crowded, no state is loaded, and
// the janitor calls shortenHistories and dropIdlest.
func (b *budget) crowded() bool { return b.used.Load() > b.crowdedAbove() }

// crowdedAbove returns the number of stored bytes above which the budget is crowded.
func (b *budget) crowdedAbove() int64 {
	if b.limit > 0 {
		return b.limit / 10 * 9
	}
	return math.MaxInt64
}

// shortenHistories halves the history of one collection after the other, while the budget is crowded.
func (c *Collections) shortenHistories() {
	for _, r := range c.list() {
		if c.shared.budget.crowded() {
			r.trimHalf()
		}
	}
}

// minIdleToDrop is how long a collection must have been idle to be dropped to free memory.
const minIdleToDrop = time.Minute

// dropIdlest drops the collection that has been idle for longest, if the budget is crowded. Collections that are eager or were
// used within minIdleToDrop stay.
func (c *Collections) dropIdlest(now time.Time) {
	if !c.shared.budget.crowded() {
		return
	}
	isNeeded := func(r *runningCollection) bool { return c.isEager(r) || r.idleFor(now) < minIdleToDrop }
	compareIdle := func(a, b *runningCollection) int { return cmp.Compare(a.idleFor(now), b.idleFor(now)) }
	idle := slices.DeleteFunc(c.list(), isNeeded)
	if len(idle) > 0 {
		c.drop(slices.MaxFunc(idle, compareIdle), reason.Memory)
	}
}

// addUsedBytesLocked adds to the number of bytes that the collection stores, and to the budget. bytes may be negative.
func (c *Collection) addUsedBytesLocked(bytes int64) {
	c.usedBytes += bytes
	c.shared.budget.add(bytes)
}
