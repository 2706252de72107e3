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
	// pageObjects and pageBytes bound the number and the bytes of the objects in one page of a comparison.
	pageObjects = 500
	pageBytes   = 4 << 20
	// The pause after a page is pauseFactor times as long as its comparison took, and at least minPause.
	pauseFactor = 4
	minPause    = 50 * time.Millisecond
	// pageTries is the largest number of tries for one page. Each try compares the state that is the newest when the try
	// begins.
	pageTries = 3
	// confirmPause is the pause before a page with other objects is compared again.
	confirmPause = 2 * time.Second
	// firstKey and allPages are arguments of comparePages for a whole collection.
	firstKey = ""
	allPages = math.MaxInt
)

// errDropped says that the state was dropped, so there is no verdict.
var errDropped = errors.New("the state is not there any more")

// comparedPages says how far comparePages came. A page is compared with the upstream's page of the same keys, byte by byte.
type comparedPages struct {
	// next is the key with which the next comparison begins; "" if no page is left:
	//
	//	the last page                          next
	//	was compared                           the page after it
	//	could not be compared                  the page after it, so that one page does not hold up all others
	//	was not tried: the state was dropped   the same page
	next string
	// revision is the revision at which the last page was compared. If the state needs no comparison, it is the state's
	// revision. It is 0 if no page was tried, since the state was dropped.
	revision uint64
}

// comparePages compares up to maxPages pages of a collection with the upstream, for a self-check (some pages) or for a
// verification after a change of the API servers (all pages). The first page begins with the key start. A collection that was
// loaded after changedAt, the time of the last such change, needs no comparison.
//
// comparePages stops at the first error. The error is one of three:
//
//	nil                      all compared pages agree
//	[source.MismatchError]   a page has differed twice
//	any other                there is no verdict
func (c *Collections) comparePages(r *runningCollection, start string, maxPages int, changedAt time.Time) (comparedPages, error) {
	compared := comparedPages{next: start}
	for range maxPages {
		var err error
		compared, err = c.comparePageRetrying(r, compared.next, changedAt)
		if err != nil || compared.next == "" {
			return compared, err
		}
	}
	return compared, nil
}

// comparePageRetrying compares one page of the newest state. If the upstream has forgotten the state's revision (410) or has
// not reached it yet (504), comparePageRetrying tries again with the state that is the newest by then, up to pageTries times in
// all. It pauses before another try. It also pauses at its end if there was no error and there is a next page.
func (c *Collections) comparePageRetrying(r *runningCollection, start string, changedAt time.Time) (comparedPages, error) {
	for try := 1; ; try++ {
		v := r.view.Load()
		switch {
		case v.unavailable != reason.None:
			return comparedPages{next: start}, errDropped
		case v.loadAskedAt.After(changedAt):
			return comparedPages{revision: v.To}, nil
		}
		begun := time.Now()
		next, err := c.comparePageTwice(r, v.snapshot(), start)
		mayRetry := try < pageTries && source.Answered(err, http.StatusGone, http.StatusGatewayTimeout)
		hasNextPage := err == nil && next != ""
		if mayRetry || hasNextPage {
			clock.Sleep(c.ctx, max(minPause, pauseFactor*time.Since(begun))) // Close ends it early; callers then ignore the result
		}
		if !mayRetry {
			return comparedPages{next: next, revision: v.To}, err
		}
	}
}

// comparePageTwice compares the page of s that begins with the key start. If the page differs, it is compared once more after a
// pause. comparePageTwice returns the key with which the next page begins, even after an error.
func (c *Collections) comparePageTwice(r *runningCollection, s Snapshot, start string) (next string, err error) {
	upstream := c.source(r.key)
	limit := s.Tree.PageLimit(start, pageObjects, pageBytes)
	next, err = upstream.ComparePage(c.ctx, upstream.List, s.ListState, start, limit)
	mismatch, differs := errors.AsType[*source.MismatchError](err)
	if !differs {
		return next, err
	}
	pause := confirmPause
	if mismatch.SameObjects {
		// A definition may just have changed, and listproxy may not know it before Skew (10 s) has passed.
		pause = Skew
	}
	if !clock.Sleep(c.ctx, pause) {
		return next, c.ctx.Err()
	}
	_, err = upstream.ComparePage(c.ctx, upstream.List, s.ListState, start, limit)
	switch {
	case err == nil: // at one revision, a page cannot differ and then agree, so neither result is trusted
		return next, fmt.Errorf("a mismatch was gone the second time: %s", mismatch.Difference)
	case r.view.Load().epoch != s.epoch: // the state was dropped or replaced between the two comparisons, so there is no verdict
		return next, errDropped
	}
	return next, err
}
