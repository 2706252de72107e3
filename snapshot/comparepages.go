package snapshot

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
)

const (
	// pageObjects and pageBytes bound one page of a comparison.
	pageObjects = 500
	pageBytes   = 4 << 20
	// The pause after a page is pauseFactor times as long as its comparison took, and at least minPause.
	pauseFactor = 4
	minPause    = 50 * time.Millisecond
	// pageTries is the number of revisions at which a page is tried, since the upstream may have forgotten a revision (410),
	// or may not have reached it yet (504).
	pageTries = 3
	// confirmPause is the pause before a page with other objects is compared again. For a page that differs only in bytes,
	// the pause is [Skew].
	confirmPause = 2 * time.Second
)

// The arguments of comparePages for a whole collection.
const (
	firstKey = ""
	allPages = math.MaxInt
)

// errDropped says that a state was dropped before its comparison was complete.
var errDropped = errors.New("the state is not there any more")

// comparedPages says how far comparePages came.
type comparedPages struct {
	// next is the key with which the next page begins; "" if no page is left. Even after a page that failed, it is the page
	// after that: a page that the upstream never gives must not keep later ones from being compared.
	next string
	// revision is the revision at which the last page was compared; 0 if the collection was dropped before that.
	revision uint64
}

// comparePages compares up to maxPages pages of a collection with the upstream, byte by byte. The first page begins with the
// key start. Each page is compared at the newest revision of that moment. changedAt is the last change of the API servers: a
// state that was loaded later needs no comparison.
//
// comparePages stops at the first page that fails. The error is a [source.MismatchError] if the page differed twice. Any
// other error is no verdict.
func (c *Collections) comparePages(r *runningCollection, start string, maxPages int, changedAt time.Time) (comparedPages, error) {
	compared := comparedPages{next: start}
	tries := 1
	for pages := 0; pages < maxPages; {
		v := r.view.Load()
		switch {
		case v.unavailable != reason.None:
			return comparedPages{next: compared.next}, errDropped
		case v.loadAskedAt.After(changedAt):
			return comparedPages{revision: v.To}, nil
		}
		begun := time.Now()
		next, err := c.comparePage(r, v.snapshot(), compared.next)
		lacksRevision := source.Answered(err, http.StatusGone, http.StatusGatewayTimeout)
		switch {
		case lacksRevision && tries < pageTries: // try the same page again, at a newer revision
			compared.revision = v.To
			tries++
		case err != nil || next == "":
			return comparedPages{next: next, revision: v.To}, err
		default:
			compared = comparedPages{next: next, revision: v.To}
			pages++
			tries = 1
		}
		if !clock.Sleep(c.ctx, max(minPause, pauseFactor*time.Since(begun))) {
			return compared, c.ctx.Err()
		}
	}
	return compared, nil
}

// comparePage compares the page of s that begins with the key start. If the page differs, it is compared once more after a
// pause. comparePage returns the key with which the next page begins, even after an error.
func (c *Collections) comparePage(r *runningCollection, s Snapshot, start string) (next string, err error) {
	upstream := c.source(r.key)
	limit := s.Tree.PageLimit(start, pageObjects, pageBytes)
	next, err = upstream.ComparePage(c.ctx, upstream.List, s.listState(), start, limit)
	mismatch, differs := errors.AsType[*source.MismatchError](err)
	if !differs {
		return next, err
	}
	pause := confirmPause
	if mismatch.SameObjects {
		// A definition may just have changed, which listproxy may not know before Skew has passed.
		pause = Skew
	}
	if !clock.Sleep(c.ctx, pause) {
		return next, c.ctx.Err()
	}
	_, secondErr := upstream.ComparePage(c.ctx, upstream.List, s.listState(), start, limit)
	if secondErr == nil {
		return next, fmt.Errorf("a mismatch was gone the second time: %s", mismatch.Difference)
	}
	if r.view.Load().epoch != s.epoch {
		return next, errDropped
	}
	return next, secondErr
}
