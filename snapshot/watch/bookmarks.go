package watch

import (
	"math/rand/v2"
	"time"
)

// A watch that asks for bookmarks gets one after each bookmarkInterval, or up to bookmarkJitter later, and the last one
// lastBookmarkLead before its deadline (as in k8s.io/apiserver, storage/cacher).
const (
	bookmarkInterval = time.Minute
	bookmarkJitter   = 1300 * time.Millisecond
	lastBookmarkLead = 2 * time.Second
)

// nextBookmark returns the time at which a watch with this deadline gets its next bookmark, or zero if it gets none.
func nextBookmark(now, deadline time.Time) time.Time {
	next := now.Add(bookmarkInterval + rand.N(bookmarkJitter)) // #nosec G404 -- no secret
	last := deadline.Add(-lastBookmarkLead)
	switch {
	case !next.After(last):
		return next
	case now.Before(last):
		return last
	}
	return time.Time{}
}
